# torch_ocl_compile/device/data_parallel.py: torch.nn.parallel (DataParallel, scatter, gather, replicate) on ocl devices.
"""torch implements these functions in C++ for CUDA only. Each function here serves calls for ocl devices, and passes other
calls on to torch. Copies between devices are asynchronous, so no function waits for a result."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._utils import _get_device_index, _handle_complex

from torch_ocl_compile.device import torch_ocl

Tensor = torch.Tensor


def register_with(module: ModuleType) -> None:
    """Replaces the functions of `module`, torch.nn.parallel.comm."""
    for function in (broadcast, broadcast_coalesced, reduce_add, scatter, gather):
        name = function.__name__
        setattr(module, name, _either(function, getattr(module, name)))


def register_parallel_apply(module: Any) -> None:
    """Lets `module`, torch.nn.parallel.parallel_apply, accept ocl devices. Its own function knows CUDA's only."""
    module._get_device_index = _get_device_index


def broadcast(tensor: Tensor, devices: Any = None, *, out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """Returns a copy for each device. On the tensor's own device, this is the tensor."""
    tensor = _handle_complex(tensor)
    if out is None:
        return tuple(tensor.to(_device(d), non_blocking=True) for d in devices)
    for copy in out:
        if copy is not tensor:
            copy.copy_(tensor, non_blocking=True)
    return tuple(out)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Any, buffer_size: int = 0) -> list[list[Tensor]]:
    """Returns, for each device, a list of copies of all tensors."""
    tensors = [_handle_complex(tensor) for tensor in tensors]
    return [[tensor.to(_device(d), non_blocking=True) for tensor in tensors] for d in devices]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """Returns the sum. It begins with the input on the destination, then adds the others in their order."""
    if destination is None:
        destination = torch.accelerator.current_device_index()
    device = _device(destination)
    roots = [i for i, x in enumerate(inputs) if x.device == device]
    for i, x in enumerate(inputs):
        if x.shape != inputs[0].shape:
            raise ValueError(f"input {i} has the sizes {list(x.shape)}, but input 0 has {list(inputs[0].shape)}")
    if not roots:
        raise RuntimeError(f"reduce_add needs an input on {device}, where the result will be")
    if len(inputs) == 1:
        return inputs[0]
    first, *others = [inputs[roots[-1]], *(x for i, x in enumerate(inputs) if i != roots[-1])]
    result = first + others[0].to(device, non_blocking=True)
    for other in others[1:]:
        result.add_(other.to(device, non_blocking=True))
    return result


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Iterable[torch.Stream | None] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Cuts the tensor into a chunk for each device. A device's copy runs on its stream of `streams`, if there is one."""
    tensor = _handle_complex(tensor)
    if out is not None:
        _refuse(devices=devices, chunk_sizes=chunk_sizes)
        chunk_sizes = [x.size(dim) for x in out]
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    made = []
    for i, (chunk, stream) in enumerate(zip(chunks, itertools.repeat(None) if streams is None else streams)):  # noqa: B905
        with torch_ocl.stream(stream):
            if out is None:
                made.append(chunk.to(_device(devices[i]), non_blocking=True))
            else:
                made.append(out[i].copy_(chunk, non_blocking=True))
    return tuple(made)


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Concatenates tensors of several devices on the destination, which may be the CPU."""
    tensors = [_handle_complex(tensor) for tensor in tensors]
    if out is not None:
        _refuse(destination=destination)
        for part, tensor in zip(out.split([x.size(dim) for x in tensors], dim), tensors, strict=True):
            part.copy_(tensor)
        return out
    index = _get_device_index(destination, allow_cpu=True, optional=True)
    device = torch.device("cpu") if index == -1 else _device(index)
    return torch.cat([tensor.to(device, non_blocking=device.type != "cpu") for tensor in tensors], dim)


def _either(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls `ours` if the first tensor is on an ocl device, or is on the CPU and ocl is the
    accelerator.
    """

    @functools.wraps(theirs)
    def function(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
        device = first.device.type if isinstance(first, Tensor) and not first.is_sparse else ""
        accelerator = torch._C._get_accelerator().type
        is_ours = device == "ocl" or (device == "cpu" and accelerator == "ocl")
        return (ours if is_ours else theirs)(tensors, *args, **kwargs)

    return function


def _device(device: Any) -> torch.device:
    return torch.device("ocl", _get_device_index(device, optional=True))


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise RuntimeError(f"out= already says where the result goes; leave out {name}={value}")
