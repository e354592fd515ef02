# torch_ocl_compile/fx/split.py: cuts a graph at nodes that no plan can run, into pieces that run one after the other.
"""A piece is either a single node at which the graph is cut, or a graph of other nodes, from which a plan is made. A value that
a later piece reads is a result of its piece and an argument of the later one.

Views and sizes belong to no piece: each piece that needs them computes them from what they are made of. So pieces pass on tensors
that own their memory, and no two arguments of a piece share memory.

A node that can be moved before a cut is moved there, because fewer pieces mean fewer calls. Cuts themselves are not moved: a
graph that converts the weights of many layers would convert all of them at its beginning."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from torch_ocl_compile.fx.control_flow import graphs_and_operands, is_control_flow
from torch_ocl_compile.fx.effects import Effect, effect_of
from torch_ocl_compile.fx.graph_pass import compare_copy, placeholders_first
from torch_ocl_compile.fx.host_part import first_argument, tensors_of
from torch_ocl_compile.fx.written_arguments import WritingOp, is_writing_op, written_in_place

# Ops that check a condition which the guards have checked already; they are skipped.
CHECKED_BY_GUARDS = {
    "aten._assert_scalar.default",
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
}


@dataclass
class Piece:
    # It takes `takes` and returns a tuple with a value for each of `gives`, or with the operands of a control flow op.
    module: GraphModule
    takes: list[Node]
    gives: list[Node]
    cut: Node | None  # The node at which the graph is cut. None: the module is for a plan.
    copies: dict[Node, Node]  # Node of the whole graph -> its copy in `module`.


@dataclass
class Split:
    """The pieces in their order, then a module that makes the results: views, sizes and constants."""

    pieces: list[Piece]
    results: Piece


def operator_name(node: Node) -> str:
    """Returns the op's name in messages: "aten.sort.stable", "cond", and the name of a custom op that has effects."""
    wrapped = [a for a in node.args if isinstance(a, OpOverload)]
    if wrapped:
        return str(wrapped[0])
    return (
        str(node.target) if isinstance(node.target, OpOverload) else str(getattr(node.target, "__name__", node.target))
    )


def reason_to_cut(node: Node) -> str:
    """Returns why a node whose target is no aten op cannot be in a plan."""
    if is_writing_op(node):
        return "a custom op that writes to its arguments"
    return "the host runs its graphs" if is_control_flow(node) else "no lowering"


def split(gm: GraphModule, cuts: Collection[Node], aliases: Sequence[int] = ()) -> Split:
    """Splits the graph. `aliases`: positions of results that are views of arguments."""
    return _Splitting(gm, cuts).run(set(aliases))


