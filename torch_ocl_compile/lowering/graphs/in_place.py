# torch_ocl_compile/lowering/graphs/in_place.py: finds functional scatters that may write directly into an input.
"""AOTAutograd turns `cache[:, i] = k` into `copy_(cache, select_scatter(cache, k, 1, i))`.

Executed literally, that moves the whole cache twice. A scatter found here stores its few rows into the input, and
copy_ has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload

aten = torch.ops.aten

# Ops whose result is args[0] with some elements replaced or added to. Their lowerings ask Context.in_place.
SCATTERS = {
    overload(name)
    for name in (
        *("aten.select_scatter.default", "aten.slice_scatter.default", "aten.diagonal_scatter.default"),
        *("aten.index_put.default", "aten._unsafe_index_put.default", "aten.index_copy.default"),
        *("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default", "aten.index_add.default"),
        *("aten.masked_scatter.default", "aten.scatter_reduce.two", "aten.index_fill.int_Scalar"),
        "ocl.put_distinct.default",
    )
} - {None}
# Scatter -> the view op that reads what it writes. The source of such a scatter may itself be a scatter into that view.
INVERSES: dict[Any, Any] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
}
COPIES = {aten.copy_.default, aten.copy.default}
SAME = {aten.alias.default, aten.detach.default}


def scatters_into_inputs(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Returns the scatters between a placeholder and the copy_ that stores into it."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.target is aten.copy_.default and node.args[0].op == "placeholder":
            found |= _chain(_copied(node.args[1]), node.args[0]) or set()
    return found


def _chain(node: torch.fx.Node, start: torch.fx.Node) -> set[torch.fx.Node] | None:
    """Returns the scatters that lead from `start` to `node`, including those inside their sources.

    None if any other op lies between.
    """
    found: set[torch.fx.Node] = set()
    while node is not start:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
            return None
        if node.target in SCATTERS:
            found.add(node)
            found |= _inner(node)
        elif node.target not in SAME:
            return None
        node = node.args[0]
    return found


def _copied(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the scatter of a copy of it into the tensor that it has changed."""
    if node.target is not aten.copy.default:
        return node
    target, source = node.args[:2]
    return (
        source if isinstance(source, torch.fx.Node) and source.target in SCATTERS and source.args[0] is target else node
    )


def _inner(outer: torch.fx.Node) -> set[torch.fx.Node]:
    """Returns the inner scatters of a nested store such as `x[0][i] = y`.

    Their result is the source of `outer`, and they begin at the view that `outer` replaces.
    """
    base, source, *where = outer.args
    inverse = INVERSES.get(outer.target)
    if inverse is None or not isinstance(source, torch.fx.Node):
        return set()
    view = source
    while view.target in SCATTERS or view.target in SAME:
        assert isinstance(view.args[0], torch.fx.Node)
        view = view.args[0]
    if view.target is not inverse or view.args != (base, *where) or view.kwargs != outer.kwargs:
        return set()
    return _chain(source, view) or set()


def may_overwrite(
    node: torch.fx.Node, target: Any, env: Mapping[torch.fx.Node, Any], scatters: Collection[torch.fx.Node]
) -> bool:
    """Returns whether no node after `node` reads the current contents of the memory of `target`. `scatters`: those into inputs."""
    if not isinstance(target, ir.Value) or target.kind != ir.ValueKind.kView:
        return False
    if sum(a is node.args[0] for a in tree_leaves((node.args, node.kwargs))) > 1:
        return False
    for reader, source in later_reads(node):
        scatter = reader in scatters
        if (scatter or reader.target in COPIES) and source is reader.args[0]:
            continue  # This reader writes into the same memory: the elements that it keeps are in their places already.
        if scatter and source in scatters:
            continue  # The part that the scatter replaces is in its place already.
        if any(views(v, target.buffer) for v in tree_leaves(env.get(source))):
            return False
    return True


class Environment(dict[torch.fx.Node, Any]):
    """The value of each node that has been lowered."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        super().__init__()
        self.positions = {node: position for position, node in enumerate(graph.nodes)}
        self._viewers: dict[int, list[torch.fx.Node]] = {}

    def __setitem__(self, node: torch.fx.Node, value: Any) -> None:
        super().__setitem__(node, value)
        for part in tree_leaves(value):
            if isinstance(part, ir.Value) and part.kind == ir.ValueKind.kView:
                self._viewers.setdefault(part.buffer, []).append(node)

    def viewers(self, buffer: int) -> list[torch.fx.Node]:
        """Returns the nodes whose values are views of the buffer, or consist of such views. The step of an optimizer asks
        for thousands of buffers."""
        nodes = dict.fromkeys(self._viewers.get(buffer, ()))
        return [node for node in nodes if any(views(part, buffer) for part in tree_leaves(self[node]))]

    def is_read_from(self, store: torch.fx.Node, source: torch.fx.Node) -> bool:
        """Returns whether `store`, or a node behind it, reads `source`. What `store` stores does not count."""
        return any(
            self.positions[reader] >= self.positions[store] and not (reader is store and source is store.args[1])
            for reader in source.users
            if reader.op in ("call_function", "output")
        )


def later_reads(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    """Yields (reader, the node it reads) for all readers from `node` on."""
    later = False
    for reader in node.graph.nodes:
        later = later or reader is node
        if later and reader.op in ("call_function", "output"):
            yield from ((reader, source) for source in reader.all_input_nodes)


def views(value: Any, buffer: int) -> bool:
    """Returns whether the value is a view of the buffer."""
    return isinstance(value, ir.Value) and value.kind == ir.ValueKind.kView and value.buffer == buffer
