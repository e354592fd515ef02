# torch_ocl_compile/tools/doctor.py: compiles small networks and checks them on a device, to find out whether its driver works.
"""Each check compares a training step in fp32, fp16 or bf16 with the same step in fp64 on the CPU."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ocl_compile.device.record import record
from torch_ocl_compile.errors import OclError


class Convolutions(nn.Module):
    """The loss of a convolution, a batch norm, a pooling layer, a linear layer and a softmax.

    `smooth` leaves out ReLU and maximum, because rounding to 16 bits would decide which branch they take.
    """

    def __init__(self, smooth: bool) -> None:
        super().__init__()
        activation, pool = (nn.SiLU(), nn.AvgPool2d(2)) if smooth else (nn.ReLU(), nn.MaxPool2d(2))
        norm, convolution = nn.BatchNorm2d(16), nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.layers = nn.Sequential(convolution, norm, activation, pool, nn.Flatten(), nn.Linear(256, 10))

    def inputs(self) -> tuple[Tensor, ...]:
        return torch.randn(8, 3, 8, 8), torch.randint(10, (8,))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(images), labels)


class Attention(nn.Module):
    """A weighted sum of causal attention. The sequences are so long that its kernels use several tiles."""

    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(torch.randn(2, 2, 128, 64) for _ in range(4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensor:
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True) * weights).sum()


@dataclass(frozen=True)
class Check:
    """A training step in one dtype. For each tensor, `tolerance` limits the largest difference from fp64 divided by the
    largest value. A wrong kernel exceeds it by far. Rounding errors were at most 7e-7 in fp32, 8e-4 in fp16 and 6e-3 in
    bf16 (Intel's runtime, PoCL).
    """

    name: str
    dtype: torch.dtype
    make: Callable[[], nn.Module]
    tolerance: float


CHECKS = (
    Check("convolutions fp32", torch.float32, lambda: Convolutions(smooth=False), 1e-4),
    Check("convolutions fp16", torch.float16, lambda: Convolutions(smooth=True), 2e-2),
    Check("convolutions bf16", torch.bfloat16, lambda: Convolutions(smooth=True), 1e-1),
    Check("attention fp32", torch.float32, Attention, 1e-4),
    Check("attention fp16", torch.float16, Attention, 2e-2),
    Check("attention bf16", torch.bfloat16, Attention, 1e-1),
)


@dataclass
class Finding:
    """The result of one check on a device. `error` is the largest difference from fp64 divided by the largest value;
    inf if a value is not finite. `problem` is the error of the compiler, the driver or the device.
    """

    check: Check
    error: float = float("inf")
    worst: str = ""  # Name of the result with that error.
    kernels: int = 0
    first_seconds: float = 0.0  # Including compilation.
    step_ms: float = 0.0
    problem: str = field(default="", repr=False)

    @property
    def healthy(self) -> bool:
        return not self.problem and self.error <= self.check.tolerance and self.kernels > 0

    def row(self) -> dict[str, Any]:
        """Returns the finding as JSON, which has no infinity."""
        return {"check": self.check.name, "healthy": self.healthy, "problem": self.problem,
                "error": None if self.error == float("inf") else self.error, "tolerance": self.check.tolerance,
                "worst": self.worst, "kernels": self.kernels, "first_seconds": self.first_seconds,
                "step_ms": self.step_ms}  # fmt: skip


def examine(device: torch.device) -> Iterator[Finding]:
    """Compiles and runs the checks one after the other."""
    for check in CHECKS:
        yield examine_one(check, device)


def examine_one(check: Check, device: torch.device) -> Finding:
    """Compiles and runs a check. A failure is in the finding."""
    finding = Finding(check)
    try:
        _examine(check, device, finding)
    except (OclError, RuntimeError) as error:
        finding.problem = str(error)
    return finding


def _examine(check: Check, device: torch.device, finding: Finding) -> None:
    torch.manual_seed(0)
    model = check.make().to(check.dtype)
    inputs = tuple(x.to(check.dtype) if x.is_floating_point() else x for x in model.inputs())  # type: ignore[operator]
    exact = _results(copy.deepcopy(model).double(), tuple(x.double() if x.is_floating_point() else x for x in inputs))
    model.to(device)
    inputs = tuple(x.to(device) for x in inputs)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="ocl", options={"fallback": "error"})
    start = time.perf_counter()
    got = _results(compiled, inputs)
    finding.first_seconds = time.perf_counter() - start
    with record() as launches:
        start = time.perf_counter()
        _results(compiled, inputs)
        finding.step_ms = (time.perf_counter() - start) * 1000
    finding.kernels = len(launches)
    finding.worst, finding.error = difference(got, exact)


def _results(model: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Returns the loss and the gradients, on the CPU."""
    inputs = tuple(x.detach().requires_grad_(x.is_floating_point()) for x in inputs)
    parameters = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    for parameter in parameters.values():
        parameter.grad = None
    loss = model(*inputs)
    loss.backward()
    gradients = {f"input {i}": x.grad for i, x in enumerate(inputs)} | {n: p.grad for n, p in parameters.items()}
    found = {"the loss": loss} | {f"the gradient of {n}": g for n, g in gradients.items() if g is not None}
    return {name.replace("_orig_mod.", ""): t.detach().cpu() for name, t in found.items()}


def difference(got: dict[str, Tensor], exact: dict[str, Tensor]) -> tuple[str, float]:
    """Returns the name of the result that differs most from fp64, and its difference divided by its largest value. A
    missing or infinite result counts as inf.
    """
    errors = {name: float("inf") for name in exact}
    for name in exact.keys() & got.keys():
        if bool(got[name].isfinite().all()):
            errors[name] = float((got[name].double() - exact[name]).abs().max() / exact[name].abs().max())
    worst = max(errors, key=lambda name: errors[name])
    return worst, errors[worst]
