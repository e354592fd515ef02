# torch_ocl_compile/lowering/core/results.py: decides which memory each result of a graph has, and which results share it.
"""Results that eager PyTorch would return as views of one tensor are views of one output buffer, and views of an input
are views of that input. What the caller writes to one is then seen in the others. Any other result has separate
memory. A window is such a view, given by its sizes, strides and offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.origin import origin
from torch_ocl_compile.lowering.core.complex_value import Complex, joined, memory_layout, real_dtype, with_bits
from torch_ocl_compile.lowering.core.context import Context

aten = torch.ops.aten
# Their results have the layout of the first argument, the memory in front of it included.
WRITTEN = (aten.copy.default, aten.diagonal_scatter.default, aten.select_scatter.default, aten.slice_scatter.default)


class PlanOutputs:
    """The outputs of the ir.Graph, in the order in which they are requested."""

    def __init__(
        self, context: Context, env: dict[Node, Any], memory: Mapping[Node, Any], visible: Iterable[Node]
    ) -> None:
        """`memory`: what the inputs on the device have in memory. `visible`: the results that the user sees."""
        self.context = context
        self.env, self.memory = env, memory
        self.owners: dict[int, Node] = {x.buffer: storage(n) for n, value in memory.items() for x in tree_leaves(value)}
        self.visible = {n for n in visible if isinstance(env.get(n), (ir.Value, Complex))}
        self.shared = _seen_twice(self.visible)
        self.bases: dict[Node, ir.Value] = {}
        self.positions: dict[Node, int] = {}

    def position(self, node: Node, strides: list[Any]) -> int:
        """Returns the position of the plan's output that holds the node's value.

        `strides` are the output's strides; an empty list leaves them to the scheduler.
        """
        if node not in self.positions:
            root = storage(node)
            self.context.builder.origin = origin(node)
            if root in self.shared and _is_window(node, root):
                self._add_window(node, root)
            elif node in self.visible and self._is_read_only(root) and _is_window(node, root):
                self._add_input_window(node, root, root)
            else:
                self.context.builder.output(self._own(node), strides)
            self.positions[node] = len(self.positions)
        return self.positions[node]

    def place_in_inputs(self, nodes: Iterable[Any], stores: dict[Node, tuple[Node, Node]]) -> None:
        """Makes results that view what is stored into an input windows of that input.

        The caller makes these views of its own arguments, by their strides and offsets.
        """
        for node in nodes:
            source, target = stores.get(storage(node), (None, None)) if isinstance(node, Node) else (None, None)
            if source is None or target is None or node in self.positions or target not in self.memory:
                continue
            whole, there = source.meta["val"], target.meta["val"]
            if not (
                _same_layout(whole, there)
                and isinstance(self.env.get(node), (ir.Value, Complex))
                and _is_window(node, source)
            ):
                continue
            self._add_input_window(node, source, target)
            self.positions[node] = len(self.positions)

    def _own(self, node: Node) -> ir.Value:
        """Returns what the node has in memory, in a buffer that belongs to the node's storage and to no other, copying it
        if needed."""
        builder = self.context.builder
        value = joined(builder, with_bits(builder, self.env[node], node.meta["val"]))
        root = storage(node)
        if value.kind != ir.ValueKind.kView or self.owners.setdefault(value.buffer, root) is not root:
            value = builder.copy(value)
            self.owners[value.buffer] = root
        return value

    def _is_read_only(self, root: Node) -> bool:
        """Returns whether `root` is an input on the device that the graph does not write to."""
        return root.op == "placeholder" and root in self.memory and not any(_writes(user, root) for user in root.users)

    def _add_input_window(self, node: Node, whole: Node, target: Node) -> None:
        """Adds `node`, a view of `whole`, as a window of the input `target`.

        `target` holds the same values as `whole`, in the same layout.
        """
        self._add_part(joined(self.context.builder, self.memory[target]), node, whole)

    def _add_window(self, node: Node, root: Node) -> None:
        """Adds `node` as a window of `root`, which has its traced layout, so the traced strides and offsets apply."""
        c = self.context
        if root not in self.bases:
            strides = memory_layout(root.meta["val"])[1]
            self.bases[root] = c.builder.place(self._own(root), c.shape(strides))
        self._add_part(self.bases[root], node, root)

    def _add_part(self, base: ir.Value, node: Node, whole: Node) -> None:
        c = self.context
        fake = node.meta["val"]
        sizes, strides, _ = memory_layout(fake)
        c.builder.output_window(
            base, c.shape(sizes), c.shape(strides), c.size(_first_number(node) - _first_number(whole))
        )


def _seen_twice(nodes: Iterable[Node]) -> set[Node]:
    """Returns the nodes whose storage is viewed by two or more of `nodes`, where the node itself counts."""
    views: dict[Node, set[Node]] = defaultdict(set)
    for node in nodes:
        root = storage(node)
        if root.op == "call_function" and _is_window(node, root):
            views[root].add(node)
    return {root for root, seen in views.items() if len(seen) > 1}


def _is_window(node: Node, root: Node) -> bool:
    """Returns whether strides and an offset can describe the node as a view of the root's memory."""
    part, whole = node.meta.get("val"), root.meta.get("val")
    if not (isinstance(part, torch.Tensor) and isinstance(whole, torch.Tensor)):
        return False
    return real_dtype(part.dtype) == real_dtype(whole.dtype)


