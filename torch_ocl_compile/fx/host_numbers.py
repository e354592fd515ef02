# torch_ocl_compile/fx/host_numbers.py: lets the part of a graph that runs on the host compute many numbers in one call.
"""An optimizer has a step count per parameter in a CPU tensor without dimensions. It computes with these tensors by
`_foreach` ops, which on the CPU make one call per tensor. That takes a millisecond for a few hundred tensors. One
vector of all numbers needs one call.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from torch_ocl_compile.fx.graph_pass import Changes, graph_pass

FEW = 4  # Lists of up to this many tensors are not worth stacking.
PLAIN = {"add", "sub", "mul", "div", "neg", "reciprocal", "sqrt", "exp", "pow", "maximum", "minimum"}


@graph_pass
def stack_numbers(graph_module: GraphModule, changes: Changes) -> None:
    """Turns ops on lists of 0-dim floats into ops on vectors. Single numbers that other nodes read become views of the
    vectors."""
    graph = graph_module.graph
    vectors: dict[tuple[Node, ...], Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            # The stacked tensors may have changed.
            vectors.clear()
            continue
        plain = _plain_op(node)
        if plain is None:
            continue
        with graph.inserting_before(node):
            args = [_vector(graph, vectors, a) if isinstance(a, (list, tuple)) else a for a in node.args]
            made = graph.call_function(plain, tuple(args), dict(node.kwargs))
            numbers = graph.call_function(torch.ops.aten.unbind.int, (made,))
        items = {user.args[1]: user for user in node.users}
        if len(items) == len(node.meta["val"]):
            vectors[tuple(items[i] for i in range(len(items)))] = made
        changes.replace(node, numbers)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.target in (operator.getitem, torch.ops.aten.unbind.int):
            changes.erase(node)


def _plain_op(node: Node) -> Any:
    """Returns the op on vectors that is equal to this op on lists of numbers. None if there is none."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return None
    name = target._schema.name.removeprefix("aten::_foreach_")
    if name not in PLAIN or any(user.target is not operator.getitem for user in node.users):
        return None
    lists = [a for a in node.args if isinstance(a, (list, tuple))]
    numbers = [a for a in node.args if not isinstance(a, (list, tuple))]
    if not all(isinstance(a, (int, float)) for a in [*numbers, *node.kwargs.values()]):
        return None
    tensors = [n.meta.get("val") if isinstance(n, Node) else None for items in lists for n in items]
    if not tensors or len(tensors) < FEW * len(lists) or not all(isinstance(t, torch.Tensor) for t in tensors):
        return None
    kinds = {(t.dim(), t.dtype, t.device.type) for t in tensors if t is not None}
    (dim, dtype, device), *others = kinds
    return (
        getattr(torch.ops.aten, name)
        if not others and dim == 0 and dtype.is_floating_point and device == "cpu"
        else None
    )


def _vector(graph: Graph, vectors: dict[tuple[Node, ...], Node], items: Any) -> Node:
    found = vectors.get(tuple(items))
    if found is None:
        found = vectors[tuple(items)] = graph.call_function(torch.ops.aten.stack.default, (list(items),))
    return found
