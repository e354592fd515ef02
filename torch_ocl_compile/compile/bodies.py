# torch_ocl_compile/compile/bodies.py: what a compiled graph consists of, and how it is called: a plan, or pieces of a cut graph.
"""Each body has a method `boxed`, which returns the function that runs it. A body can be stored: `loaded` then makes its plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ocl_compile.compile import debug, times
from torch_ocl_compile.compile.call import Boxed, mark_boxed, plan_call
from torch_ocl_compile.compile.plan import make_plan, measure_kernels
from torch_ocl_compile.errors import InternalError
from torch_ocl_compile.lowering.graphs.fallback import record, refused
from torch_ocl_compile.lowering.graphs.lowered import Lowered
from torch_ocl_compile.lowering.graphs.strides import Strides, laid_out


def note_cut(cut: debug.Cut, label: str) -> None:
    """Keeps a cut for explain(), and counts the op if PyTorch runs it."""
    debug.remember_cut(cut, label)
    if cut.eager:
        record(refused(cut.op, cut.reason))


class Names:
    """Gives the parts of a stored graph their names in dumps, and their keys in the cache."""

    def __init__(self, label: str, key: str) -> None:
        self.label, self.key = label, key
        self.count = 0

    def next(self, several: bool) -> tuple[str, str]:
        self.count += 1
        return (f"{self.label}.{self.count - 1}" if several else self.label), f"{self.key}.{self.count - 1}"


@dataclass(kw_only=True)
class PlanBody:
    """A graph with a plan: everything that a process needs to call a graph that another process lowered."""

    kind: str
    fx_nodes: int
    lowered: Lowered
    settings: dict[str, Any]  # Settings for make_plan.
    # Strides of the plan's outputs. A backward graph was compiled for the strides of its forward graph's outputs.
    strides: list[list[int]]
    plan: Any = None  # None in a body that is stored.
    loaded_as: str = ""  # The label of a plan of a stored body.

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "plan": None, "lowered": replace(self.lowered, traced=[])}

    def plans(self) -> Iterator[PlanBody]:
        yield self

    def load(self, names: Names, several: bool = False) -> None:
        """Makes the plan of a stored body, or finds it under its key."""
        loading, watch, lowered = times.since_last_graph(), times.Stopwatch(), self.lowered
        label, key = names.next(several)
        measure_kernels(lowered, self.settings)
        tuning = watch.lap() if self.settings.get("max_autotune") else 0.0
        self.plan, self.loaded_as = make_plan(lowered, self.settings, label, key=key), label
        if self.plan.output_strides() != self.strides:
            raise InternalError("its results have other strides than those that were stored")
        for op in lowered.refused:
            record(op)
        size = debug.remember(label, self.fx_nodes, lowered, self.plan).size()
        times.keep(label, size, self.plan.timings(), loaded=True, loading=loading, tuning=tuning)

    def boxed(self) -> Boxed:
        run = plan_call(self.lowered, self.plan)
        overwrites = any(buffer.donated for buffer in self.lowered.graph.buffers)
        return _RunBackward(run, self) if overwrites and self.kind == "backward" else run


class _RunBackward:
    """A backward graph that may overwrite the tensors saved for it. If the caller keeps the autograd graph
    (retain_graph=True), it runs a second plan instead, which overwrites nothing.
    """

    def __init__(self, run: Boxed, body: PlanBody) -> None:
        self.run = run
        self.body = body
        self.careful: Boxed | None = None

    def __call__(self, args: list[Any]) -> list[Any]:
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            return self.run(args)
        if self.careful is None:
            body, lowered = self.body, self.body.lowered
            graph = lowered.graph.without_donations()
            self.careful = plan_call(lowered, make_plan(lowered, body.settings, body.loaded_as, graph))
        return self.careful(args)


@dataclass(kw_only=True)
class EagerBody:
    """A graph that PyTorch runs op by op."""

    function: Callable[..., Any]  # A torch.fx.GraphModule, or its text (fx/host_function.py) in a body that is stored.
    strides: list[Strides | None]  # Those that later pieces expect. None: the result is no tensor.
    cut: debug.Cut | None = None  # None for views, sizes and work on the CPU.

    def plans(self) -> Iterator[PlanBody]:
        return iter(())

    def load(self, names: Names, several: bool = False) -> None:
        if self.cut is not None:
            note_cut(self.cut, names.label)

    def boxed(self) -> Boxed:
        forward = self.function.forward if isinstance(self.function, torch.nn.Module) else self.function
        strides = self.strides

        def run(args: list[Any]) -> list[Any]:
            inputs = list(args)
            args.clear()
            with torch.no_grad():
                values = forward(*inputs)
            return laid_out(values, strides)

        return mark_boxed(run)


@dataclass(kw_only=True)
class Step:
    """A piece, and the slots that its call reads, writes and empties. The arguments are in the first slots."""

    body: Any
    takes: list[int]
    gives: list[int]
    drops: list[int]  # Those of `takes` that no later step reads.


@dataclass(kw_only=True)
class CutBody:
    """A graph that was cut: pieces that run one after the other."""

    steps: list[Step]
    results: Step  # Makes the results of the graph.
    slots: int

    def plans(self) -> Iterator[PlanBody]:
        for step in self.steps:
            yield from step.body.plans()

    def load(self, names: Names, several: bool = False) -> None:
        for step in self.steps:
            step.body.load(names, True)

    def boxed(self) -> Boxed:
        steps = [(step.body.boxed(), step.takes, step.gives, step.drops) for step in self.steps]
        results: Boxed = self.results.body.boxed()
        last, slots = self.results.takes, self.slots

        def run(args: list[Any]) -> list[Any]:
            values = [*args, *[None] * (slots - len(args))]
            args.clear()
            for call, takes, gives, drops in steps:
                taken = [values[slot] for slot in takes]
                for slot in drops:
                    values[slot] = None
                for slot, value in zip(gives, call(taken), strict=True):
                    values[slot] = value
            return results([values[slot] for slot in last])

        return mark_boxed(run)


Body = Any  # A PlanBody, EagerBody, CutBody, or ControlBody (compile/control_flow.py).
