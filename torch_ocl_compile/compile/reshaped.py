# torch_ocl_compile/compile/reshaped.py: forgets what Dynamo's graph says of tensors that get another shape later.
"""Dynamo's graph has one traced tensor for each tensor of the program. After `x.transpose_(0, 1)` that tensor has the shape of the
end of the graph, also for the nodes that read `x` before. A pass that goes by it would take the wrong shape, so these nodes lose
their traced tensors, and passes leave alone what reads them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import GraphModule

from torch_ocl_compile.fx.effects import op_of


def forget(gm: GraphModule) -> None:
    """Removes the traced tensors of the nodes in front of an op that gives the tensor another shape, in a graph and in those
    that it calls."""
    for graph_module in [m for m in gm.modules() if isinstance(m, GraphModule)]:
        changed_later = set[int]()
        for node in reversed(list(graph_module.graph.nodes)):
            traced = node.meta.get("example_value")
            if id(traced) in changed_later:
                del node.meta["example_value"]
            elif node.op in ("call_function", "call_method") and gives_shape(node.target):
                changed_later.add(id(traced))


@functools.lru_cache(4096)
def gives_shape(target: Any) -> bool:
    """True for an op that gives its first argument another shape, other strides or another memory: t_, resize_, set_, not detach_."""
    op = op_of(target)
    overloads = [] if op is None or op is torch.ops.aten.detach_ else [getattr(op, name) for name in op.overloads()]
    return any(torch.Tag.inplace_view in overload.tags for overload in overloads)
