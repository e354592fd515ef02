# torch_ocl_compile/tools/report_timings.py: what a device report times: twelve operations, and the kernels of a ResNet.
"""The sizes are fixed, so that reports of different devices can be compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ocl_compile.device.profile import profile
from torch_ocl_compile.device.record import record

SECONDS = 0.4  # Seconds of timed calls of one operation.
RUNS = 5  # Calls whose kernels are timed by the device's clock.
SLOWEST = 10  # Kernels of the network in a report.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2}


@dataclass(frozen=True)
class Timing:
    """An operation on random inputs. `flops` counts a multiply-add as two, `bytes` the inputs and outputs once.

    The first `rows` rows of the result are compared with fp64 on the CPU. They follow from the first `rows` rows of the
    first `cut` inputs and the whole others. `cut` 0: the result follows from all inputs as a whole.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Tensor]
    dtype: torch.dtype = torch.float32
    flops: float = 0
    bytes: float = 0
    rows: int = 1
    cut: int = 0
    waits: bool = False  # Waits for the device after each call, rather than once after many.


def _gemm(size: int, dtype: torch.dtype, name: str) -> Timing:
    shape = (size, size)
    return Timing(f"gemm {name} {size}", (shape, shape), torch.mm, dtype, 2.0 * size**3, rows=32, cut=1)


def _chain(a: Tensor, b: Tensor) -> Tensor:
    return F.gelu(a * b + a) - b


def _plus_one(x: Tensor) -> Tensor:
    return x + 1.0


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _conv(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


_MATRIX, _MAPS, _HEADS = (8192, 2048), (8, 64, 56, 56), (4, 8, 512, 64)
_BYTES = 4.0 * 8192 * 2048

TIMINGS = (
    Timing("a tiny kernel, queued", ((16,),), _plus_one),
    Timing("a tiny kernel, with a wait", ((16,),), _plus_one, waits=True),
    Timing("copy", (_MATRIX,), _plus_one, bytes=2 * _BYTES, rows=32, cut=1),
    Timing("pointwise chain", (_MATRIX, _MATRIX), _chain, bytes=3 * _BYTES, rows=32, cut=2),
    Timing("sum", (_MATRIX,), torch.sum, bytes=_BYTES),
    Timing("softmax", (_MATRIX,), _softmax, bytes=2 * _BYTES, rows=32, cut=1),
    _gemm(512, torch.float32, "fp32"),
    _gemm(2048, torch.float32, "fp32"),
    _gemm(512, torch.float16, "fp16"),
    _gemm(2048, torch.float16, "fp16"),
    Timing("conv 3x3", (_MAPS, (64, 64, 3, 3)), _conv, flops=2.0 * 8 * 56 * 56 * 64 * 64 * 9, rows=1, cut=1),
    Timing("attention fp16", (_HEADS,) * 3, F.scaled_dot_product_attention, torch.float16, 4.0 * 4 * 8 * 512 * 512 * 64,
           rows=1, cut=3),
)  # fmt: skip


def measure(timing: Timing, device: torch.device) -> dict[str, Any]:
    """Times an operation and compares its result with fp64. Errors of the compiler and the device are raised."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(shape, generator=generator).to(timing.dtype) for shape in timing.shapes]
    exact = timing.call(*(_head(x, timing, i).double() for i, x in enumerate(inputs)))
    moved = [x.to(device) for x in inputs]
    torch._dynamo.reset()
    compiled = torch.compile(timing.call, backend="ocl", dynamic=False, options={"fallback": "error"})
    start = time.perf_counter()
    with torch.no_grad():
        got = compiled(*moved)
        got = (got[: timing.rows] if timing.cut else got).cpu().double()
        first = time.perf_counter() - start
        ms = 1000 * _seconds_of_call(compiled, moved, device, timing.waits)
        on_device = []
        for _ in range(RUNS):
            with record(timing=True) as launches:
                compiled(*moved)
            on_device.append(sum(launch.time_us for launch in launches) / 1000)
    error = float((got - exact).abs().max() / exact.abs().max())
    finite = bool(got.isfinite().all())
    return {
        "ms": ms,
        "device_ms": statistics.median(on_device),
        "first_seconds": first,
        "gbytes_per_second": timing.bytes / ms / 1e6,
        "gflops": timing.flops / ms / 1e6,
        "kernels": [launch.kernel for launch in launches],
        "error": error if finite else None,
        "tolerance": TOLERANCE[timing.dtype],
        "right": finite and error <= TOLERANCE[timing.dtype],
    }


def _head(x: Tensor, timing: Timing, position: int) -> Tensor:
    return x[: timing.rows] if position < timing.cut else x


def _seconds_of_call(call: Callable[..., Any], inputs: Sequence[Tensor], device: torch.device, waits: bool) -> float:
    """Returns the median seconds of a call: of calls that follow one another, or of calls that wait each."""

    def seconds(count: int) -> float:
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        for _ in range(count):
            call(*inputs)
            if waits:
                torch.accelerator.synchronize(device)
        torch.accelerator.synchronize(device)
        return (time.perf_counter() - start) / count

    count = max(1, min(200, int(SECONDS / 8 / seconds(1))))
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while not times or time.perf_counter() < end:
        times.append(seconds(count))
    return statistics.median(times)


class _Block(nn.Module):
    """Two convolutions and a shortcut. The first convolution and the shortcut have the stride."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18() -> nn.Module:
    """Returns a network with the layers of ResNet-18 and random weights. torchvision may be missing."""
    head = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*head, *(_Block(*width) for width in widths), *tail).eval()


def measure_network(device: torch.device) -> dict[str, Any]:
    """Times an inference step of resnet18 in fp32 on four images. Returns its slowest kernels with the shares of the peaks
    that they reached."""
    torch.manual_seed(0)
    model, images = resnet18(), torch.randn(4, 3, 224, 224)
    torch._dynamo.reset()
    with torch.no_grad():
        exact = model.double()(images[:1].double())
        model.float().to(device)
        moved = images.to(device)
        compiled = torch.compile(model, backend="ocl", dynamic=False, options={"fallback": "error"})
        start = time.perf_counter()
        got = compiled(moved)[:1].cpu().double()
        first = time.perf_counter() - start
        ms = 1000 * _seconds_of_call(compiled, [moved], device, waits=True)
        with profile(show=False) as seen:
            compiled(moved)
            torch.accelerator.synchronize(device)
    error = float((got - exact).abs().max() / exact.abs().max())
    rows = [row for row in seen.rows if row.kernel]
    return {
        "name": "resnet18, inference, fp32, 4 images of 224x224",
        "ms": ms,
        "device_ms": sum(row.time_us for row in rows) / 1000,
        "first_seconds": first,
        "launches": sum(row.calls for row in rows),
        "error": error if error == error else None,
        "tolerance": TOLERANCE[torch.float32],
        "right": error <= TOLERANCE[torch.float32],
        "kernels": [
            {"title": row.title, "kind": row.kind, "kernel": row.kernel, "calls": row.calls, "ms": row.time_us / 1000,
             "share": row.share, "gbytes_per_second": row.bandwidth / 1e9, "bandwidth_share": row.bandwidth_share,
             "gflops": row.flops_rate / 1e9, "flops_share": row.flops_share}
            for row in rows[:SLOWEST]
        ],
    }  # fmt: skip
