# torch_ocl_compile/package/batch_norms.py: the scales of batch norms whose statistics no method writes, computed when a package is saved.
"""A call would compute 1 / sqrt(var + eps) * weight of each channel again. Networks have dozens of batch norms, and the kernel that
computes all these scales reads as many tensors: of a package with built kernels, it takes a third of the time in which they are loaded."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch.fx import GraphModule, Node

from torch_ocl_compile.fx.graph_pass import Changes, graph_pass

aten = torch.ops.aten


@graph_pass
def constant_scales(gm: GraphModule, changes: Changes, constants: Mapping[Node, torch.Tensor]) -> int:
    """Replaces batch norms of fp32 by (x - mean) * scale + bias, and erases inputs that nothing reads then. `constants` has the
    inputs of the graph that never change. Returns the number of replacements."""
    changed = 0
    for node in list(gm.graph.nodes):
        if node.target is not aten._native_batch_norm_legit_no_training.default:
            continue
        x, weight, bias, mean, var, _, eps = node.args
        tensors = [n for n in (x, weight, bias, mean, var) if n is not None]
        if any(n.meta["val"].dtype != torch.float32 for n in tensors) or not {var, weight} - {None} <= constants.keys():
            continue
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            continue
        scale = (constants[var].double() + eps).rsqrt() * (1 if weight is None else constants[weight].double())
        name = f"scale_of_{node.name}"
        gm.register_buffer(name, scale.float())
        with gm.graph.inserting_before(node):
            stored = gm.graph.get_attr(name)
            stored.meta = dict(var.meta)
            made = _call(aten.sub.Tensor, node, x, _of_channels(node, x, mean))
            made = _call(aten.mul.Tensor, node, made, _of_channels(node, x, stored))
            if bias is not None:
                made = _call(aten.add.Tensor, node, made, _of_channels(node, x, bias))
        for user in list(node.users):
            changes.replace(user, made)
        changes.erase(node)
        for unused in {var, weight} - {None}:
            if not unused.users:
                changes.erase(unused)
        changed += 1
    return changed


def _of_channels(norm: Node, x: Node, values: Node) -> Node:
    """Returns a value of each channel, for all elements of x."""
    return _call(aten.view.default, norm, values, [-1, *[1] * (x.meta["val"].dim() - 2)])


def _call(op: torch._ops.OpOverload, norm: Node, *args: object) -> Node:
    made = norm.graph.call_function(op, args)  # type: ignore[arg-type]
    given = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
    made.meta = dict(norm.meta) | {"val": op(*given)}
    return made
