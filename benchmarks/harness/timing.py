# benchmarks/harness/timing.py: the time of calls and the error of a result, as all programs that time something take them.
"""The processes of all sides read this file, so it does not import torch_ocl_compile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def wait(device: torch.device) -> None:
    """Waits for the work of a device."""
    if device.type != "cpu":
        # torch.accelerator knows one type of device, and with this package that is ocl.
        torch.get_device_module(device).synchronize(device)


def seconds_of(call: Callable[[], Any], device: torch.device, calls: int = 1) -> float:
    """Returns the mean time of a call in seconds. The last one ends with a wait for the device."""
    wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait(device)
    return (time.perf_counter() - start) / calls


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Returns the root mean square of the error, divided by that of the exact result."""
    error = got.cpu().to(exact.dtype) - exact
    return float(error.abs().square().mean().sqrt() / exact.abs().square().mean().sqrt())
