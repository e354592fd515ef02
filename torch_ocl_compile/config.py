# torch_ocl_compile/config.py: every option and environment variable, with type, default and one line of help.
"""The registry of all options. They are set by `torch.compile(options={...})`, by `config.set(...)` or by the
environment.

The environment variable of an option is TORCH_OCL_ and the option's name in capitals: `TORCH_OCL_CACHE_DIR` for
`cache_dir`. `docs/options.md` contains `table()` and `kernel_table()`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.option import Option, unknown
from torch_ocl_compile.option import Value as Value  # for modules that may not import option

_OPTIONS: dict[str, Option] = {}
_VALUES: dict[str, Value] = {}
_FOLLOWERS: dict[str, Callable[[Any], None]] = {}
_configured: tuple[str, int, str, str] | None = None


def option(name: str, default: Value, help: str, **more: Any) -> None:
    """Defines an option of the default's type. `more`: other fields of Option. ConfigError if the name is already defined."""
    if name in _OPTIONS:
        raise ConfigError(f"option {name!r} is defined twice")
    _OPTIONS[name] = Option(name, type(default), default, help, **more)


def _profile_fault(value: str) -> str:
    """Returns why `value` names no profile, or ""."""
    if not value:
        return ""
    from torch_ocl_compile import _C

    names = [row["name"] for row in _C.profiles()]
    return "" if value in names else f"{value!r} is no device profile; there are {', '.join(names)}"


option(
    "devices",
    "",
    "Devices to use, in this order: indices, or parts of platform or device names, separated by commas. Empty: all devices.",
    scope="start",
    allowed="a list, separated by commas",
)
option(
    "library",
    "",
    "The OpenCL loader, or the driver that takes its place: the path of a library. Empty: libOpenCL.so.1, or the first that there is "
    "of other names that are usual.",
    scope="start",
    allowed="a path",
)
option(
    "profile",
    "",
    "The GPU whose limits all devices take on, so that a model can be tried for it: a name of the table of device profiles. Empty: none.",
    scope="start",
    allowed="a name",
    fault=_profile_fault,
)
option(
    "autoload",
    "auto",
    "Whether `import torch` alone registers the device. auto: yes, unless torch has CUDA devices.",
    scope="start",
    choices=("auto", "always", "never"),
)
option(
    "eager",
    "compile",
    "How an op outside of compiled functions runs. compile: it is compiled on its own. cpu: on the CPU.",
    choices=("compile", "cpu"),
)
option("warn_fallback", True, "Warn once per op that runs on the CPU because it has no kernel.")
option(
    "index_errors",
    True,
    "Check the indices of gathers, scatters, embeddings and losses: for one out of range, the next wait for the device raises "
    "IndexError with the op and the line.",
    scope="compile",
)
option(
    "debug",
    False,
    "Fill new memory with NaN (integers: -1), and look after every kernel for stores beside its buffers. Every call "
    "then waits for its results.",
    scope="compile",
)
option(
    "check",
    False,
    "Compare the results of every kernel with the interpreter's, in every call. The first kernel that differs raises "
    "KernelResultError, which names it and saves its inputs. Calls take many times longer.",
    scope="compile",
)


def _dump_fault(value: str) -> str:
    """Makes the folder, for this user alone. Returns why files cannot be written into it, or ""."""
    try:
        for folder in [*reversed(Path(value).absolute().parents), Path(value)] if value else []:
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"the folder {value!r} cannot be made: {error.strerror}"
    return "" if not value or os.access(value, os.W_OK) else f"you may not write into the folder {value!r}"