class _Splitting:
    def __init__(self, gm: GraphModule, cuts: Collection[Node]) -> None:
        self.gm = gm
        self.cuts = set(cuts)
        self.nodes = [n for n in gm.graph.nodes if n.op == "call_function" and str(n.target) not in CHECKED_BY_GUARDS]
        output = next(iter(reversed(gm.graph.nodes)))
        self.returned = list(output.args[0]) if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
        self.order: dict[Node, int] = {}  # The piece of each node that belongs to one.
        self.groups: list[list[Node]] = []
        self.place_nodes()

    def is_replayed(self, node: Node) -> bool:
        """Returns whether each piece that needs the node's value computes it."""
        if node.op == "get_attr":
            return True
        if node.op != "call_function" or node in self.cuts:
            return False
        if node.target is operator.getitem:
            return self.is_replayed(first_argument(node))
        value = node.meta.get("val")
        return is_view(node) or (value is not None and not tensors_of(value))

    def bases(self, value: Any) -> list[Node]:
        """Returns the nodes of which the nodes in `value` are views, sizes or elements."""
        bases: dict[Node, None] = {}

        def add(node: Node) -> Node:
            if self.is_replayed(node):
                map_arg((node.args, node.kwargs), add)
            else:
                bases[node] = None
            return node

        map_arg(value, add)
        return list(bases)

    # Places

    def place_nodes(self) -> None:
        """Gives each node a level. Nodes on even levels become plans, a cut on an odd level is a piece of its own."""
        level: dict[Node, int] = {}
        top = floor = latest_effect = 0
        for node in self.nodes:
            if self.is_replayed(node):
                continue
            if node.target is operator.getitem:
                level[node] = level[first_argument(node)]
                continue
            bound = max([floor, *(level.get(base, 0) for base in self.bases((node.args, node.kwargs)))])
            effect = None if is_control_flow(node) or is_writing_op(node) else effect_of(node)
            if node in self.cuts:
                bound = max(bound, top)
            elif effect is Effect.RANDOM:  # Random numbers are drawn in their order.
                bound = max(bound, latest_effect)
            elif effect is not None:  # All that comes before has happened before.
                bound = max(bound, top)
            level[node] = bound + (bound % 2 != (node in self.cuts))
            top = max(top, level[node])
            if effect is not None:
                latest_effect = level[node]
                floor = floor if effect is Effect.RANDOM else level[node]
        groups: dict[Any, list[Node]] = {}
        for node in self.nodes:
            if node in level:
                first = first_argument(node) if node.target is operator.getitem else node
                groups.setdefault((level[node], first if level[node] % 2 else None), []).append(node)
        for key in sorted(groups, key=lambda k: k[0]):  # Cuts of one level keep their order.
            self.order.update(dict.fromkeys(groups[key], len(self.groups)))
            self.groups.append(groups[key])

    def readers(self) -> dict[Node, list[Node | None]]:
        """Returns the nodes that read the value of each node, or views of it. None stands for the caller."""
        readers: dict[Node, list[Node | None]] = {}
        for node in self.order:
            for base in self.bases((node.args, node.kwargs)):
                readers.setdefault(base, []).append(node)
        for base in self.bases(self.returned):
            readers.setdefault(base, []).append(None)
        return readers

    # Pieces

    def run(self, aliases: set[int]) -> Split:
        writing = [WritingOp(n, self.bases) for n in self.order if n in self.cuts and is_writing_op(n)]
        dropped = written_in_place(writing, self.order, self.readers())
        writers = {op.node: op for op in writing}
        copiers = [self.copier([n for n in nodes if n not in dropped], writers) for nodes in self.groups]
        providers = self.providers()
        for copier in copiers:
            copier.bind_symbols(providers)
        taken = {n for copier in copiers for n in copier.inputs}
        direct = self.direct_results(taken, aliases)
        for node, position in direct.items():
            copiers[position].get(node)
        results = _Copier(self.gm, [], lambda n: n not in direct and self.is_replayed(n)).finish(self.returned)
        taken |= set(results.takes)
        pieces = []
        for copier in copiers:
            made = copier.nodes if copier.operands is not None else list(copier.made)
            gives = [n for n in made if n in taken and n not in copier.inputs]
            if gives or copier.has_effect():
                pieces.append(copier.finish(gives))
        return Split(pieces, results)

    def copier(self, nodes: list[Node], writers: Mapping[Node, WritingOp]) -> _Copier:
        """Starts the piece of some nodes."""
        copier = _Copier(self.gm, nodes, self.is_replayed)
        copier.cut = next((n for n in nodes if n in self.cuts), None)
        if copier.cut is not None and is_control_flow(copier.cut):
            copier.operands = [a for operands in graphs_and_operands(copier.cut)[1] for a in operands]
            nodes = [a for a in copier.operands if isinstance(a, Node)]
        elif copier.cut is not None and copier.cut in writers:
            writers[copier.cut].write(copier)
        for node in nodes:
            copier.get(node)
        return copier

    def direct_results(self, taken: set[Node], aliases: set[int]) -> dict[Node, int]:
        """Returns results that are views of a plan's value, and the piece of that plan. If nothing else reads this value, the
        plan returns the view alone, so that the rest of the value needs no memory after the call."""
        viewed = {}
        count: dict[Node, int] = {}
        for position, node in enumerate(self.returned):
            if isinstance(node, Node):
                bases = [b for b in self.bases(node) if tensors_of(b.meta.get("val"))]
                for base in bases:
                    count[base] = count.get(base, 0) + 1
                if (
                    self.is_replayed(node)
                    and len(bases) == 1
                    and position not in aliases
                    and _same_dtype(node, bases[0])
                ):
                    viewed[node] = bases[0]
        return {
            node: self.order[base]
            for node, base in viewed.items()
            if count[base] == 1 and base in self.order and base not in taken and not self.in_cut(base)
        }

    def in_cut(self, node: Node) -> bool:
        return any(n in self.cuts for n in self.groups[self.order[node]])

    def providers(self) -> dict[Any, Node]:
        """Returns the node that gives the value of each symbol: an integer, else a tensor that has it as a size."""
        providers: dict[Any, Node] = {}
        nodes = [n for n in self.gm.graph.nodes if n.op == "placeholder" or n in self.order]
        for node in nodes:
            value = node.meta.get("val")
            if isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.expr.is_Symbol:
                providers.setdefault(value.node.expr, node)
        for node in nodes:
            for size in sizes_of(node.meta.get("val")):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    providers.setdefault(size.node.expr, node)
        return providers


