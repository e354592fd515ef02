# torch_ocl_compile/device/distributed_data_parallel.py: what DistributedDataParallel does otherwise on ocl devices.
"""Two functions of torch cost more than they gain here, and are replaced for ocl tensors.

- Dynamo's DDPOptimizer cuts a graph where a bucket of gradients ends, so that a bucket is reduced while the rest of the backward
  computes. Each cut costs fusions. NCCL's kernels and those of OpenCL take turns on a GPU, and a group of one rank does not
  communicate. There a cut gains nothing, so the graph stays whole.
- `_broadcast_coalesced`, which sends rank 0's buffers before each forward, copies each tensor by itself on each rank."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile.device.distributed import group_uses_nccl

Tensor = torch.Tensor
# Element size in bytes -> a type that copies such elements as they are.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def keep_graphs_whole(module: ModuleType) -> None:
    """Changes DDPOptimizer of `module`, torch._dynamo.backends.distributed."""
    optimizer: Any = module.__dict__["DDPOptimizer"]
    compile_in_parts = optimizer.compile_fn

    @functools.wraps(compile_in_parts)
    def compile_fn(self: Any, gm: torch.fx.GraphModule, example_inputs: list[Any], **settings: Any) -> Any:
        if _communication_overlaps(example_inputs):
            return compile_in_parts(self, gm, example_inputs, **settings)
        return self.backend_compile_fn(gm, example_inputs, **settings)

    optimizer.compile_fn = compile_fn


def _communication_overlaps(inputs: list[Any]) -> bool:
    """True if the module that is being compiled communicates while a device computes. True for other devices than ocl."""
    from torch.nn.parallel import DistributedDataParallel

    module: Any = DistributedDataParallel._get_active_ddp_module()
    if module is None or not any(_is_ours(x) for x in inputs):
        return True
    group = module.process_group
    return group.size() > 1 and not group_uses_nccl(group)


def broadcast_together(module: ModuleType) -> None:
    """Replaces _broadcast_coalesced of torch.distributed, to which `module` belongs."""
    names = sys.modules["torch.distributed"].__dict__
    plain: Any = names["_broadcast_coalesced"]

    @functools.wraps(plain)
    def broadcast_coalesced(process_group: Any, tensors: Sequence[Tensor], buffer_size: int, src: int = 0) -> None:
        if not tensors or not all(_is_ours(x) and x.layout == torch.strided for x in tensors):
            plain(process_group, tensors, buffer_size, src)
        elif process_group.size() > 1:
            for part in _parts(tensors, buffer_size):
                _broadcast(process_group, part, src)

    names["_broadcast_coalesced"] = broadcast_coalesced


def _parts(tensors: Sequence[Tensor], most_bytes: int) -> Iterator[list[Tensor]]:
    """Yields the tensors in lists of at most `most_bytes`. A larger tensor is a list of its own."""
    part: list[Tensor] = []
    held = 0
    for tensor in tensors:
        if part and held + tensor.nbytes > most_bytes:
            yield part
            part, held = [], 0
        part.append(tensor)
        held += tensor.nbytes
    if part:
        yield part


class Together:
    """One buffer for the elements of many tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        of_size: dict[int, list[Tensor]] = defaultdict(list)
        for tensor in tensors:
            of_size[tensor.element_size()].append(tensor)
        self.whole = torch.empty(sum(t.nbytes for t in tensors), dtype=torch.uint8, device=tensors[0].device)
        self.copies: list[tuple[list[Tensor], list[Tensor]]] = []  # parts of the buffer, and the tensors
        at = 0
        for size in sorted(of_size, reverse=True):  # So that each element is aligned.
            alike = of_size[size]
            end = at + sum(t.nbytes for t in alike)
            bits = self.whole[at:end].view(_BITS[size])
            self.copies.append((list(bits.split([t.numel() for t in alike])), alike))
            at = end

    def gather(self) -> None:
        """Copies the tensors into the buffer."""
        for parts, alike in self.copies:
            torch._foreach_copy_(parts, [t.reshape(-1).view(part.dtype) for t, part in zip(alike, parts, strict=True)])

    def scatter(self) -> None:
        """Copies the buffer into the tensors."""
        for parts, alike in self.copies:
            torch._foreach_copy_(alike, [p.view(t.dtype).view(t.shape) for t, p in zip(alike, parts, strict=True)])


@torch.no_grad()
def _broadcast(group: Any, tensors: list[Tensor], src: int) -> None:
    """Sends the tensors of rank `src` as one buffer."""
    buffer = Together(tensors)
    if group.rank() == src:
        buffer.gather()
    group.broadcast(buffer.whole, src).wait()
    if group.rank() != src:
        buffer.scatter()


def _is_ours(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "ocl"
