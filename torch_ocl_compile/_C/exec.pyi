# torch_ocl_compile/_C/exec.pyi: types of csrc/python/exec_bindings.cpp, which compiles graphs and runs plans.
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from torch_ocl_compile._C import ir

EagerCall = Callable[[list[torch.Tensor]], list[torch.Tensor]]

# Number of worker processes that compile kernels (-1: as many as cores and memory allow), time limit of a program in ms, and path
# of the worker program ("": the one beside the extension).
def configure_builds(workers: int, longest_ms: int, places: str = "", worker: str = "") -> None: ...
def configure_enqueue_threads(allowed: str) -> None: ...  # "auto", "never" or "always"
def skip_launches(skipped: bool) -> None: ...  # plans are made, and their results are zeros
def launches_skipped() -> bool: ...
def show_build_progress(shown: bool) -> None: ...  # where stderr is a terminal

# Sets the cache file of the process (empty: none), its size limit, and the folders for sources of failed kernels and for dumps.
def configure(cache_path: str, budget_bytes: int, failed_dir: str, dump_dir: str) -> None: ...
def kept_bytes() -> int: ...  # Bytes of kept weights in this process.
def cache_stats() -> dict[str, Any]: ...
def checkpoint_cache() -> None: ...
def cache_clear() -> None: ...
def cache_tables() -> list[tuple[str, int, int]]: ...  # Rows (table, number of entries, bytes).
def cache_verify() -> dict[str, Any]: ...  # Keys kept, deleted, problem.
def cache_prune(most_bytes: int, unused_ms: int) -> dict[str, Any]: ...  # The same keys. Negative: no limit.
def cache_keys(table: str) -> list[str]: ...

PACKAGE_ID: int
PACKAGE_VERSION: int

def package_checksum(bytes: bytes) -> int: ...
def cache_used(table: str) -> list[str]: ...  # Keys that this process has found or stored.
def cache_find(table: str, key: str) -> bytes: ...  # Empty if there is no entry.
def cache_store(table: str, key: str, value: bytes | str) -> None: ...
def cache_erase(table: str, key: str) -> None: ...

# The prefix of keys of the table "kernels" for this device and driver.
def store_prefix(device_index: int) -> str: ...
def build_counters() -> dict[str, Any]: ...  # Keys as in BuildCounters (csrc/runtime/build/program.h).
def live_counts() -> dict[str, int]: ...  # Numbers of live plans, eager_plans and programs.

# Compiles a graph. `options`: options of scope "compile" in config.py, and "label".
# `graph_key`: equal for equal graphs only. The plan may come from the cache under this key, and is kept there.
# `started`: a plan of the same graph and options.
def compile(
    graph: ir.Graph,
    device_index: int,
    calls: Sequence[EagerCall],
    options: Mapping[str, object],
    graph_key: str = "",
    started: StartedPlan | None = None,
) -> Plan: ...

# Begins a plan in another thread (csrc/exec/started_plan.h). None: that is impossible for this device or with these options.
def start(
    graph: ir.Graph, device_index: int, options: Mapping[str, object], scheduled_at_once: bool
) -> StartedPlan | None: ...

class StartedPlan:
    def fits(self, graph: ir.Graph) -> bool: ...  # Whether compile would make the same plan of this graph now.
    def output_strides(self) -> list[list[int]]: ...  # As of a Plan. Only if it was scheduled at once.

# Starts up to `count` build workers in other threads.
def start_workers(device_index: int, count: int) -> None: ...

# Schedule and kernels as text, for a device with these capabilities. No device is needed. `choices`, `disabled`: see set_measured.
def render(
    graph: ir.Graph,
    caps: Mapping[str, object],
    fuse: bool = True,
    choices: Mapping[str, str] = ...,
    disabled: Iterable[str] = ...,
) -> dict[str, Any]: ...

# Tuning, see tuning/measure.py. A case is (problem, the problem's node as a graph, its candidates). A candidate is (choice, the knob
# that differs from the first choice of the same template). The option "choice" of compile() forces a choice.
TuningCase = tuple[str, ir.Graph, list[tuple[str, str]]]

def tuning_cases(graph: ir.Graph, device_index: int, options: Mapping[str, object]) -> list[TuningCase]: ...
def tuning_cases_for(graph: ir.Graph, caps: Mapping[str, object]) -> list[TuningCase]: ...

# The largest head size for which attention has a kernel on every device.
LARGEST_HEAD_SIZE: int

# The rows of kernels/kernels.def. disable_fault: what is wrong with a value of the option `disable`, or "".
def kernels() -> list[dict[str, Any]]: ...
def disable_fault(value: str) -> str: ...

# Cases of a kernel: text, inputs, arguments, results. `only`: the number of a single case. set: those with which the kernel is checked
# on a device ("sample"), "tiles" or "edges". matrix: what kernels of the level subgroup_matrix multiply with, a name of
# csrc/kernels/matrix_instructions.h.
def check_cases(
    kernel: str, type: str, only: int = -1, matrix: str = "mfma4", set: str = "sample", filled: bool = True
) -> list[dict[str, Any]]: ...