class _Copier:
    """Copies nodes of a graph, and the views and sizes that they need, into a graph of their own."""

    def __init__(self, gm: GraphModule, nodes: list[Node], is_replayed: Callable[[Node], bool]) -> None:
        self.gm, self.nodes, self.is_replayed = gm, nodes, is_replayed
        self.cut: Node | None = None
        self.operands: list[Any] | None = None  # Those of a control flow op, which the graph makes in place of the op.
        self.graph = torch.fx.Graph()
        self.made: dict[Node, Node] = {}
        self.inputs: list[Node] = []

    def get(self, node: Node) -> Node:
        if node in self.made:
            return self.made[node]
        inside = self.operands is None and node in self.nodes
        if node.op == "get_attr":
            copy = self.graph.node_copy(node)
        elif inside or self.is_replayed(node):
            for source in node.all_input_nodes:
                self.get(source)
            copy = self.graph.node_copy(node, self.get)
        else:
            copy = self.graph.placeholder(node.name)
            copy.meta = {k: v for k, v in node.meta.items() if k != "leaf"}
            self.inputs.append(node)
        self.made[node] = copy
        return copy

    def bind_symbols(self, providers: Mapping[Any, Node]) -> None:
        """Makes the piece take a value for each symbol in its sizes."""
        values = [n.meta.get("val") for n in self.made]
        known = {v.node.expr for v in values if isinstance(v, (torch.SymInt, torch.SymFloat)) and v.node.expr.is_Symbol}
        for node in self.inputs:
            known |= {s.node.expr for s in sizes_of(node.meta.get("val")) if isinstance(s, torch.SymInt)}
        wanted: set[Any] = set()
        for value in tree_leaves(values):
            if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
                wanted |= free_symbols(value)
        for symbol in sorted(wanted - known, key=str):
            if symbol in providers and providers[symbol] not in self.nodes:
                self.get(providers[symbol])

    def has_effect(self) -> bool:
        if self.cut is not None:
            return not (is_control_flow(self.cut) or is_writing_op(self.cut)) and effect_of(self.cut) is not None
        return any(effect_of(n) is not None for n in self.nodes)

    def finish(self, gives: Sequence[Any]) -> Piece:
        wanted = gives if self.operands is None else self.operands
        self.graph.output(tuple(self.get(n) if isinstance(n, Node) else n for n in wanted))
        placeholders_first(self.graph)
        if self.operands is None:
            compare_copy("split", self.nodes, self.made)
        module = GraphModule(self.gm, self.graph)
        return Piece(module, self.inputs, [n for n in gives if isinstance(n, Node)], self.cut, self.made)


def is_view(node: Node) -> bool:
    """Returns whether the node's result is a view of its first argument, by its schema."""
    if not isinstance(node.target, OpOverload) or node.target._schema.is_mutable:
        return False
    returns = node.target._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def sizes_of(value: Any) -> list[Any]:
    return [size for tensor in tensors_of(value) for size in tensor.shape]


def _same_dtype(a: Node, b: Node) -> bool:
    ours, theirs = a.meta.get("val"), b.meta.get("val")
    return isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor) and ours.dtype == theirs.dtype
