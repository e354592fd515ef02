# torch_ocl_compile/doctor.py: a small network compiled and checked on a device: does its driver do what we need?
"""Convolution, batch norm, pooling, a matrix product, softmax and all their gradients, against the CPU."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ocl_compile.record import record

TOLERANCE = 1e-3  # of the largest value: wrong kernels are far off, roundings far below


@dataclass(frozen=True)
class Finding:
    """What the check of one device found. `error`: the largest difference to the CPU over the largest value."""

    error: float
    kernels: int
    first_seconds: float  # with compilation
    step_ms: float

    @property
    def healthy(self) -> bool:
        return self.error < TOLERANCE and self.kernels > 0


def examine(device: torch.device) -> Finding:
    """Compiles and runs a training step. Raises what the compiler, the driver or the device raise."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
    )
    x, y = torch.randn(8, 3, 8, 8), torch.randint(10, (8,))
    twin = copy.deepcopy(model).to(device)

    def loss_of(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(network(images), labels)

    expected = _results(loss_of(model, x, y), model)
    torch._dynamo.reset()
    compiled = torch.compile(loss_of, backend="ocl", options={"fallback": "error"})
    there = x.to(device), y.to(device)
    start = time.perf_counter()
    got = _results(compiled(twin, *there), twin)
    first = time.perf_counter() - start
    twin.zero_grad(set_to_none=True)
    with record() as launches:
        start = time.perf_counter()
        compiled(twin, *there).backward()
        torch.accelerator.synchronize(device)
        step_ms = (time.perf_counter() - start) * 1000
    error = max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(got, expected, strict=True))
    return Finding(error, len(launches), first, step_ms)


def _results(loss: Tensor, model: nn.Module) -> list[Tensor]:
    """The loss and the gradients of the weights: a bias before batch norm has none but roundings."""
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.dim() > 1 and p.grad is not None]
    return [t.detach().cpu() for t in (loss, *gradients)]
