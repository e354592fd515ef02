# torch_ocl_compile/device/torch_ocl.py: the module torch.ocl: devices, streams, random state, records of launches.
"""Functions have the names and meanings of torch.cuda's. A device argument is an index, "ocl:1", a torch.device, or
None for the current device. Functions that a model may call under Dynamo are in current.py. Functions about memory
are in memory.py."""

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
from torch_ocl_compile.device.cuda_exchange import from_cuda as from_cuda
from torch_ocl_compile.device.cuda_exchange import shared_with_cuda as shared_with_cuda
from torch_ocl_compile.device.cuda_exchange import to_cuda as to_cuda
from torch_ocl_compile.device.current import DeviceLike as DeviceLike
from torch_ocl_compile.device.current import _index
from torch_ocl_compile.device.current import current_device as current_device
from torch_ocl_compile.device.current import current_stream as current_stream
from torch_ocl_compile.device.current import device as device
from torch_ocl_compile.device.current import device_of as device_of
from torch_ocl_compile.device.current import set_device as set_device
from torch_ocl_compile.device.current import synchronize as synchronize
from torch_ocl_compile.device.memory import *  # noqa: F403
from torch_ocl_compile.device.profile import Profile as Profile
from torch_ocl_compile.device.profile import ProfileRow as ProfileRow
from torch_ocl_compile.device.profile import profile as profile
from torch_ocl_compile.device.record import LaunchRecord as LaunchRecord
from torch_ocl_compile.device.record import record as record
from torch_ocl_compile.device.runtimes import closed_gpus as _closed_gpus

if TYPE_CHECKING:
    from torch_ocl_compile.compile.times import CompileTimes

AcceleratorError = torch.AcceleratorError
Event = torch.Event
OutOfMemoryError = torch.OutOfMemoryError
Stream = torch.Stream


# Devices


def is_available() -> bool:
    """True if there is at least one OpenCL device."""
    return _C.device_count() > 0


def device_count() -> int:
    """Returns the number of devices of all platforms. 0, without an error, if OpenCL is missing."""
    return _C.device_count()


def device_problems() -> list[str]:
    """Returns the errors that occurred while platforms and devices were listed, one line each, and which runtimes or GPUs of the
    system cannot be used."""
    return [*_C.device_problems(), *_closed_gpus()]


def is_initialized() -> bool:
    """True if a device has been used."""
    return _C.devices_ready()


def init() -> None:
    """Lists the devices. ConfigError with the reason if there is none."""
    _C.require_device(-1)


def _lazy_init() -> None:
    init()


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device. Sizes are in bytes."""

    index: int
    name: str
    platform_name: str
    driver: str
    profile: str  # The device profile, "" if there is none. `driver` contains it too.
    is_cpu: bool
    total_memory: int
    max_alloc_bytes: int
    local_bytes: int
    multi_processor_count: int  # Number of compute units.
    max_group_size: int  # Largest number of work-items in a work-group.
    item_registers: (
        int  # GPUs: registers of 32 bits that a work-item may use; an estimate where the runtime doesn't tell.
    )
    unified_memory: bool
    has_fp64: bool
    # The device has warpgroup tensor cores that inline instructions can use.
    has_wgmma: bool
    # Kernels for warp tensor cores may be used.
    has_mma: bool
    # The matrix instructions of a subgroup that kernels may use, such as "dpas8", "wmma11" or "mfma4"; "" if there are none.
    matrix_instructions: str
    # Why the device's runtime may give wrong results; "" if nothing speaks against it.
    known_fault: str
    # Why the device has its place among the others, as a sentence.
    order: str


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Returns the properties of a device. Creates its context if needed."""
    return DeviceProperties(**_C.device_properties(_index(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """Returns the device's name, as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> dict[str, Any]:
    """Returns the dtypes for which the device has kernels. Tensors of other dtypes can be stored; their ops run on the CPU."""
    return torch.accelerator.get_device_capability(_index(device))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Returns True if copies from one device to the other do not go through the host: both are GPUs that CUDA can use, and
    CUDA says that they reach each other's memory."""
    return _C.can_access_peer(_index(device), _index(peer_device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Returns the dtypes that torch.autocast('ocl') supports."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns `including_emulation`: bfloat16 is stored in 16 bits and computed in float32, which counts as emulation."""
    return including_emulation


def is_tf32_supported(device: DeviceLike = None) -> bool:
    """True if fp32 products may run on tensor cores, when torch.set_float32_matmul_precision("high") allows it."""
    properties = get_device_properties(device)
    return properties.has_mma or properties.has_wgmma


def is_current_stream_capturing() -> bool:
    """Always False: launches cannot be captured as graphs. A compiled function enqueues its kernels in one call anyway."""
    return False


def device_memory_used(device: DeviceLike = None) -> int:
    """Returns the bytes of the device that this and other processes use, as far as the device or its driver tells."""
    free, total = memory.mem_get_info(device)
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


# Streams: each is a queue of the device. The default stream is stream 0.


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """Returns the stream that is used unless another is chosen."""
    return torch.Stream(
        stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value
    )


def set_stream(stream: torch.Stream) -> None:
    """Makes a stream this thread's current one, and its device the current device."""
    torch.accelerator.set_stream(stream)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """`with torch.ocl.stream(s):` enqueues the block's work on `s`."""
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


# Random numbers: each device has a Philox generator, whose state is (seed, offset).


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices, also of those not yet used."""
    _C.seed_default_generators(int(seed) & 0xFFFF_FFFF_FFFF_FFFF)


def seed() -> int:
    """Gives the current device a new random seed. Returns it."""
    return _generator(None).seed()


def seed_all() -> int:
    """Gives all devices the same new random seed. Returns it."""
    fresh = _generator(None).seed()
    manual_seed_all(fresh)
    return fresh


def initial_seed() -> int:
    """Returns the seed of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "ocl") -> torch.Tensor:
    """Returns the state of a device's generator: seed and offset as 16 bytes on the CPU."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Returns the states of all devices' generators."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "ocl") -> None:
    """Restores a state from get_rng_state."""
    _generator(device).set_state(new_state.cpu().contiguous())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores the states from get_rng_state_all."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _generator(device: DeviceLike) -> torch.Generator:
    return _C.default_generator(_index(device))


# Records and counts


def fallback_counts() -> dict[str, int]:
    """Returns op -> how often it ran on the CPU, because the device has no kernel for it."""
    return _C.fallback_counts()


def reset_fallback_counts() -> None:
    """Resets the counts. Each op warns once more."""
    _C.reset_fallback_counts()


def compile_times() -> list[CompileTimes]:
    """Returns how long each graph took that torch.compile(backend="ocl") has compiled or loaded in this process, in
    seconds and in the order in which the graphs were ready: CompileTimes(graph="forward_0", loaded=False, tracing=0.31,
    lowering=0.1, ..., building=1.2). The latest 1000 are kept.
    """
    from torch_ocl_compile.compile import times

    return times.latest()


class _DeviceModule(ModuleType):
    @property
    def _initialized(self) -> bool:
        """torch.utils.checkpoint saves the random state of devices for which this is true."""
        return is_initialized()

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return tuple(_C.default_generator(index) for index in range(_C.device_count()))


sys.modules[__name__].__class__ = _DeviceModule
