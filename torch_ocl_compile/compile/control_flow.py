# torch_ocl_compile/compile/control_flow.py: torch.cond, while_loop, scan and map: the host decides which compiled graph runs next.
"""The graphs of an op are compiled as any graph. A decision reads one boolean from the device, and so waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from torch_ocl_compile.compile import debug
from torch_ocl_compile.compile.bodies import Body, EagerBody, Names, PlanBody, note_cut
from torch_ocl_compile.compile.call import Boxed, mark_boxed
from torch_ocl_compile.lowering.graphs.strides import Strides, laid_out, strides_of

Run = Callable[..., list[Any]]


@dataclass(kw_only=True)
class Branch:
    """A graph of a control flow op."""

    body: Body
    strides: list[Strides | None]  # The strides that it expects of its arguments.

    def run(self) -> Run:
        call: Boxed = self.body.boxed()
        strides = self.strides

        def run(*args: Any) -> list[Any]:
            return call(
                [
                    a if s is None or not isinstance(a, torch.Tensor) else s.of(a)
                    for a, s in zip(args, strides, strict=True)
                ]
            )

        return run


@dataclass(kw_only=True)
class ControlBody:
    """A control flow op."""

    op: str
    branches: list[Branch]
    counts: list[int]  # How many operands each list among the op's arguments has.
    operands: EagerBody  # Makes the operands.
    gives: list[int]  # Which of the op's results are results of the piece.
    strides: list[Strides | None]  # Those that later pieces expect.
    cut: debug.Cut

    def plans(self) -> Iterator[PlanBody]:
        for branch in self.branches:
            yield from branch.body.plans()

    def load(self, names: Names, several: bool = False) -> None:
        note_cut(self.cut, names.label)
        for branch in self.branches:
            branch.body.load(names, True)

    def boxed(self) -> Boxed:
        operands, runs = self.operands.boxed(), [branch.run() for branch in self.branches]
        operator, counts, gives, strides = _OPERATORS[self.op], self.counts, self.gives, self.strides

        def run(args: list[Any]) -> list[Any]:
            flat = operands(args)
            lists, first = [], 0
            for count in counts:
                lists.append(flat[first : first + count])
                first += count
            results = operator(runs, *lists)
            return laid_out([results[position] for position in gives], strides)

        return mark_boxed(run)


def branch_of(body: Body, graph: GraphModule) -> Branch:
    places = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return Branch(body=body, strides=[strides_of(n.meta.get("val")) for n in places])


# The ops. Each takes its graphs and its lists of operands, and returns its results.


def _cond(graphs: Sequence[Run], flag: list[Any], operands: list[Any]) -> list[Any]:
    return graphs[0 if flag[0] else 1](*operands)


def _while_loop(graphs: Sequence[Run], carried: list[Any], others: list[Any]) -> list[Any]:
    condition, body = graphs
    repeated = False
    while condition(*carried, *others)[0]:
        carried, repeated = body(*carried, *others), True
    return carried if repeated else [_copy(value) for value in carried]


def _while_loop_stack_output(graphs: Sequence[Run], carried: list[Any], others: list[Any]) -> list[Any]:
    condition, body = graphs
    found: list[list[Any]] = []
    while condition(*carried, *others)[0]:
        carried = body(*carried, *others)
        found.append(carried)
    return [torch.stack(values) for values in zip(*found or [carried], strict=True)]


def _scan(graphs: Sequence[Run], carried: list[Any], inputs: list[Any], others: list[Any]) -> list[Any]:
    stacked: list[Any] = []
    for step in range(inputs[0].shape[0]):
        results = graphs[0](*carried, *(x.select(0, step) for x in inputs), *others)
        carried, rows = results[: len(carried)], results[len(carried) :]
        stacked = stacked or [None if r is None else r.new_empty((inputs[0].shape[0], *r.shape)) for r in rows]
        for whole, row in zip(stacked, rows, strict=True):
            if whole is not None:
                whole.select(0, step).copy_(row)
    return [*carried, *stacked]


def _map(graphs: Sequence[Run], inputs: list[Any], others: list[Any]) -> list[Any]:
    return _scan(graphs, [], inputs, others)


def _invoke_subgraph(graphs: Sequence[Run], operands: list[Any]) -> list[Any]:
    return graphs[0](*operands)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


_OPERATORS: dict[str, Callable[..., list[Any]]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "while_loop_stack_output": _while_loop_stack_output,
    "scan": _scan,
    "map_impl": _map,
    "invoke_subgraph": _invoke_subgraph,
}
