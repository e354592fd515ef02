# torch_ocl_compile/compile/times.py: measures how long the first call of each graph took, phase by phase.
"""A graph's line goes to the log and to the list that torch.ocl.compile_times() returns. Its phases are added to Dynamo's metrics too,
which torch._dynamo.utils.compile_times() prints, as `ocl.lowering` and so on."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

log = logging.getLogger(__name__)
KEPT = 1000  # number of graphs whose times are kept


@dataclass(frozen=True)
class CompileTimes:
    """One graph of torch.compile(backend="ocl"). Each phase is in seconds of wall-clock time."""

    graph: str  # forward_0, backward_1, inference_2, ...: as in the log, in dumps and in records
    loaded: bool  # whether the graph came from the cache; then nothing was traced and lowered
    # From the backend's start to the graph that was read from the cache. 0 for a graph that was compiled.
    loading: float
    tracing: float  # AOTAutograd's work, without Dynamo's. The joint trace of forward and backward counts for the forward graph
    lowering: float  # from aten ops to the IR
    tuning: float  # measuring variants of kernels, which mode="max-autotune" asks for
    # Testing whether the graph's kernels are right on this device: the time after these were built, which the tests overlap.
    checking: float
    scheduling: float  # fusion, layouts, the memory plan
    code_generation: float  # the kernels' texts
    building: float  # loading kernels from the cache, and compiling kernels that it lacks

    @property
    def total(self) -> float:
        """Returns the seconds of all phases together."""
        return sum(self.phases().values())

    def phases(self) -> dict[str, float]:
        """Returns phase -> seconds."""
        return {field.name: getattr(self, field.name) for field in fields(self)[2:]}


class _Mark(threading.local):
    at: float | None = None


_mark = _Mark()  # where this thread's compilation was when its latest graph was done
_times: deque[CompileTimes] = deque(maxlen=KEPT)


@contextmanager
def compilation() -> Iterator[None]:
    """Wraps one call of the backend. Time in it that is in none of our phases is AOTAutograd's."""
    before, _mark.at = _mark.at, time.perf_counter()
    try:
        yield
    finally:
        _mark.at = before


def since_last_graph() -> float:
    """Returns the seconds since the backend was called or its latest graph was done; 0 outside of a call."""
    return 0.0 if _mark.at is None else time.perf_counter() - _mark.at


class Stopwatch:
    """Measures the seconds since its last lap."""

    def __init__(self) -> None:
        self.at = time.perf_counter()

    def lap(self) -> float:
        before, self.at = self.at, time.perf_counter()
        return self.at - before


def keep(graph: str, what: str, plan: Mapping[str, float], *, loaded: bool = False, **phases: float) -> None:
    """Notes a graph that is ready. `what` is the graph's size, for the log. `plan` is Plan.timings(). `phases` are the
    seconds of the other phases.
    """
    found = CompileTimes(
        graph=graph,
        loaded=loaded,
        loading=phases.get("loading", 0.0),
        tracing=phases.get("tracing", 0.0),
        lowering=phases.get("lowering", 0.0),
        tuning=phases.get("tuning", 0.0),
        checking=plan["check_seconds"],
        scheduling=plan["schedule_seconds"],
        code_generation=plan["codegen_seconds"],
        building=plan["build_seconds"],
    )
    _times.append(found)
    metrics = getattr(sys.modules.get("torch._dynamo.utils"), "compilation_time_metrics", None)
    listed = []
    for phase, seconds in found.phases().items():
        if seconds == 0 and phase in ("loading", "tracing", "lowering", "tuning"):
            continue  # a phase that this graph did not have
        listed.append(f"{phase.replace('_', ' ')} {seconds:.2f}")
        if isinstance(metrics, dict):
            metrics.setdefault(f"ocl.{phase}", []).append(seconds)
    log.info(
        "%s, %s, %s in %.2f s: %s", graph, what, "loaded" if loaded else "compiled", found.total, ", ".join(listed)
    )
    if _mark.at is not None:
        _mark.at = time.perf_counter()


def latest() -> list[CompileTimes]:
    """Returns the times of the latest graphs, oldest first."""
    return list(_times)
