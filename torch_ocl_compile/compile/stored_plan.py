# torch_ocl_compile/compile/stored_plan.py: packs a compiled graph for AOTAutograd's cache, and loads it.
"""An entry has the lowered graph: its recipe, as for eager ops (csrc/torch/recipe.cpp), and the functions of the
host. The schedule is not part of it, because it depends on measured choices of kernels, which may be newer than the entry. It is
kept beside the kernels, under a key of the entry and of these choices (csrc/exec/stored_plan.h).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, FXGraphCacheMiss
from torch._inductor.output_code import OutputCode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from torch_ocl_compile.compile import debug, times
from torch_ocl_compile.compile.call import Boxed, plan_call
from torch_ocl_compile.compile.plan import make_plan, measure_kernels
from torch_ocl_compile.errors import InternalError, UnsupportedError
from torch_ocl_compile.fx.host_function import HostFunction
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.fallback import record
from torch_ocl_compile.lowering.lowered import Lowered

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Body:
    """Everything that a process needs to call a graph that another process lowered."""

    kind: str
    fx_nodes: int
    lowered: Lowered
    settings: dict[str, Any]  # Settings for make_plan.
    # Strides of the plan's outputs. A backward graph was compiled for the strides of its forward graph's outputs.
    strides: list[list[int]]


class CompiledGraph(OutputCode):
    """A compiled graph for AOTAutograd, which calls it with one list. `reason` says why it cannot be stored, or is ""."""

    def __init__(self, run: Boxed, *, body: Body | None = None, plan: Any = None, reason: str = "") -> None:
        self.run: Boxed | None = run
        self.body = body
        self.plan = plan
        self.reason = reason
        self.stored = b""
        self._boxed_call = True
        self._time_taken_ns = 0
        # AOTAutograd does not store a graph without a key.
        self._fx_graph_cache_key = None if reason else "ocl"

    def __call__(self, args: Any) -> Any:
        return self.run(args)  # type: ignore[misc]

    def prepare_for_serialization(self) -> None:
        """AOTAutograd calls this on a copy that it is about to store."""
        try:
            if self.body is None:
                raise UnsupportedError(self.reason)
            self.stored = pack(self.body)
            if self.plan is not None:
                self.plan.keep(_plan_key(self.stored))
        except Exception as error:
            kind = "" if self.body is None else f"{self.body.kind} "
            log.info("a %sgraph cannot be stored and is compiled in each process: %s", kind, error)
            raise BypassAOTAutogradCache(str(error)) from error
        self.run = self.body = self.plan = None

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """AOTAutograd calls this on an entry that it has loaded. An error counts as a cache miss, and the graph is
        traced and compiled again."""
        try:
            with _disable_current_modes():
                self.load(unpack(self.stored), _plan_key(self.stored))
        except Exception as error:
            log.warning("a stored graph cannot be used and is compiled anew: %s", error)
            raise FXGraphCacheMiss(str(error)) from error

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass

    def load(self, body: Body, key: str) -> None:
        """Makes a plan of a stored graph, or finds it under its key."""
        loading, watch, lowered = times.since_last_graph(), times.Stopwatch(), body.lowered
        label = debug.next_label(body.kind, loaded=True)
        measure_kernels(lowered, body.settings)
        tuning = watch.lap() if body.settings.get("max_autotune") else 0.0
        plan = make_plan(lowered, body.settings, label, key=key)
        if plan.output_strides() != body.strides:
            raise InternalError("its results have other strides than those that were stored")
        for op in lowered.refused:
            record(op)
        size = debug.remember(label, body.fx_nodes, lowered, plan).size()
        times.keep(label, size, plan.timings(), loaded=True, loading=loading, tuning=tuning)
        run = plan_call(lowered, plan)
        overwrites = any(buffer.donated for buffer in lowered.graph.buffers)
        self.run = _RunBackward(run, body, label) if overwrites else run
        self.body, self.stored = body, b""


class _RunBackward:
    """A backward graph that may overwrite the tensors saved for it. If the caller keeps the autograd graph
    (retain_graph=True), it runs a second plan instead, which overwrites nothing.
    """

    def __init__(self, run: Boxed, body: Body, label: str) -> None:
        self.run = run
        self.body = body
        self.label = label
        self.careful: Boxed | None = None

    def __call__(self, args: list[Any]) -> list[Any]:
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            return self.run(args)
        if self.careful is None:
            lowered = self.body.lowered
            graph = lowered.graph.without_donations()
            self.careful = plan_call(lowered, make_plan(lowered, self.body.settings, self.label, graph))
        return self.careful(args)


def pack(body: Body) -> bytes:
    """Packs a graph as bytes. Raises pickle's errors if something cannot be stored."""
    lowered = body.lowered
    before, after = lowered.before, lowered.after
    stored = dataclasses.replace(
        lowered,
        before=None if before is None else (_as_text(before[0]), before[1]),
        after=None if after is None else (_as_text(after[0]), *after[1:]),
        traced=[],
    )
    with _disable_current_modes(), io.BytesIO() as file:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(dataclasses.replace(body, lowered=stored))
        return file.getvalue()


def unpack(stored: bytes) -> Body:
    body = pickle.loads(stored)
    assert isinstance(body, Body)
    return body


def _plan_key(stored: bytes) -> str:
    return hashlib.sha256(stored).hexdigest()


def _as_text(function: Any) -> HostFunction:
    return function if isinstance(function, HostFunction) else HostFunction.of(function)


class _Pickler(pickle.Pickler):
    """Stores ops by name, and tensors on a device as copies on the host."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, OpOverload):
            return _op, (str(value),)
        if isinstance(value, FakeTensor):
            raise UnsupportedError("it has a tensor without values")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return _moved, (value.detach().cpu(), value.device)
        return NotImplemented


def _op(name: str) -> OpOverload:
    found = overload(name)
    if found is None:
        raise UnsupportedError(f"this torch has no op {name}")
    return found


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device)