# Runs a case on a device, in this process or in a build worker. Returns what is wrong, or "".
def fault_of_case(device_index: int, kernel: str, type: str, number: int, set: str, in_worker: bool = False) -> str: ...

# The checks of tensor core kernels that a device needs: rows (kernel, level, type). fault_of_kernel runs one, unless its answer is
# stored, and returns what is wrong, or "".
def kernels_to_check(device_index: int) -> list[list[str]]: ...
def fault_of_kernel(device_index: int, kernel: str, type: str) -> str: ...

# Where a device's runtime was tried ("": nobody has tried it), and (name, fault) of each part of the quick check of its driver, which
# runs now. A fault of "" says that the driver is right.
def tried_where(device_index: int) -> str: ...
def probe_driver(device_index: int) -> list[tuple[str, str]]: ...

# Sets what later compilations for a device follow: the choice for each problem, and choices that must not be taken.
def set_measured(device_index: int, choices: Mapping[str, str], disabled: set[str]) -> None: ...
def tuning_rows() -> list[tuple[str, str]]: ...  # Rows of the cache for all devices.

# Launch records of all plans, see device/record.py.
def begin_recording(timing: bool, all_commands: bool = False) -> int: ...
def end_recording(recording: int) -> list[dict[str, Any]]: ...

# The option check, see compile/check.py: `factory` makes an object with the methods begin(), before(step), after(step) and end(),
# which the plan calls in each run.
def set_check_factory(factory: Callable[[WatchedPlan], object]) -> None: ...

# Builds and launches one kernel. `launch`: name, text, global, local, pointers (argument slot, region, offset in elements, bytes of
# an element) and ints (slot, value, whether it is 64-bit). `regions`: uint8 tensors with the memory, which the launch changes.
def launch_alone(device_index: int, launch: Mapping[str, object], regions: Sequence[torch.Tensor]) -> None: ...

class WatchedPlan:  # A plan during its runs. What needs a run says so.
    label: Final[str]
    op: Final[str]  # Of an eager op: "aten::add". Otherwise empty.
    device: Final[int]
    device_name: Final[str]
    def graph(self) -> ir.Graph: ...  # After all passes.
    # ops (op and source line of each, inlined ones too), nodes, reads (buffers that are read from memory), origin, launched; of a
    # launch also kernel, kind, text, template, level, main.
    def steps(self) -> list[dict[str, Any]]: ...
    def text(self, step: int) -> str: ...  # The nodes of a step as a graph.
    def in_memory(self, buffer: int) -> bool: ...  # False: it is in registers only.
    def symbols(self) -> list[int]: ...  # In a run: the values of s0, s1, ...
    def address(self, buffer: int) -> int: ...  # In a run. 0: it has no elements.
    def shape(self, buffer: int) -> tuple[list[int], list[int], torch.dtype]: ...  # In a run: sizes, strides, dtype.
    # In a run: pointers (slot, address, bytes, offset, element_bytes, scratch), ints, global, local, empty.
    def launch(self, step: int) -> dict[str, Any]: ...
    def copied(self, address: int, bytes: int) -> torch.Tensor: ...  # In a run: a part of the device's memory, uint8.

class Plan:
    log: Final[list[str]]  # Decisions of the scheduler.
    arena_bytes: Final[int]
    launch_count: Final[int]
    def run(self, args: list[Any]) -> list[torch.Tensor]: ...  # Sizes s0, s1, ..., then tensors.
    def keep(self, graph_key: str) -> None: ...  # Keeps the plan in the cache for compile().
    def describe(self) -> list[dict[str, Any]]: ...  # For each launch: name, kind, text, origin, ops, bytes, flops.
    # Launches with their nodes and neighbours, buffers, memory. Numbers are those of the last call.
    def report(self) -> dict[str, Any]: ...
    def timings(self) -> dict[str, Any]: ...  # In seconds. Passes are (name, milliseconds, verified).
    def output_strides(self) -> list[list[int]]: ...  # An empty list if symbolic.
    def schedule(self) -> str: ...

def kernel_file(name: str) -> str: ...  # The text of kernels/NAME.cl.

class UserKernel:
    def __init__(self, device_index: int, name: str, text: str, where: str) -> None: ...
    most_items: Final[int]
    required_local: Final[list[int]]

class UserLaunch:
    def __init__(
        self,
        kernel: UserKernel,
        op: str,
        arguments: list[object],
        global_size: list[int],
        local_size: list[int],
        strides: list[list[int]] = ...,
        result_bytes: list[int] = ...,
        copies: list[tuple[int, int]] = ...,
    ) -> None: ...
    def run(self, tensors: list[torch.Tensor]) -> None: ...
