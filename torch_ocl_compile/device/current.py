# torch_ocl_compile/device/current.py: current device, current stream and waiting: the part of torch.ocl that Dynamo may trace.
"""These functions use only torch.accelerator, which Dynamo can trace. Dynamo skips the rest of the package."""

from __future__ import annotations

import torch

DeviceLike = int | str | torch.device | None


def _index(device: DeviceLike) -> int:
    if device is None:
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return device
    where = torch.device(device)
    if where.type != "ocl":
        from torch_ocl_compile.errors import ConfigError

        raise ConfigError(f"expected an ocl device, got {where}.\n  do: pass an index, 'ocl' or 'ocl:0'")
    return torch.accelerator.current_device_index() if where.index is None else where.index


def current_device() -> int:
    """Returns the index of the thread's current device."""
    return torch.accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Makes a device the thread's current one. ConfigError if it does not exist."""
    torch.accelerator.set_device_index(_index(device))


def device(device: DeviceLike) -> torch.accelerator.device_index:
    """`with torch.ocl.device(1):` makes ocl:1 the current device for the block."""
    return torch.accelerator.device_index(None if device is None else _index(device))


def device_of(obj: torch.Tensor) -> torch.accelerator.device_index:
    """`with torch.ocl.device_of(tensor):` makes the tensor's device current, if it is an ocl device."""
    return torch.accelerator.device_index(obj.device.index if obj.device.type == "ocl" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Waits for all streams of a device. Raises the errors of asynchronous work."""
    if device is None:
        torch.accelerator.synchronize()
    else:
        torch.accelerator.synchronize(_index(device))


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """Returns the current stream of this thread on a device."""
    return torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(_index(device))
