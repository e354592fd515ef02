# torch_ocl_compile/_C/distributed.pyi: the process group of ocl devices (csrc/distributed).
from collections.abc import Sequence

def add_backend(
    registered_name: str,
    group: str,
    global_ranks: Sequence[int],
    timeout_ms: int,
    nccl: str,
    nccl_files: Sequence[str],
) -> None:
    """Adds the backend `ocl` to the group that torch knows as `registered_name`. The group has gloo for the CPU. `nccl`: the
    option of this name. NCCL is the first of `nccl_files` that can be opened."""

def uses_nccl(registered_name: str) -> bool:
    """True if the backend `ocl` of a group that torch knows by this name uses NCCL."""

def transport(registered_name: str) -> str:
    """Says what the backend `ocl` of a group communicates with, and why not with NCCL."""

def nccl_ability(files: Sequence[str], device: int) -> str:
    """Returns the version of NCCL that this process can use on a device. UnsupportedError says why it can use none."""

def end_groups() -> None:
    """Fails the collectives that still run, because the process ends."""

def set_host_mapping(on: bool) -> None:
    """If off, memory of CPU devices is copied to the host like that of other devices. Only tests use it."""

def refuse_threads(on: bool) -> None:
    """If on, process groups start no threads, as if the system had none left. Only tests use it."""
