# torch_ocl_compile/device/distributed.py: the process group "ocl_gloo", which runs collectives of ocl tensors on the host by gloo.
"""Call `register()`, then `torch.distributed.init_process_group("ocl_gloo")`. Tensors are copied to the host, gloo runs
the collective, and results are copied back before the call returns. So a collective is done when its call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

BACKEND = "ocl_gloo"


def _done(result: Any) -> Any:
    from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
    from torch.futures import Future

    future: Any = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _staged(name: str, results: int) -> Callable[..., Any]:
    """A collective that calls `name` of gloo with host copies of its tensor arguments. It copies the tensors of
    argument number `results` back."""

    def run(self: StagedGroup, *args: Any) -> Any:
        host = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), args)
        getattr(self.gloo, name)(*host).wait()
        ours, theirs = (torch.utils._pytree.tree_leaves(a[results]) for a in (args, host))
        with torch.no_grad():
            for mine, computed in zip(ours, theirs, strict=True):
                if mine.device.type != "cpu" or mine.data_ptr() != computed.data_ptr():
                    mine.copy_(computed)
        return _done(args[results])

    run.__name__ = name
    return run


class StagedGroup(dist.ProcessGroup):
    """Has every collective that DistributedDataParallel uses, and other common ones."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.gloo = gloo

    def getBackendName(self) -> str:
        return BACKEND

    allreduce = _staged("allreduce", 0)
    allreduce_coalesced = _staged("allreduce_coalesced", 0)
    broadcast = _staged("broadcast", 0)
    allgather = _staged("allgather", 0)
    _allgather_base = _staged("_allgather_base", 0)
    reduce = _staged("reduce", 0)
    scatter = _staged("scatter", 0)
    gather = _staged("gather", 0)
    reduce_scatter = _staged("reduce_scatter", 0)
    alltoall_base = _staged("alltoall_base", 0)
    send = _staged("send", 0)
    recv = _staged("recv", 0)

    def barrier(self, options: Any = None) -> Any:
        self.gloo.barrier().wait()
        return _done([])


def _create(store: Any, rank: int, size: int, timeout: Any) -> StagedGroup:
    from torch._C._distributed_c10d import ProcessGroupGloo

    return StagedGroup(ProcessGroupGloo(store, rank, size, timeout), rank, size)


def register() -> None:
    """Registers "ocl_gloo" with torch.distributed. A second call does nothing."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, devices=["cpu", torch._C._get_privateuse1_backend_name()])
