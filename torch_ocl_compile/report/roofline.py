# torch_ocl_compile/report/roofline.py: measures the highest rates of a device: bytes per second, and operations per
# second.
"""The bandwidth is measured with a copy that is larger than the caches, as in torch.ocl.profile(). The rate of
operations is measured with a large matrix product by this compiler, in each precision that the graphs have. Both run on
the device a few times, and the best run counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.device.record import record
from torch_ocl_compile.errors import InternalError

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_ROUNDS = 8
_LEAST_US = 2000.0  # A kernel that runs this long hides the time of its launch.
_PRODUCT_SIZES = [768, 2048, 8192]


@dataclass(frozen=True)
class Roofline:
    bandwidth: float  # Bytes per second.
    flops: dict[str, float]  # precision such as "f32" -> operations per second

    def least_us(self, bytes: int, flops: int, precision: str) -> float:
        """Returns the least time in microseconds that the device needs for this many bytes and operations."""
        return 1e6 * max(bytes / self.bandwidth, flops / self._peak(precision))

    def limited_by(self, bytes: int, flops: int, precision: str) -> str:
        """Returns what limits work of this many bytes and operations: "memory" or "arithmetic"."""
        return "memory" if bytes / self.bandwidth >= flops / self._peak(precision) else "arithmetic"

    def _peak(self, precision: str) -> float:
        return self.flops.get(precision, self.flops["f32"])


def measure(device: int, precisions: Iterable[str]) -> Roofline:
    with torch.no_grad(), torch_ocl.device(device):
        return Roofline(
            _C.measure_peaks(device)[0], {p: _product(_DTYPES[p]) for p in dict.fromkeys(["f32", *precisions])}
        )


def _product(dtype: torch.dtype) -> float:
    rate = 0.0
    for size in _PRODUCT_SIZES:
        a, b = (torch.randn(size, size, device="ocl").to(dtype) for _ in range(2))
        time_us = _best_us(partial(torch.mm, a, b))
        rate = 2 * size**3 / time_us * 1e6
        if time_us >= _LEAST_US:
            break
    return rate


def _best_us(work: Callable[[], object]) -> float:
    """Returns the device time of all kernels of `work`, in the best of some rounds after a first one."""
    work()
    times = []
    for _ in range(_ROUNDS):
        with record(timing=True) as launches:
            work()
        times.append(sum(launch.time_us for launch in launches))
    if min(times) <= 0:
        raise InternalError("the device's limits cannot be measured: its driver gives no times of kernels")
    return min(times)
