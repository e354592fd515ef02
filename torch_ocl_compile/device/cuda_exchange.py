# torch_ocl_compile/device/cuda_exchange.py: torch.ocl.to_cuda, from_cuda and shared_with_cuda: one memory, two kinds of tensors.
"""On an NVIDIA GPU, an ocl tensor and a CUDA tensor can have the same memory. CUDA creates this memory, and OpenCL imports
it. Other memory of ocl has no CUDA address, and other memory of CUDA cannot be imported.

OpenCL and CUDA do not know of each other's work. `to_cuda` and `from_cuda` wait for the work that came before them. After
that, the program calls `torch.ocl.synchronize()` before CUDA reads what ocl wrote, and `torch.cuda.synchronize()` before
ocl reads what CUDA wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.errors import ConfigError

__all__ = ["from_cuda", "shared_with_cuda", "to_cuda"]


@contextmanager
def shared_with_cuda() -> Iterator[None]:
    """`with torch.ocl.shared_with_cuda():` puts the new ocl tensors of this thread into memory that CUDA can use.

    `to_cuda` copies no such tensor. The first tensor takes 32 MiB of the device, from which later ones are cut.
    UnsupportedError from the first allocation on a device that is no NVIDIA GPU."""
    before = _C.share_new_tensors_with_cuda(True)
    try:
        yield
    finally:
        _C.share_new_tensors_with_cuda(before)


def to_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a CUDA tensor with the values of an ocl tensor, on the same GPU.

    The result has the memory of `tensor` if that was allocated in `shared_with_cuda()`, or came from `from_cuda`. Any
    other tensor is copied once, into shared memory. The host waits for the current ocl stream. The last CUDA tensor of
    the memory waits for CUDA when it is freed.
    """
    _require_cuda()
    _check("to_cuda", tensor, "ocl")
    if not _C.is_shared_with_cuda(tensor):
        with shared_with_cuda():
            tensor = tensor.clone()
    return torch.utils.dlpack.from_dlpack(_C.cuda_capsule(tensor))


def from_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """Returns an ocl tensor with the values of a CUDA tensor, on the same GPU.

    The result has the memory of `tensor` if that came from `to_cuda`. The memory of any other CUDA tensor cannot be
    imported, so it is copied once, on the device. The host waits for the current CUDA stream.
    """
    _require_cuda()
    _check("from_cuda", tensor, "cuda")
    stream = torch.cuda.current_stream(tensor.device)
    stream.synchronize()
    index = _C.ocl_device_of_cuda(tensor.device.index)
    view = _C.ocl_view_of_cuda(index, tensor.data_ptr(), tensor)
    if view is not None:
        return view
    with shared_with_cuda():
        copy = torch.empty_like(tensor, device=torch.device("ocl", index))
    to_cuda(copy).copy_(tensor)
    stream.synchronize()
    return copy


def _require_cuda() -> None:
    if not torch.backends.cuda.is_built():
        raise ConfigError(
            f"torch {torch.__version__} was built without CUDA, so it has no CUDA tensors.\n"
            "  do: install a build of torch for CUDA"
        )


def _check(title: str, tensor: torch.Tensor, device: str) -> None:
    problem = ""
    if tensor.device.type != device:
        problem = f"expected a tensor on {device}, got one on {tensor.device}"
    elif tensor.layout != torch.strided:
        problem = f"expected a strided tensor, got {tensor.layout}.\n  do: call .to_dense() first"
    elif tensor.requires_grad:
        problem = "gradients do not pass between ocl and CUDA.\n  do: call .detach() first"
    elif tensor.is_conj() or tensor.is_neg():
        problem = "the tensor is a lazy conjugate or negative.\n  do: call .resolve_conj().resolve_neg() first"
    if problem:
        raise ConfigError(f"{title}: {problem}")
