# torch_ocl_compile/compile/call.py: calls a compiled graph: passes arguments to the plan and orders the results.
"""Everything that can be decided once is decided in the constructor. If all inputs are tensors on the device, as in
most graphs, a call costs one list comprehension besides the plan's own call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.lowering.index_checks import FINE
from torch_ocl_compile.lowering.lowered import (
    Argument,
    Attribute,
    Computed,
    Expression,
    HostValue,
    LateValue,
    Lowered,
    NoneResult,
    Number,
    PackedHostValues,
    PackedNumbers,
    PlanOutput,
    Result,
    Source,
)

Boxed = Callable[[list[Any]], list[Any]]
watch: Callable[[Boxed], Boxed] | None = None  # wraps the run functions of new plans: `torch-ocl warm` counts calls


def mark_boxed(run: Boxed) -> Boxed:
    """Marks a function that AOTAutograd calls with one list, which the function may empty."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def eager_call(gm: torch.fx.GraphModule) -> Boxed:
    """Returns a function that runs the graph op by op in PyTorch."""

    def run(args: list[Any]) -> list[Any]:
        inputs = list(args)
        args.clear()
        with torch.no_grad():
            return list(gm(*inputs))

    return mark_boxed(run)


class Call:
    """A plan, the computation of its inputs, and the order of its results."""

    def __init__(self, lowered: Lowered, plan: Any) -> None:
        self.lowered = lowered
        self.plan = plan
        self.run_plan = self._checked_run if lowered.checked else plan.run
        if watch is not None:
            self.run_plan = watch(self.run_plan)
        self.has_kernels = bool(lowered.graph.nodes or lowered.graph.outputs)
        self.getters = [self._getter(source) for source in lowered.inputs]
        self.pickers = [self._picker(result) for result in lowered.results]

    def _checked_run(self, inputs: list[Any]) -> list[Any]:
        """Runs the plan and waits for its results. IndexError if an index is outside of its dimension."""
        outputs: list[Any] = self.plan.run(inputs)
        for checked, found in zip(self.lowered.checked, outputs.pop().tolist(), strict=True):
            if found != FINE and not _C.exec.launches_skipped():
                raise IndexError(checked.message(found))
        return outputs

    def boxed(self) -> Boxed:
        low = self.lowered
        plain = low.before is None and low.after is None and not low.sources and not low.awaited
        sources = [source.position for source in low.inputs if isinstance(source, Argument)]
        if plain and len(sources) == len(low.inputs):
            count = len(low.graph.outputs) - bool(low.checked)
            places = [_place(result, count) for result in low.results]
            if all(place is not None for place in places):
                return self._plain(sources, [place for place in places if place is not None])
        return self._general()

    def _plain(self, positions: list[int], places: list[int]) -> Boxed:
        """Returns the call of a graph whose inputs are the arguments at `positions`. `places` are the places of the
        results, see _place.
        """
        plan_run = self.run_plan
        takes_all = positions == list(range(self.lowered.arguments))
        if takes_all and self.lowered.results == [PlanOutput(i) for i in range(len(places))]:

            def run_all(args: list[Any]) -> list[Any]:
                inputs = list(args)
                args.clear()
                made: list[Any] = plan_run(inputs)
                return made

            return mark_boxed(run_all)

        def run(args: list[Any]) -> list[Any]:
            inputs = list(args)
            args.clear()
            pool: list[Any] = plan_run(inputs if takes_all else [inputs[p] for p in positions])
            pool += inputs
            pool.append(None)
            return [pool[p] for p in places]

        return mark_boxed(run)

    def _general(self) -> Boxed:
        low = self.lowered
        late_pickers = [] if low.after is None else [self._picker(source) for source in low.after[1]]

        def run(args: list[Any]) -> list[Any]:
            values = _Values(list(args))
            args.clear()
            for position in low.awaited:
                torch.ops._c10d_functional.wait_tensor(values.arguments[position])
            values.sizes = self._sizes(values.arguments)
            if low.before is not None:
                function, taken = low.before
                with torch.no_grad():
                    values.host = function(*(values.arguments[p] for p in taken))
            if self.has_kernels:
                values.outputs = self.run_plan([*values.sizes, *(get(values) for get in self.getters)])
            if low.after is not None:
                function, _ = low.after
                with torch.no_grad():
                    values.late = function(*(pick(values) for pick in late_pickers))
            return [pick(values) for pick in self.pickers]

        return mark_boxed(run)

    def _sizes(self, arguments: list[Any]) -> list[int]:
        """Returns the values of s0, s1, ..."""
        return [s.value(arguments) for s in self.lowered.sources]

    def _getter(self, source: Source) -> Callable[[_Values], Any]:
        """Returns a function that finds an input tensor of the plan from the values of a call."""
        device = self.lowered.device
        match source:
            case Argument(position):
                return lambda values: values.arguments[position]
            case Attribute(tensor):
                constant = tensor.to(device)
                return lambda values: constant
            case HostValue(position):
                return lambda values: values.host[position].to(device, non_blocking=True)
            case Expression(function, dtype):
                evaluate = function.value
                return lambda values: torch.tensor(evaluate(values.sizes), dtype=dtype)
            case PackedNumbers(positions, dtype):
                return lambda values: torch.tensor([values.arguments[p] for p in positions], dtype=dtype).to(
                    device, non_blocking=True
                )
            case PackedHostValues(positions, dtype):

                def pack(values: _Values) -> Any:
                    numbers = [values.host[p] for p in positions]
                    if any(n.dtype != dtype for n in numbers):
                        numbers = [n.to(dtype) for n in numbers]
                    return torch.stack(numbers).to(device, non_blocking=True)

                return pack

    def _picker(self, result: Result) -> Callable[[_Values], Any]:
        """Returns a function that finds one result from the values of a call."""
        match result:
            case PlanOutput(position):
                return lambda values: values.outputs[position]
            case Argument(position):
                return lambda values: values.arguments[position]
            case HostValue(position):
                return lambda values: values.host[position]
            case LateValue(position):
                return lambda values: values.late[position]
            case Computed(function):
                evaluate = function.value
                return lambda values: evaluate(values.sizes)
            case Number(value):
                return lambda values: value
            case NoneResult():
                return lambda values: None


@dataclass
class _Values:
    """The values that a call has computed so far."""

    arguments: list[Any]
    sizes: Sequence[int] = ()
    host: Sequence[Any] = ()  # The results of Lowered.before.
    outputs: Sequence[Any] = ()  # The outputs of the plan.
    late: Sequence[Any] = ()  # The results of Lowered.after.


def _place(result: Result, outputs: int) -> int | None:
    """Returns the position of a result in a list of the plan's outputs, then the arguments, then None. Returns None if
    the result is not in the list.
    """
    match result:
        case PlanOutput(position):
            return position
        case Argument(position):
            return outputs + position
        case NoneResult():
            return -1
        case _:
            return None
