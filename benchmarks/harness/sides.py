# benchmarks/harness/sides.py: the sides of a comparison, one row per side: how each one runs.
"""Every side runs at its strongest. A row lists what differs between sides; `HEAP` and the limit of threads in process.py
are the same for all. A side with several memory formats or optimizers measures them and keeps the fastest.

This file imports neither torch nor torch_ocl_compile: the processes of all sides read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONTIGUOUS, CHANNELS_LAST = "contiguous", "channels_last"
EITHER = (CONTIGUOUS, CHANNELS_LAST)
# Arguments of torch.optim.Adam. `foreach` is compiled where the side compiles. `fused` is one kernel of PyTorch, so it is
# never compiled.
ADAM: dict[str, dict[str, bool]] = {"foreach": {"foreach": True}, "fused": {"fused": True}}
# By default glibc takes every large tensor from the system anew, and each page of it costs a page fault. With these
# variables the heap keeps its memory. MALLOC_MMAP_THRESHOLD_ does not do it: some versions of glibc accept at most 32 MiB.
HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_ARENA_MAX": "1"}

# What an operation may compute in: PyTorch's names of precisions of fp32 products, or a type.
PRECISIONS = {"highest": "fp32", "high": "TF32", "bf16": "bf16", "fp16": "fp16"}
# PyTorch's kernels of attention. A side that allows one of them forbids the others.
ATTENTION = ("flash", "mem_efficient", "cudnn", "math")

# Variables with PoCL's number of threads: up to version 5, since version 6.
POCL_THREADS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@dataclass(frozen=True)
class SideKind:
    """How a side runs.

    - `title`: in tables.
    - `backend`, `mode`: of torch.compile. Without a backend nothing is compiled.
    - `formats`: memory formats of images and filters in whole networks. `op_formats`: in single operations.
    - `optimizers`: names of ADAM.
    - `freezing`: in inference, the compiler may fold the parameters into the graph as constants.
    - `environment`: environment variables of the side's process.
    - `attention`: the only kernel of PyTorch that attention may use: "flash", "mem_efficient" or "cudnn". "": PyTorch chooses.
    """

    title: str
    backend: str | None = None
    mode: str | None = None
    formats: tuple[str, ...] = EITHER
    op_formats: tuple[str, ...] = EITHER
    optimizers: tuple[str, ...] = ("foreach", "fused")
    freezing: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    attention: str = ""


# torch has one accelerator per process: after `ocl` is registered, CUDA tensors have no backward.
_WITHOUT_OCL = {"TORCH_OCL_AUTOLOAD": "never"}


def _inductor(title: str, mode: str | None) -> SideKind:
    return SideKind(title, "inductor", mode, freezing=True, environment=_WITHOUT_OCL)


def _ocl(title: str, mode: str | None, tuned: bool) -> SideKind:
    # The compiler chooses the layouts inside a network. A single convolution gets the layout that it has in a network.
    return SideKind(
        title, "ocl", mode, (CONTIGUOUS,), (CHANNELS_LAST,), environment={"TORCH_OCL_TUNED": str(int(tuned))}
    )


# `ocl` follows the cost models alone, as on a device that nobody has tuned. `ocl-tuned` also uses measured choices: those
# that ship with the package, and those of the cache file.
SIDES: dict[str, SideKind] = {
    "eager": SideKind("eager", environment=_WITHOUT_OCL),
    "inductor": _inductor("Inductor", None),
    "inductor-max-autotune": _inductor("Inductor, max-autotune", "max-autotune"),
    "inductor-reduce-overhead": _inductor("Inductor, CUDA graphs", "reduce-overhead"),
    "ocl": _ocl("ocl", None, tuned=False),
    "ocl-tuned": _ocl("ocl, tuned", None, tuned=True),
    "ocl-max-autotune": _ocl("ocl, max-autotune", "max-autotune", tuned=True),
    "eager-flash": SideKind("eager, flash attention", environment=_WITHOUT_OCL, attention="flash"),
    "eager-efficient": SideKind(
        "eager, memory-efficient attention", environment=_WITHOUT_OCL, attention="mem_efficient"
    ),
    "eager-cudnn": SideKind("eager, cuDNN's attention", environment=_WITHOUT_OCL, attention="cudnn"),
}
DEFAULT_SIDES = ("eager", "inductor", "ocl")


def is_ours(side: str) -> bool:
    """True for the sides of this project."""
    return SIDES[side].backend == "ocl"
