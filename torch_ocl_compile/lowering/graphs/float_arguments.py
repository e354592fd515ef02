# torch_ocl_compile/lowering/graphs/float_arguments.py: makes tensors of the floats that change between the calls of a graph.
"""Dynamo passes a float that changes, such as the learning rate of a schedule, as a float64 tensor on the CPU and reads
it with .item(). The result, and what is computed from it, are SymFloats. The host computes each SymFloat that an op
reads, at each call, and lowering packs them into one tensor on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from torch_ocl_compile.fx.graph_pass import Changes, graph_pass
from torch_ocl_compile.fx.host_part import tensors_of
from torch_ocl_compile.lowering.core.registry import find

aten = torch.ops.aten
_MADE = "ocl_float"  # In the meta of a node that floats_to_tensors has made.


@graph_pass
def floats_to_tensors(graph_module: GraphModule, changes: Changes) -> None:
    """Makes each op with a lowering read a tensor without dimensions on the CPU in place of a SymFloat."""
    graph = graph_module.graph
    if all(node.target is not aten._local_scalar_dense.default for node in graph.nodes):
        return
    tensors = [t for node in graph.nodes if node.op == "placeholder" for t in tensors_of(node.meta.get("val"))]
    on_device = {t.dtype for t in tensors if t.device.type != "cpu"}
    dtype = torch.float64 if torch.float64 in on_device else torch.float32  # Few devices support float64.
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.SymFloat):
            continue
        users = [user for user in node.users if find(user.target) is not None and _computes_on_device(user)]
        if not users:
            continue
        with graph.inserting_after(node):
            made = graph.call_function(aten.scalar_tensor.default, (node,), {"dtype": dtype})
        with tensors[0].fake_mode:  # type: ignore[attr-defined]
            made.meta["val"] = torch.empty((), dtype=dtype)
        made.meta[_MADE] = True
        for user in users:
            _read(user, made, node)


def tensors_to_floats(graph_module: GraphModule) -> None:
    """Undoes floats_to_tensors, for a graph that runs op by op: torch's ops take numbers where lowerings take tensors."""
    for node in list(graph_module.graph.nodes):
        if _MADE in node.meta:
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    graph_module.recompile()


def _computes_on_device(node: Node) -> bool:
    return any(t.device.type != "cpu" for t in tensors_of(node.meta.get("val")))


def _read(user: Node, new: Node, old: Node) -> None:
    """Makes `user` read `new` where it reads `old`."""

    def choose(argument: Any) -> Any:
        return new if argument is old else argument

    user.args, user.kwargs = map_arg(user.args, choose), map_arg(user.kwargs, choose)
