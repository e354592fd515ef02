# torch_ocl_compile/compile/reshaped.py: forgets what Dynamo's graph says of tensors that get another shape later.
"""Dynamo's graph has one traced tensor for each tensor of the program. After `x.transpose_(0, 1)` that tensor has the shape of the
end of the graph, also for the nodes that read `x` before. A pass that goes by it would take the wrong shape, so these nodes lose
their traced tensors, and passes leave alone what reads them."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node


def forget(gm: GraphModule) -> None:
    """Removes the traced tensors of the nodes in front of an op that gives the tensor another shape, in a graph and in those
    that it calls."""
    for graph_module in (gm, *(m for m in gm.modules() if isinstance(m, GraphModule) and m is not gm)):
        changed_later = set[int]()
        for node in reversed(list(graph_module.graph.nodes)):
            traced = node.meta.get("example_value")
            if id(traced) in changed_later:
                del node.meta["example_value"]
            elif gives_shape(node):
                changed_later.add(id(traced))


def gives_shape(node: Node) -> bool:
    """True for an op that gives its first argument another shape, other strides or another memory: t_, resize_, set_, not detach_."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_other = name == "detach_" or name.startswith("__") or not name.endswith("_")
    op = None if is_other else getattr(torch.ops.aten, name, None)
    overloads = op.overloads() if isinstance(op, torch._ops.OpOverloadPacket) else ()
    return any(torch.Tag.inplace_view in getattr(op, overload).tags for overload in overloads)
