# torch_ocl_compile/compile/call.py: one call of a compiled graph: arguments to the plan, results in order.
"""What can be decided once is decided in the constructor: the common graph, all of whose inputs are tensors on the
device, costs one list comprehension besides the plan's own call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_ocl_compile.lowering.bounds import FINE
from torch_ocl_compile.lowering.graph import Lowered, Result, Source

Boxed = Callable[[list[Any]], list[Any]]


def mark_boxed(run: Boxed) -> Boxed:
    """AOTAutograd calls it with one list, which may be emptied."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def eager_call(gm: torch.fx.GraphModule) -> Boxed:
    """The graph op by op, in PyTorch."""

    def run(args: list[Any]) -> list[Any]:
        inputs = list(args)
        args.clear()
        with torch.no_grad():
            return list(gm(*inputs))

    return mark_boxed(run)


class Call:
    """A plan and what surrounds it."""

    def __init__(self, lowered: Lowered, plan: Any) -> None:
        self.lowered = lowered
        self.plan = plan
        self.run_plan = self._checked_run if lowered.checked else plan.run
        self.has_kernels = bool(lowered.graph.nodes or lowered.graph.outputs)
        self.moved = [self._mover(s) for s in lowered.inputs if s.kind != "argument"]
        self.numbers = {i: lowered.symbols.evaluator(r.expr) for i, r in enumerate(lowered.results) if _is_symbolic(r)}

    def _checked_run(self, inputs: list[Any]) -> list[Any]:
        """Waits for the results. Raises IndexError on an index outside its dimension."""
        outputs: list[Any] = self.plan.run(inputs)
        for checked, found in zip(self.lowered.checked, outputs.pop().tolist(), strict=True):
            if found != FINE:
                raise IndexError(checked.message(found))
        return outputs

    def boxed(self) -> Boxed:
        low = self.lowered
        plain = low.before is None and low.after is None and not low.sources and not self.moved
        if plain and all(r.kind in ("plan", "argument", "none") for r in low.results):
            return self._plain()
        return self._general()

    def _plain(self) -> Boxed:
        plan_run = self.run_plan
        positions = [s.position for s in self.lowered.inputs]
        takes_all = positions == list(range(len(positions)))
        results = self.lowered.results
        if takes_all and [(r.kind, r.position) for r in results] == [("plan", i) for i in range(len(results))]:

            def run_all(args: list[Any]) -> list[Any]:
                inputs = list(args)
                args.clear()
                made: list[Any] = plan_run(inputs)
                return made

            return mark_boxed(run_all)
        # Pool: the plan's outputs, then the arguments, then None.
        count = len(self.lowered.graph.outputs) - bool(self.lowered.checked)
        places = [
            r.position if r.kind == "plan" else count + r.position if r.kind == "argument" else -1 for r in results
        ]

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
        getters = self._input_getters()

        def run(args: list[Any]) -> list[Any]:
            inputs = list(args)
            args.clear()
            symbols = self._sizes(inputs)
            host: tuple[Any, ...] = ()
            if low.before is not None:
                function, taken = low.before
                with torch.no_grad():
                    host = function(*(inputs[p] for p in taken))
            outputs: list[Any] = []
            if self.has_kernels:
                outputs = self.run_plan([*symbols, *(get(inputs, host) for get in getters)])

            def pick(result: Result) -> Any:
                kind = result.kind
                if kind == "plan":
                    return outputs[result.position]
                if kind == "argument":
                    return inputs[result.position]
                return host[result.position] if kind == "host" else None

            late: tuple[Any, ...] = ()
            if low.after is not None:
                function, sources = low.after
                with torch.no_grad():
                    late = function(*(pick(s) for s in sources))
            return [
                late[r.position]
                if r.kind == "after"
                else self.numbers[i](symbols)
                if i in self.numbers
                else r.expr
                if r.kind == "number"
                else pick(r)
                for i, r in enumerate(low.results)
            ]

        return mark_boxed(run)

    def _sizes(self, inputs: list[Any]) -> list[int]:
        """The values of s0, s1, ..."""
        return [inputs[s.position] if s.dim is None else inputs[s.position].shape[s.dim] for s in self.lowered.sources]

    def _input_getters(self) -> list[Callable[[list[Any], tuple[Any, ...]], Any]]:
        moved = iter(self.moved)
        return [_argument(s.position) if s.kind == "argument" else next(moved) for s in self.lowered.inputs]

    def _mover(self, source: Source) -> Callable[[list[Any], tuple[Any, ...]], Any]:
        """A function from (arguments, host values) to the tensor on the device."""
        device = self.lowered.device
        if source.kind == "attribute":
            constant = source.tensor
            assert constant is not None
            constant = constant.to(device)
            return lambda inputs, host: constant
        if source.kind == "host":
            return lambda inputs, host: host[source.position].to(device, non_blocking=True)
        if source.kind == "expression":
            value = self.lowered.symbols.evaluator(source.expr)
            return lambda inputs, host: torch.tensor(value(self._sizes(inputs)), dtype=source.dtype)
        if source.kind == "numbers":
            return lambda inputs, host: torch.tensor([inputs[p] for p in source.packed], dtype=source.dtype).to(
                device, non_blocking=True
            )

        def pack(inputs: list[Any], host: tuple[Any, ...]) -> Any:
            values = [host[k] for k in source.packed]
            if any(v.dtype != source.dtype for v in values):
                values = [v.to(source.dtype) for v in values]
            return torch.stack(values).to(device, non_blocking=True)

        return pack


def _argument(position: int) -> Callable[[list[Any], tuple[Any, ...]], Any]:
    return lambda inputs, host: inputs[position]


def _is_symbolic(result: Result) -> bool:
    return result.kind == "number" and isinstance(result.expr, torch.SymInt)
