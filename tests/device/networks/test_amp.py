# tests/device/networks/test_amp.py: autocast and GradScaler on ocl: result dtypes, and a network that reaches the accuracy of
# fp32.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

LOW = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", LOW, ids=["bf16", "fp16"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_which_ops_are_lowered(dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    """Autocast treats ops as on CUDA: products run in the 16-bit type, exponentials and sums in fp32, and ops with
    mixed arguments in the widest dtype."""
    x = torch.randn(4, 8, device=ocl_device)
    w = torch.randn(8, 8, device=ocl_device)
    image, filters = torch.randn(1, 2, 6, 6, device=ocl_device), torch.randn(3, 2, 3, 3, device=ocl_device)

    def results() -> list[torch.Tensor]:
        low = x @ w
        return [
            *(low, F.linear(x, w), F.conv2d(image, filters), torch.bmm(x[None], w[None]), torch.addmm(x[0], x, w)),
            *(
                low.exp(),
                low.softmax(-1),
                low.sum(),
                low.pow(2),
                F.layer_norm(low, (8,)),
                F.mse_loss(low, x),
                low.norm(),
            ),
            *(low + x, torch.cat([low, x]), torch.addcmul(x, low, low)),
            *(F.relu(low), low * 2, F.gelu(low)),
        ]

    with torch.autocast("ocl", dtype=dtype):
        got = (torch.compile(results, backend="ocl") if compiled else results)()
    assert [t.dtype for t in got] == [dtype] * 5 + [torch.float32] * 7 + [torch.float32] * 3 + [dtype] * 3


RESAMPLING = {
    "nearest": (2,),
    "nearest-exact": (2,),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", LOW, ids=["bf16", "fp16"])
def test_interpolation_gives_float32(dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    """As in autocast of CUDA. Compiled functions gave the type of the argument."""
    modes = [mode for mode, dims in RESAMPLING.items() for dim in dims for _ in LOW]
    images = [torch.ones(1, 2, *[4] * dim, device=ocl_device, dtype=source)
              for dims in RESAMPLING.values() for dim in dims for source in (dtype, torch.float32)]  # fmt: skip

    def call(images: list[torch.Tensor]) -> list[torch.Tensor]:
        return [F.interpolate(x, scale_factor=2, mode=mode) for x, mode in zip(images, modes, strict=True)]

    with torch.autocast("ocl", dtype=dtype):
        results = (torch.compile(call, backend="ocl", fullgraph=True) if compiled else call)(images)
    assert {y.dtype for y in results} == {torch.float32}
    image = torch.ones(1, 2, 4, 4, device=ocl_device, dtype=dtype)
    with torch.autocast("ocl", dtype=dtype):
        assert F.interpolate(image, size=(3, 3), mode="bilinear", antialias=True).dtype == torch.float32


def test_autocast_can_be_left(ocl_device: str) -> None:
    x = torch.randn(4, 4, device=ocl_device)
    with torch.autocast("ocl", dtype=torch.bfloat16):
        with torch.autocast("ocl", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32
    assert torch.get_autocast_dtype("ocl") == torch.float16
    with torch.autocast("ocl"), pytest.raises(RuntimeError, match="with_logits"):
        F.binary_cross_entropy(x.sigmoid(), x.sigmoid())


def test_scaler_sees_overflow(ocl_device: str) -> None:
    scaler = torch.amp.GradScaler("ocl", init_scale=2.0**16, growth_interval=2)
    param = torch.ones(3, device=ocl_device, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=0.5)
    torch.ocl.reset_fallback_counts()
    scales = []
    for factor in (1.0, float("inf"), 1.0, 1.0, float("nan")):
        optimizer.zero_grad()
        scaler.scale((param * factor).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [2.0**16, 2.0**15, 2.0**15, 2.0**16, 2.0**15]
    torch.testing.assert_close(param.detach().cpu(), torch.full((3,), -0.5))
    assert torch.ocl.fallback_counts() == {}


@pytest.mark.parametrize("dtype", LOW, ids=["bf16", "fp16"])
def test_halves_occupy_two_bytes(dtype: torch.dtype, ocl_device: str) -> None:
    """Kernels that write a part of a 16-bit tensor do not change the neighbouring elements."""
    memory = torch.arange(48, dtype=torch.float32).to(dtype)
    on_device = memory.to(ocl_device)

    def double(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    torch.compile(double, backend="ocl")(on_device[8:16])
    on_device.view(12, 4)[5:10, 1:3].add_(1)
    expected = memory.clone()
    expected[8:16] *= 2
    expected.view(12, 4)[5:10, 1:3] += 1
    torch.testing.assert_close(on_device.cpu(), expected, rtol=0, atol=0)
    assert on_device.untyped_storage().nbytes() == 96

    def layers(x: torch.Tensor, w: torch.Tensor, f: torch.Tensor) -> Any:
        y = F.gelu(F.conv2d(x, f, padding=1))
        return F.relu(y), torch.tanh(y.flatten(2) @ w), y.softmax(1), y.amax((2, 3))

    torch.manual_seed(0)
    x, w, f = torch.randn(2, 3, 4, 4), torch.randn(16, 5), torch.randn(4, 3, 3, 3)
    half = [t.to(dtype) for t in (x, w, f)]
    got = torch.compile(layers, backend="ocl")(*(t.to(ocl_device) for t in half))
    for a, b in zip(got, layers(*(t.float() for t in half)), strict=True):
        assert a.dtype is dtype
        torch.testing.assert_close(a.cpu().float(), b, rtol=2e-2, atol=2e-2)


class Digits(nn.Module):
    """A small CNN for 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def accuracy(device: str, dtype: torch.dtype | None, epochs: int = 20) -> float:
    """Returns the accuracy on the last fifth of the digits, after training on the others. dtype None: without autocast."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1))
    images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
    targets = torch.tensor(digits.target)[order]
    cut = len(targets) * 4 // 5
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = Digits().to(device)
    forward = torch.compile(net, backend="ocl", dynamic=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, fused=True)
    scaler = torch.amp.GradScaler("ocl", enabled=dtype is torch.float16)
    low = torch.autocast("ocl", dtype=dtype or torch.bfloat16, enabled=dtype is not None)
    for epoch in range(epochs):
        shuffled = torch.randperm(cut, generator=torch.Generator().manual_seed(epoch))
        # The learning rate falls to 0; otherwise the accuracy would vary by a digit or two with the last steps.
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - epoch / epochs)
        for batch in shuffled[: cut - cut % 128].split(128):
            x, y = images[batch].to(device), targets[batch].to(device)
            with low:
                loss = F.cross_entropy(forward(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    net.eval()
    with torch.no_grad(), low:
        found = net(images[cut:].to(device)).float().cpu().argmax(1)
    return (found == targets[cut:]).float().mean().item()


@pytest.mark.sampled()
def test_digits_are_learned_as_in_float32(ocl_device: str, sweep: bool) -> None:
    """A plain run trains in fp16, which needs the scaler."""
    full = accuracy(ocl_device, None)
    assert full > 0.97
    for dtype in LOW if sweep else (torch.float16,):
        assert accuracy(ocl_device, dtype) >= full - 0.005, dtype