def storage(node: Node) -> Node:
    """Returns the node that allocated the memory which this node's result views."""
    while (base := _viewed(node)) is not None:
        node = base
    return node


def _viewed(node: Node) -> Node | None:
    """Returns the argument whose memory the node's result views, according to the schemas of the ops."""
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, Node):
        return None
    is_part = str(node.target) == "<built-in function getitem>"
    op = source.target if is_part else node.target
    if not isinstance(op, OpOverload):
        return source if is_part else None
    returns = op._schema.returns
    return source if returns and returns[0].alias_info is not None else None


def first_element(node: Node) -> Any:
    """Returns the position of a value's first element in its memory."""
    return _first_number(node) // 2 if node.meta["val"].dtype.is_complex else _first_number(node)


def _first_number(node: Node) -> Any:
    """Returns the position in numbers, of which a complex element has two. Fake tensors do not show it where functionalization
    put the result of a write in place of the memory."""
    if node.target in WRITTEN and isinstance(node.args[0], Node):
        return _first_number(node.args[0])
    fake, base = node.meta["val"], _viewed(node)
    while base is not None and not isinstance(base.meta.get("val"), torch.Tensor):
        base = _viewed(base)
    own = memory_layout(fake)[2]
    if base is None or (node.target is aten.as_strided.default and len(node.args) > 3):
        return own
    return _first_number(base) + own - memory_layout(base.meta["val"])[2]


def _writes(user: Node, root: Node) -> bool:
    return user.target is aten.copy_.default and user.args[0] is root


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    steps = [[step for size, step in zip(x.shape, x.stride(), strict=True) if not _is_one(size)] for x in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and steps[0] == steps[1]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def stored(
    returned: Sequence[Any], placeholders: Sequence[Node], written_back: Mapping[int, int]
) -> dict[Node, tuple[Node, Node]]:
    """Returns what the inputs become, by copy_ in the graph or by results that the caller copies (`written_back`).

    The keys are the nodes that allocated the memory; the values are (the node that is stored, the input).
    """
    pairs = [(returned[k], placeholders[i]) for k, i in written_back.items()]
    for node in placeholders[0].graph.nodes if placeholders else ():
        if node.target is aten.copy_.default:
            pairs.append((node.args[1], node.args[0]))
    return {storage(source): (source, target) for source, target in pairs if isinstance(source, Node)}
