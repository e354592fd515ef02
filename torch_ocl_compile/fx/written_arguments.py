# torch_ocl_compile/fx/written_arguments.py: custom ops that write to their arguments, in place where nobody needs the old contents.
"""AOTAutograd turns such an op into auto_functionalized_v2: it takes tensors, the bases, of which the op's arguments are views,
and returns the op's results and the bases with their new contents. PyTorch runs it on copies of all bases.

A base needs no copy if nothing reads it afterwards. It is then memory of the graph's own, or an argument of the graph into
which copy_ stores the new contents; that copy_ has nothing left to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized_v2,
    get_mutable_args_from_schema,
    read_view_information_from_args,
)
from torch._ops import OpOverload
from torch._prims_common import clone_preserve_strides
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils._pytree import tree_map_only

from torch_ocl_compile.fx.host_part import first_argument

aten = torch.ops.aten

Readers = Mapping[Node, Sequence[Node | None]]


def is_writing_op(node: Node) -> bool:
    target = node.args[0] if node.target is auto_functionalized_v2 else None
    return isinstance(target, OpOverload) and not any(a.is_out for a in target._schema.arguments)


class WritingOp:
    """A node of auto_functionalized_v2."""

    def __init__(self, node: Node, roots: Callable[[Any], list[Node]]) -> None:
        """`roots` returns the nodes of which the nodes in a value are views."""
        op = node.args[0]
        assert isinstance(op, OpOverload)
        self.node, self.op, self.roots = node, op, roots
        self.kwargs = dict(node.kwargs)
        bases: Any = self.kwargs.pop("_all_bases")
        self.bases: list[Node] = list(bases)
        self.first = max(1, len(op._schema.returns))  # The bases follow the op's own results, or None.
        self.in_place: set[int] = set()  # Numbers of bases that need no copy.

    def result(self, number: int) -> Node | None:
        """Returns the node that holds the new contents of a base."""
        return next((user for user in self.node.users if user.args[1] == self.first + number), None)

    def reads_only_as_base(self, number: int) -> bool:
        base = self.bases[number]
        others = [b for i, b in enumerate(self.bases) if i != number]
        return self.roots(base) == [base] and base not in self.roots((self.kwargs, others))

    def write(self, copier: Any) -> None:
        """Adds the op to the graph of a piece: copies of bases, views of them, and the op itself."""
        graph: Graph = copier.graph
        bases = [copier.get(base) for base in self.bases]
        bases = [
            b if i in self.in_place else graph.call_function(clone_preserve_strides, (b,)) for i, b in enumerate(bases)
        ]
        proxies: Any = tree_map_only(Node, lambda n: Proxy(copier.get(n)), self.kwargs)
        kwargs = dict(proxies)
        names, types = get_mutable_args_from_schema(self.op._schema)
        views = read_view_information_from_args(names, types, kwargs, [])
        sources: Any = [Proxy(base) for base in bases]
        for name, view in views.items():
            found = view if isinstance(view, list) else [view]
            made = [None if v is None else v.regenerate_view(sources) for v in found]
            kwargs[name] = made if isinstance(view, list) else made[0]
        called = graph.call_function(self.op, (), tree_map_only(Proxy, lambda p: p.node, kwargs))
        copier.made[self.node] = called
        for user in self.node.users:
            position: Any = user.args[1]
            if position >= self.first:
                copier.made[user] = bases[position - self.first]
            elif len(self.op._schema.returns) <= 1:
                copier.made[user] = called
            else:
                copier.made[user] = copier.get(user)


def written_in_place(ops: Iterable[WritingOp], order: Mapping[Node, int], readers: Readers) -> set[Node]:
    """Decides which bases need no copy. `order`: when each node runs. Returns the nodes of copy_ that have nothing left to do."""
    ops = list(ops)
    makers = {made: (op, k) for op in ops for k in range(len(op.bases)) if (made := op.result(k)) is not None}
    dropped = set()

    def is_free(op: WritingOp, number: int, ignored: Collection[Node] = ()) -> bool:
        """Returns whether nothing reads the base's old contents after the op."""
        readers_of_base = readers.get(op.bases[number], ())
        later = [r for r in readers_of_base if r is None or (r not in ignored and order[r] > order[op.node])]
        return not later and op.reads_only_as_base(number)

    def is_own(value: Node) -> bool:
        """Returns whether the value is in memory that belongs to it alone."""
        if value in makers:
            op, number = makers[value]
            return number not in op.in_place or is_own(op.bases[number])
        return value in order and isinstance(value.target, OpOverload) and not _may_alias(value.target)

    for copy in (n for n in order if n.target is aten.copy_.default):
        chain = _chain(copy, makers)
        if not chain:
            continue
        op, number = chain[-1]  # The first op that runs.
        clone, target = op.bases[number], first_argument(copy)
        op.bases[number] = target
        if (clone is target or readers[clone] == [op.node]) and all(is_free(*link, (copy,)) for link in chain):
            for op, number in chain:
                op.in_place.add(number)
            dropped |= {copy} if clone is target else {copy, clone}
        else:
            op.bases[number] = clone
    for op in ops:
        op.in_place |= {k for k, base in enumerate(op.bases) if is_own(base) and is_free(op, k)}
    return dropped


def _chain(copy: Node, makers: Mapping[Node, tuple[WritingOp, int]]) -> list[tuple[WritingOp, int]]:
    """Returns the ops that lead from an argument of the graph, or a clone of it, to what copy_ stores there, the last one first.
    Empty if anything else is between."""
    target = first_argument(copy)
    value: Any = copy.args[1]
    chain = []
    while value in makers:
        op, number = makers[value]
        chain.append((op, number))
        value = op.bases[number]
    # A training graph clones each argument that it changes, in case that backward needs the old contents.
    is_clone = value.target is aten.clone.default and value.args[0] is target and _same_strides(value, target)
    return chain if target.op == "placeholder" and (value is target or is_clone) else []


def _same_strides(a: Node, b: Node) -> bool:
    return bool(statically_known_true(sym_eq(a.meta["val"].stride(), b.meta["val"].stride())))


def _may_alias(op: OpOverload) -> bool:
    return op._schema.is_mutable or any(result.alias_info is not None for result in op._schema.returns)
