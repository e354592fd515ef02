# torch_ocl_compile/lowering/results.py: which memory each result of a graph has, and which results share it.
"""Results that PyTorch would give as views of one tensor are windows on one output buffer, and views of an input are windows on
the input: what the caller writes to one is seen in the others. Any other result has memory of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.origin import origin
from torch_ocl_compile.lowering.context import Context


class PlanOutputs:
    """The outputs of the ir.Graph, in the order in which they are asked for."""

    def __init__(self, context: Context, env: dict[Node, Any], inputs: Iterable[Node], visible: Iterable[Node]) -> None:
        """`inputs`: placeholders on the device. `visible`: the results that the user sees."""
        self.context = context
        self.env = env
        constants = [n for n in env if n.op == "get_attr" and getattr(env[n], "kind", None) == ir.ValueKind.kView]
        self.owners: dict[int, Node] = {env[n].buffer: storage(n) for n in [*inputs, *constants]}
        self.visible = {n for n in visible if isinstance(env.get(n), ir.Value)}
        self.shared = _seen_twice(self.visible)
        self.bases: dict[Node, ir.Value] = {}
        self.positions: dict[Node, int] = {}

    def position(self, node: Node, strides: list[Any]) -> int:
        """Which output of the plan is the node's value, with these strides; any strides if there are none."""
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
        """Results that are views of what is stored in an input become windows on that input: the caller makes views of its own
        arguments with their strides and offsets."""
        for node in nodes:
            source, target = stores.get(storage(node), (None, None)) if isinstance(node, Node) else (None, None)
            if source is None or target is None or node in self.positions or target not in self.env:
                continue
            whole, there = source.meta["val"], target.meta["val"]
            if not (
                _same_layout(whole, there) and isinstance(self.env.get(node), ir.Value) and _is_window(node, source)
            ):
                continue
            self._add_input_window(node, source, target)
            self.positions[node] = len(self.positions)

    def _own(self, node: Node) -> ir.Value:
        """The node's value in a buffer that belongs to the node's storage, and to no other's."""
        value: ir.Value = self.env[node]
        root = storage(node)
        if value.kind != ir.ValueKind.kView or self.owners.setdefault(value.buffer, root) is not root:
            value = self.context.builder.copy(value)
            self.owners[value.buffer] = root
        return value

    def _is_read_only(self, root: Node) -> bool:
        """Whether it is an input on the device that the graph leaves as it is."""
        return root.op == "placeholder" and root in self.env and not any(_writes(user, root) for user in root.users)

    def _add_input_window(self, node: Node, whole: Node, target: Node) -> None:
        """`node`, a view of `whole`, as a window on the input `target`, which holds what `whole` does, in the same layout."""
        c = self.context
        part, there = node.meta["val"], whole.meta["val"]
        offset = c.size(part.storage_offset()) - c.size(there.storage_offset())
        c.builder.output_window(self.env[target], c.shape(part.shape), c.shape(part.stride()), offset)

    def _add_window(self, node: Node, root: Node) -> None:
        """By the strides and offsets of the trace: the root lies in memory as it was traced."""
        c, builder = self.context, self.context.builder
        whole, part = root.meta["val"], node.meta["val"]
        if root not in self.bases:
            self.bases[root] = builder.place(self._own(root), c.shape(whole.stride()))
        offset = c.size(part.storage_offset()) - c.size(whole.storage_offset())
        builder.output_window(self.bases[root], c.shape(part.shape), c.shape(part.stride()), offset)


def _seen_twice(nodes: Iterable[Node]) -> set[Node]:
    """The nodes whose storage two or more of `nodes` view, the node itself included."""
    views: dict[Node, set[Node]] = defaultdict(set)
    for node in nodes:
        root = storage(node)
        if root.op == "call_function" and _is_window(node, root):
            views[root].add(node)
    return {root for root, seen in views.items() if len(seen) > 1}


def _is_window(node: Node, root: Node) -> bool:
    """Whether strides and an offset say where the node's elements are in the root's memory."""
    part, whole = node.meta.get("val"), root.meta.get("val")
    return isinstance(part, torch.Tensor) and isinstance(whole, torch.Tensor) and part.dtype == whole.dtype


def storage(node: Node) -> Node:
    """The node that made the memory which this node's result views, by the aliasing that the schemas promise."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        if isinstance(node.target, OpOverload):
            returns = node.target._schema.returns
            if not returns or returns[0].alias_info is None:
                return node
        elif str(node.target) != "<built-in function getitem>":
            return node
        else:
            source = node.args[0]
            if isinstance(source.target, OpOverload) and source.target._schema.returns[0].alias_info is None:
                return node
        node = node.args[0]
    return node


def _writes(user: Node, root: Node) -> bool:
    return user.target is torch.ops.aten.copy_.default and user.args[0] is root


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    steps = [[step for size, step in zip(x.shape, x.stride(), strict=True) if not _is_one(size)] for x in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and steps[0] == steps[1]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def stored(
    returned: Sequence[Any], placeholders: Sequence[Node], written_back: Mapping[int, int]
) -> dict[Node, tuple[Node, Node]]:
    """What inputs become, in the graph or by results that the caller copies into them (`written_back`, by position): for each
    node that made memory, the node that is stored and the input."""
    pairs = [(returned[k], placeholders[i]) for k, i in written_back.items()]
    for node in placeholders[0].graph.nodes if placeholders else ():
        if node.target is torch.ops.aten.copy_.default:
            pairs.append((node.args[1], node.args[0]))
    return {storage(source): (source, target) for source, target in pairs if isinstance(source, Node)}
