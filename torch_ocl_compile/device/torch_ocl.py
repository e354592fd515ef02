# torch_ocl_compile/device/torch_ocl.py: the module torch.ocl: devices, streams, random state, what ran.
"""Functions have the names and meanings of torch.cuda's. A device argument is an index, "ocl:1", a torch.device, or
None for the current device. What Dynamo may meet in a model is in current.py, memory in memory.py."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.device import memory as memory
from torch_ocl_compile.device.current import DeviceLike as DeviceLike
from torch_ocl_compile.device.current import _index
from torch_ocl_compile.device.current import current_device as current_device
from torch_ocl_compile.device.current import current_stream as current_stream
from torch_ocl_compile.device.current import device as device
from torch_ocl_compile.device.current import device_of as device_of
from torch_ocl_compile.device.current import set_device as set_device
from torch_ocl_compile.device.current import synchronize as synchronize
from torch_ocl_compile.device.memory import empty_cache as empty_cache
from torch_ocl_compile.device.memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from torch_ocl_compile.device.memory import host_memory_stats as host_memory_stats
from torch_ocl_compile.device.memory import host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict
from torch_ocl_compile.device.memory import max_memory_allocated as max_memory_allocated
from torch_ocl_compile.device.memory import max_memory_reserved as max_memory_reserved
from torch_ocl_compile.device.memory import mem_get_info as mem_get_info
from torch_ocl_compile.device.memory import memory_allocated as memory_allocated
from torch_ocl_compile.device.memory import memory_reserved as memory_reserved
from torch_ocl_compile.device.memory import memory_snapshot as memory_snapshot
from torch_ocl_compile.device.memory import memory_stats as memory_stats
from torch_ocl_compile.device.memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from torch_ocl_compile.device.memory import memory_summary as memory_summary
from torch_ocl_compile.device.memory import reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats
from torch_ocl_compile.device.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from torch_ocl_compile.device.memory import reset_peak_host_memory_stats as reset_peak_host_memory_stats
from torch_ocl_compile.device.memory import reset_peak_memory_stats as reset_peak_memory_stats
from torch_ocl_compile.device.memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from torch_ocl_compile.device.record import LaunchRecord as LaunchRecord
from torch_ocl_compile.device.record import record as record

if TYPE_CHECKING:
    from torch_ocl_compile.compile.times import CompileTimes

AcceleratorError = torch.AcceleratorError
Event = torch.Event
OutOfMemoryError = torch.OutOfMemoryError
Stream = torch.Stream


# Devices


def is_available() -> bool:
    """Whether there is at least one OpenCL device."""
    return _C.device_count() > 0


def device_count() -> int:
    """Number of devices over all platforms; 0, and no error, where OpenCL is missing."""
    return _C.device_count()


def device_problems() -> list[str]:
    """What went wrong while platforms and devices were listed, a line each."""
    return _C.device_problems()


def is_initialized() -> bool:
    """Whether a device has been used."""
    return _C.devices_ready()


def init() -> None:
    """Lists the devices. Raises ConfigError that says why if there is none."""
    _C.require_device(-1)


def _lazy_init() -> None:
    init()


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is and can do. Sizes in bytes."""

    index: int
    name: str
    platform_name: str
    driver: str
    is_cpu: bool
    total_memory: int
    max_alloc_bytes: int
    local_bytes: int
    multi_processor_count: int  # compute units
    max_group_size: int  # work-items
    subgroup_size: int  # 0: no subgroup operations
    unified_memory: bool
    has_fp64: bool
    has_fp16_arithmetic: bool
    has_wgmma: bool  # warpgroup tensor cores, used through inline instructions
    has_mma: bool  # kernels for warp tensor cores may be used


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """What the device is and can do. Creates its context if need be."""
    return DeviceProperties(**_C.device_properties(_index(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """The device's name as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """The dtypes the device can hold."""
    return torch.accelerator.get_device_capability(_index(device))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: copies between devices go through the host."""
    return _index(device) == _index(peer_device)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """For torch.autocast('ocl')."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """bfloat16 is stored as such and computed in float32."""
    return including_emulation


def is_tf32_supported(device: DeviceLike = None) -> bool:
    """Whether fp32 products may run on tensor cores, as torch.set_float32_matmul_precision("high") allows."""
    properties = get_device_properties(device)
    return properties.has_mma or properties.has_wgmma


def is_current_stream_capturing() -> bool:
    """False: there are no graphs of captured launches. A compiled function enqueues its kernels in one call anyway."""
    return False


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes of the device that this process and others hold, as far as the device or its driver tells."""
    free, total = mem_get_info(device)
    return total - free


def _exchange_device(index: int) -> int:
    old = torch.accelerator.current_device_index()
    if index >= 0:
        torch.accelerator.set_device_index(index)
    return old


def _maybe_exchange_device(index: int) -> int:
    return _exchange_device(index)


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


# Streams: each is a queue of the device; the default one is stream 0.


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream work goes to unless another was chosen."""
    return torch.Stream(
        stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value
    )


def set_stream(stream: torch.Stream) -> None:
    """Sends this thread's work to a stream, and makes its device current."""
    torch.accelerator.set_stream(stream)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """`with torch.ocl.stream(s):` sends the block's work to `s`."""
    if stream is None:
        yield
        return
    device_before = torch.accelerator.current_device_index()
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
        torch.accelerator.set_device_index(device_before)


# Random numbers: a generator per device, Philox with (seed, offset) as its state


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices; those not yet used start with it."""
    _C.seed_default_generators(int(seed) & 0xFFFF_FFFF_FFFF_FFFF)


def seed() -> int:
    """Gives the current device a fresh seed."""
    return _generator(None).seed()


def seed_all() -> int:
    """Gives all devices the same fresh seed."""
    fresh = _generator(None).seed()
    manual_seed_all(fresh)
    return fresh


def initial_seed() -> int:
    """The current device's seed."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "ocl") -> torch.Tensor:
    """16 bytes on the CPU: seed and offset."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "ocl") -> None:
    """What get_rng_state gave."""
    _generator(device).set_state(new_state.cpu().contiguous())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """What get_rng_state_all gave."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _generator(device: DeviceLike) -> torch.Generator:
    return _C.default_generator(_index(device))


# What ran


def fallback_counts() -> dict[str, int]:
    """How often each op ran on the CPU because the device has no eager kernel for it."""
    return _C.fallback_counts()


def reset_fallback_counts() -> None:
    """Counts from zero; each op warns once more."""
    _C.reset_fallback_counts()


def compile_times() -> list[CompileTimes]:
    """Seconds of each graph that torch.compile(backend="ocl") has compiled or loaded in this process, in the order in which they were
    ready: CompileTimes(graph="forward_0", loaded=False, tracing=0.31, lowering=0.1, ..., building=1.2). The latest 1000 are kept."""
    from torch_ocl_compile.compile import times

    return times.latest()


class _DeviceModule(ModuleType):
    @property
    def _initialized(self) -> bool:
        """torch.utils.checkpoint saves the random state of devices that are."""
        return is_initialized()

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return tuple(_C.default_generator(index) for index in range(_C.device_count()))


sys.modules[__name__].__class__ = _DeviceModule
