# tests/device/networks/test_optimizers.py: optimizers of torch.optim op by op, against the CPU, with few launches; LBFGS compiled.
from __future__ import annotations

from typing import Any

import pytest
import torch

STEPS = 5
SHAPES = [(7, 5), (5,), (3, 4, 2), (1,), (16, 8), (8,)]

EAGER: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "nesterov": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.02, "momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
]


def train(
    name: str, device: str, compiled: bool, schedule: bool = False, **settings: Any
) -> tuple[list[Any], list[int]]:
    """Returns the parameters after STEPS steps on a quadratic loss, and the launches of each step."""
    torch.manual_seed(0)
    params = [torch.randn(s).to(device).requires_grad_() for s in SHAPES]
    targets = [torch.linspace(-1, 1, p.numel()).view(p.shape).to(device) for p in params]
    optimizer = getattr(torch.optim, name)(params, **settings)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2).sum() for p, t in zip(params, targets, strict=True))
        loss.backward()
        return loss

    step = torch.compile(lambda *a: optimizer.step(*a), backend="ocl") if compiled else optimizer.step
    launches = []
    for _ in range(STEPS):
        closure()
        with torch.ocl.record() as launched:
            step(*([closure] if name == "LBFGS" else []))
        launches.append(len(launched))
        if schedule:
            optimizer.param_groups[0]["lr"] *= 0.9
    return [p.detach().cpu() for p in params], launches


def agree(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)


def argument_share(device: str) -> int:
    """Returns the factor by which a device needs more launches because its kernels have fewer bytes of arguments.

    PoCL allows 1 KiB of arguments, other runtimes 4 KiB and more.
    """
    return 2 if torch.ocl.get_device_properties(device).platform_name.startswith("Portable") else 1


@pytest.mark.sampled(first=8, every=36)
@pytest.mark.parametrize(
    ("name", "settings", "mode"),
    [
        pytest.param(name, settings, mode, id=f"{name}-{len(settings)}-{mode}")
        for name, settings in EAGER
        for mode in (("foreach",) if name == "RMSprop" else ("foreach", "fused"))  # RMSprop has no fused form
    ],
)
def test_eager(name: str, settings: dict[str, Any], mode: str, ocl_device: str) -> None:
    """A changing learning rate needs no new kernels, and nothing runs on the CPU."""
    expected, _ = train(name, "cpu", False, True, **settings)
    torch.ocl.reset_fallback_counts()
    got, launches = train(name, ocl_device, False, True, **settings, **{mode: True})
    assert torch.ocl.fallback_counts() == {}
    agree(got, expected)
    assert max(launches) <= (3 if mode == "fused" else 10) * argument_share(ocl_device), launches


def test_few_launches_for_many_parameters(ocl_device: str) -> None:
    params = [torch.randn(3 + i % 5, 4, device=ocl_device).requires_grad_() for i in range(40)]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True)
    optimizer.step()
    with torch.ocl.record() as launches:
        optimizer.step()
    assert len(launches) <= 2 * argument_share(ocl_device), [r.origin for r in launches]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_fused_with_grad_scaler(name: str, ocl_device: str) -> None:
    """A step whose gradient overflows changes nothing. Other steps unscale the gradient; their scales differ."""
    got = []
    for device in ("cpu", ocl_device):
        torch.manual_seed(0)
        param = torch.randn(6, 3).to(device).requires_grad_()
        settings = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)([param], lr=0.1, fused=True, **settings)
        scaler = torch.amp.GradScaler(device.split(":")[0], init_scale=2.0**10, growth_interval=2)
        history = []
        for k in range(5):
            optimizer.zero_grad()
            loss = (param * (float("inf") if k == 2 else 1.0) - 0.5).square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            history.append((param.detach().cpu().clone(), scaler.get_scale()))
        got.append(history)
    for (a, scale_a), (b, scale_b) in zip(*got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
        assert scale_a == scale_b


def test_compiled_lbfgs(ocl_device: str) -> None:
    """Its step calls the closure several times. test_compiled_optimizers.py has the other optimizers."""
    expected, _ = train("LBFGS", "cpu", False, lr=0.5, max_iter=3)
    got, _ = train("LBFGS", ocl_device, True, lr=0.5, max_iter=3)
    agree(got, expected)


def test_compiled_launches(ocl_device: str) -> None:
    _, launches = train("AdamW", ocl_device, True, lr=0.05)
    assert launches[-1] <= 2, launches


def test_gradient_clipping(ocl_device: str) -> None:
    norms = []
    for device in ("cpu", ocl_device):
        torch.manual_seed(0)
        params = [torch.randn(s).to(device).requires_grad_() for s in SHAPES]
        for p in params:
            p.grad = p.detach() * 3
        total = torch.nn.utils.clip_grad_norm_(params, 1.0)
        norms.append([total.cpu(), *(p.grad.cpu() for p in params)])
    for a, b in zip(*norms, strict=True):
        torch.testing.assert_close(b, a)
