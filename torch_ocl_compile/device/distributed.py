# torch_ocl_compile/device/distributed.py: registers the process group `ocl` with torch.distributed.
"""`init_process_group()` chooses the group `ocl` for ocl tensors, and gloo for CPU tensors. The group itself is in
csrc/distributed. This module is imported after torch.distributed, and does not import it otherwise."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torch_ocl_compile import _C, config
from torch_ocl_compile.device import restarts
from torch_ocl_compile.errors import OclError

BACKEND = "ocl"

_numbers = itertools.count()
_transports: dict[str, str] = {}  # of the latest group of each name
_logger = logging.getLogger(__name__)


def register_with(module: ModuleType) -> None:
    """Registers the backends with `module`, torch.distributed.distributed_c10d."""
    backend: Any = module.Backend
    backend.register_backend(BACKEND, _create, extended_api=True, devices=["ocl"])
    original = module._new_process_group_helper

    @functools.wraps(original)
    def _new_process_group_helper(
        group_size: int, group_rank: int, global_ranks: list[int], backend: Any, store: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Gives a group without a backend name both gloo and ocl. torch would make a group for the accelerator alone,
        and look for gloo as its default. Gives the default group of restarted ranks new keys in the store.
        """
        if backend == module.Backend.UNDEFINED and torch._C._get_accelerator().type == "ocl":
            backend = module.Backend(f"cpu:gloo,ocl:{BACKEND}")
        if not global_ranks and BACKEND in str(backend) and restarts.needed():
            timeout = kwargs.get("timeout") or module.default_pg_timeout
            store = module.PrefixStore(restarts.agree(store, group_rank, group_size, timeout), store)
        made = original(group_size, group_rank, global_ranks, backend, store, *args, **kwargs)
        group = made[0]
        if isinstance(group, module.ProcessGroup) and "ocl" in {device.type for device in group._device_types}:
            group._set_default_backend(module.ProcessGroup.BackendType.CUSTOM)
        return made

    module._new_process_group_helper = _new_process_group_helper  # type: ignore[attr-defined]
    _replace(module, "monitored_barrier", _monitored_barrier(module))


def _replace(module: ModuleType, name: str, function: Any) -> None:
    """Replaces a function of `module` that torch.distributed may have imported already."""
    plain = getattr(module, name)
    for place in (module, sys.modules.get("torch.distributed")):
        if getattr(place, name, None) is plain:
            setattr(place, name, function)


def _monitored_barrier(module: Any) -> Any:
    """Returns torch's function for groups that have ocl too. torch itself refuses all groups but those of gloo."""
    plain = module.monitored_barrier

    @functools.wraps(plain)
    def monitored_barrier(
        group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None:
        outside = module._rank_not_in_group(group)
        used = module._get_default_group() if group is None else group
        if outside or "ocl" not in {device.type for device in used._device_types}:
            plain(group, timeout, wait_all_ranks)
            return
        ours = used._get_backend(torch.device("ocl"))
        if timeout is None:
            ours.monitored_barrier(wait_all_ranks=wait_all_ranks)
            return
        limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        module._check_valid_timeout(limit)
        ours.monitored_barrier(limit, wait_all_ranks)

    return monitored_barrier


def _create(options: Any, _: Any) -> Any:
    """Makes the backend for one group. `options` is a DistributedBackendOptions."""
    from torch._C import _distributed_c10d as c10d

    made: Any = c10d
    timeout: timedelta = options.timeout
    host = made.ProcessGroup(options.store, options.group_rank, options.group_size)
    gloo = made.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=timeout)
    host._register_backend(torch.device("cpu"), made.ProcessGroup.BackendType.GLOO, gloo)
    name = f"torch_ocl_compile {next(_numbers)}"
    made._register_process_group(name, host)
    try:
        milliseconds = round(timeout / timedelta(milliseconds=1))
        _C.distributed.add_backend(
            name,
            str(options.group_id),
            list(options.global_ranks_in_group),
            milliseconds,
            nccl=str(config.get("nccl")),
            nccl_files=nccl_files(),
        )
        _transports[str(options.group_id)] = _C.distributed.transport(name)
        _say_transport(_transports[str(options.group_id)], options)
    finally:
        made._unregister_process_group(name)
    return host._get_backend(torch.device("ocl"))


def _say_transport(transport: str, options: Any) -> None:
    """Says on the group's first rank how it communicates, if TORCH_DISTRIBUTED_DEBUG asks for such lines."""
    if options.group_rank == 0:
        wanted = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() in ("INFO", "DETAIL")
        level = logging.WARNING if wanted else logging.INFO
        _logger.log(
            level,
            "the process group %s has %d ranks and uses %s for ocl tensors",
            options.group_id,
            options.group_size,
            transport,
        )


def group_uses_nccl(group: Any) -> bool:
    """True if ocl tensors of a torch.distributed.ProcessGroup travel by NCCL."""
    return _transports.get(group.group_name, "").startswith("NCCL")


def transport_of(index: int) -> str:
    """Returns what carries the collectives of tensors on a device, if the other ranks can use it too."""
    if config.get("nccl") == "0":
        return "gloo (not NCCL: the option nccl is 0)"
    try:
        return f"NCCL {_C.distributed.nccl_ability(nccl_files(), index)}"
    except OclError as error:
        return f"gloo (not NCCL: {str(error).splitlines()[0]})"


def nccl_files() -> list[str]:
    """Returns where NCCL may be: where the system looks for libraries, and in the package that pip installs next to torch."""
    packaged = Path(torch.__file__).parents[1] / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    return ["libnccl.so.2", str(packaged)]
