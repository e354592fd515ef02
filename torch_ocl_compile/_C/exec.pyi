# torch_ocl_compile/_C/exec.pyi: the typed face of csrc/python/exec_bindings.cpp: compile, run, read what ran.
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir

EagerCall = Callable[[list[torch.Tensor]], list[torch.Tensor]]

# Worker processes that compile kernels (-1: as many as cores and memory allow), and the path of their program ("": ours).
def configure_builds(workers: int, longest_ms: int, worker: str = "") -> None: ...
def skip_launches(skipped: bool) -> None: ...  # plans are made, and their results are zeros
def launches_skipped() -> bool: ...
def show_build_progress(shown: bool) -> None: ...  # where stderr is a terminal

# The process's cache (an empty path: none), where the sources of failed kernels go, and dumps.
def configure(cache_path: str, budget_bytes: int, failed_dir: str, dump_dir: str) -> None: ...
def kept_bytes() -> int: ...  # of kept results of parameters, in this process
def cache_stats() -> dict[str, Any]: ...
def cache_clear() -> None: ...
def cache_tables() -> list[tuple[str, int, int]]: ...  # (table, entries, bytes)
def cache_verify() -> dict[str, Any]: ...  # kept, deleted, problem
def cache_prune(most_bytes: int, unused_ms: int) -> dict[str, Any]: ...  # the same; negative: no limit
def cache_keys(table: str) -> list[str]: ...
def cache_used(table: str) -> list[str]: ...  # those that this process has found or stored
def cache_find(table: str, key: str) -> bytes: ...  # empty where there is no entry
def cache_store(table: str, key: str, value: bytes | str) -> None: ...
def cache_erase(table: str, key: str) -> None: ...
def store_prefix(
    device_index: int,
) -> str: ...  # of the keys of the table "kernels" that hold for this device and driver
def build_counters() -> dict[str, Any]: ...  # built, by_workers, from_binary, rejected, build_seconds, unkept
def live_counts() -> dict[str, int]: ...  # what the process keeps: plans, those of eager ops, programs

# Plans. `options`: of scope "compile" in config.py, and "label".
def compile(graph: ir.Graph, device_index: int, calls: Sequence[EagerCall], options: Mapping[str, object]) -> Plan: ...

# Schedule and kernels as text, for a device of these capabilities; needs none. `choices`, `disabled`: as set_measured.
def render(
    graph: ir.Graph,
    caps: Mapping[str, object],
    fuse: bool = True,
    choices: Mapping[str, str] = ...,
    disabled: Iterable[str] = ...,
) -> dict[str, Any]: ...

# Tuning: see tuning/measure.py. A case is (problem, the problem's node as a graph, its candidates); a candidate (choice, the knob that
# differs from the first choice of the same template). compile's option "choice" forces one.
TuningCase = tuple[str, ir.Graph, list[tuple[str, str]]]

def tuning_cases(graph: ir.Graph, device_index: int, options: Mapping[str, object]) -> list[TuningCase]: ...
def tuning_cases_for(graph: ir.Graph, caps: Mapping[str, object]) -> list[TuningCase]: ...

# The rows of kernels/kernels.def, and what is wrong with a value of the option `disable` ("": nothing).
def kernels() -> list[dict[str, Any]]: ...
def disable_fault(value: str) -> str: ...

# What a kernel is checked with on a device: text, inputs, arguments, results. `only`: one of the cases.
def check_cases(kernel: str, type: str, only: int = -1) -> list[dict[str, Any]]: ...

# What later compilations for a device follow: choices by problem, and choices never to take.
def set_measured(device_index: int, choices: Mapping[str, str], disabled: set[str]) -> None: ...
def tuning_rows() -> list[tuple[str, str]]: ...  # of the cache, all devices'

# Launch records, of all plans: see device/record.py.
def begin_recording(timing: bool) -> None: ...
def end_recording() -> list[dict[str, Any]]: ...

class Plan:
    @property
    def log(self) -> list[str]: ...  # what the scheduler decided
    @property
    def arena_bytes(self) -> int: ...
    @property
    def launch_count(self) -> int: ...
    def run(self, args: list[Any]) -> list[torch.Tensor]: ...  # sizes s0, s1, ..., then tensors
    def describe(self) -> list[dict[str, Any]]: ...  # a launch each: name, kind, text, origin, ops, bytes, flops
    def timings(self) -> dict[str, Any]: ...  # seconds; passes as (name, milliseconds, verified)
    def output_strides(self) -> list[list[int]]: ...  # an empty list where symbolic
    def schedule(self) -> str: ...