option(
    "dump",
    "",
    "Folder into which every kernel, its graph and its build log are written. Empty: nothing is written.",
    allowed="a path",
    fault=_dump_fault,
)
option(
    "cache_dir",
    "",
    "Folder of the cache of kernels, plans and measurements. Empty: the user's cache folder.",
    allowed="a path",
)
option(
    "cache_size_mb",
    1024,
    "Largest size of the cache in MiB. The least recently used entries are deleted first. 0: no cache.",
    least=0,
)
option(
    "build_workers",
    -1,
    "Processes that compile kernels at the same time. -1: as many as cores and memory allow, on a GPU at most 16, if many "
    "kernels are missing. 0: kernels are compiled in this process. All processes of a user together have a worker a core.",
    least=-1,
)
option(
    "build_timeout_s",
    300,
    "Seconds that the compiler of a build worker may take for one program. A kernel that takes longer twice is refused.",
    least=1,
)
option(
    "enqueue_threads",
    "auto",
    "Whether a thread enqueues launches while Python goes on. auto: on devices that do not compute on the host's cores, for graphs "
    "and eager ops of more than a few launches or of many buffers, and for those that follow at once. An error of such a launch is "
    "raised by the next call that uses the stream.",
    choices=("auto", "never", "always"),
)
option(
    "progress",
    True,
    "Show on a terminal how many kernels are built, when building takes more than two seconds, and what a compilation does "
    "that takes more than ten.",
)
option("untested", False, "Do not warn of wrong runtimes (Mesa's rusticl), nor check drivers that nobody tried.")
option("verify", False, "Check between the compiler's passes that the graph is valid.", scope="compile")
option(
    "fallback",
    "eager",
    "What happens to an op without a kernel. eager: it runs on the CPU. error: FallbackError.",
    scope="compile",
    choices=("eager", "error"),
)
option(
    "kernel_family",
    "auto",
    "Which kernels to use. item: those for CPUs, a tile per work-item. group: those for GPUs, a tile per work-group. auto: by the device.",
    scope="compile",
    choices=("auto", "item", "group"),
)
option(
    "vector_floats",
    0,
    "Length of a vector, in floats, that kernels for CPUs use. Set it to see the kernels of another CPU. 0: the device's own.",
    scope="compile",
    choices=(0, 4, 8, 16),
)
option(
    "units",
    0,
    "Number of compute units that work is split over. 0: those of the device.",
    scope="compile",
    least=0,
)


def _disable_fault(value: str) -> str:
    """Returns why `value` names no kernels, or "". The kernels are listed in the C++ core, which is loaded only when
    needed.
    """
    if not value:
        return ""
    from torch_ocl_compile import _C

    return _C.exec.disable_fault(value)


option(
    "disable",
    "",
    "Kernels not to use: names, execution levels or operations of the table of kernels, each for all types or with one, as in "
    "`warpgroup,gemm_warp:bf16,conv_statistics`. What remains computes the same.",
    scope="compile",
    allowed="names with commas",
    many=True,
    fault=_disable_fault,
)
option(
    "nccl",
    "auto",
    "Whether process groups communicate with NCCL. 0: never. 1: where every rank has an NVIDIA device of its own, and in groups of "
    "one rank, with a warning where that is not possible. auto: the same without a word, and not with one rank.",
    choices=("0", "1", "auto"),
)
option(
    "kept_weights_mb",
    4096,
    "Largest memory in MiB for results that depend on parameters alone, such as packed weights. Inference keeps them until a "
    "parameter changes. 0: keep none.",
    scope="compile",
    least=0,
)
option(
    "interpret",
    False,
    "Run the graph op by op instead of compiling it. Use it to check a result that you doubt.",
    scope="compile",
)
option(
    "max_autotune",
    False,
    "Measure which kernel is fastest where no measurement is stored for this device and driver. mode='max-autotune' sets it.",
    scope="compile",
)
option(
    "tuned",
    True,
    "Use measured choices of kernels, your own and those that ship. 0: use the cost models alone.",
    scope="compile",
)
option(
    "tune_deadline",
    20.0,
    "Seconds that one kernel may run while it is measured. A kernel that takes longer is disabled for this driver.",
    least=0,
)
option(
    "commit",
    "",
    "The commit in result files of measurements, where the code is in no git checkout. Empty: git is asked, or the build.",
    allowed="a text",
)


def options() -> Mapping[str, Option]:
    """Returns all options by name."""
    return _OPTIONS


def get(name: str) -> Value:
    """Returns the current value of an option: what `set` or `override` gave, or the environment variable, or the
    default.
    """
    row = _row(name)
    if name in _VALUES:
        return _VALUES[name]
    text = os.environ.get(row.variable)
    return row.default if text is None else row.parse(text, f"environment variable {row.variable}")


def follow(name: str, apply: Callable[[Any], None]) -> None:
    """Makes `set(name, value)` call `apply(value)` before the value takes effect. `apply` raises ConfigError if the value
    comes too late."""
    _FOLLOWERS[name] = apply


def set(name: str, value: object) -> None:
    """Sets an option for the process. ConfigError if the value is wrong or comes too late."""
    parsed = _row(name).parse(value, f"option {name!r}")
    _apply(name, parsed)
    _VALUES[name] = parsed


@contextmanager
def override(**values: object) -> Iterator[None]:
    """Sets options for a `with` block."""
    parsed = {name: _row(name).parse(value, f"option {name!r}") for name, value in values.items()}
    for name in parsed:
        if _OPTIONS[name].scope == "start":
            raise ConfigError(
                f"option {name!r} holds from the start of the process and cannot be set for a block.\n"
                f"  do: set the environment variable {_OPTIONS[name].variable}"
            )
    saved = dict(_VALUES)
    try:
        for name, value in parsed.items():
            set(name, value)
        yield
    finally:
        changed = [name for name, value in _VALUES.items() if name not in saved or saved[name] != value]
        for name in changed:
            del _VALUES[name]
            _apply(name, saved[name] if name in saved else get(name))
        _VALUES.update(saved)


def _apply(name: str, value: Value) -> None:
    if name in _FOLLOWERS:
        _FOLLOWERS[name](value)


def compile_options(given: Mapping[str, object] | None) -> dict[str, Value]:
    """Returns all options of scope "compile": `given` (torch.compile's options) over the current values. ConfigError
    for unknown keys.
    """
    values = {name: get(name) for name, row in _OPTIONS.items() if row.scope == "compile"}
    for name, value in (given or {}).items():
        if name not in values:
            raise unknown("the ocl backend's option", name, values)
        values[name] = _OPTIONS[name].parse(value, f"torch.compile option {name!r}")
    return values


def cache_folder() -> Path:
    """Returns the folder of the cache file and of the sources of failed kernels."""
    given = str(get("cache_dir"))
    return Path(given).expanduser() if given else platformdirs.user_cache_path("torch_ocl_compile")


def configure_core() -> None:
    """Passes settings of cache and dumps to the C++ core, if they have changed since the last call."""
    global _configured
    from torch_ocl_compile import _C

    budget = int(get("cache_size_mb")) * 2**20
    folder = cache_folder()
    file = str(folder / "cache.sqlite") if budget else ""
    settings = (file, budget, str(folder / "failed"), str(get("dump")))
    _C.exec.configure_builds(int(get("build_workers")), 1000 * int(get("build_timeout_s")), str(build_places()))
    _C.exec.configure_enqueue_threads(str(get("enqueue_threads")))
    _C.exec.show_build_progress(bool(get("progress")))
    if settings != _configured:
        _C.exec.configure(*settings)
        _configured = settings


def build_places() -> Path:
    """Returns the file of the places for build workers. All processes of this user on this machine share it."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or platformdirs.user_cache_path())
    return folder / "torch_ocl_compile" / f"build_places_{platform.node()}"


def core_settings() -> tuple[int | str, ...] | None:
    """Returns the settings that `configure_core` passed last. Other settings mean another cache."""
    return _configured


def _row(name: str) -> Option:
    if name not in _OPTIONS:
        raise unknown("option", name, _OPTIONS)
    return _OPTIONS[name]
