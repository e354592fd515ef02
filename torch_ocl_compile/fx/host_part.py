# torch_ocl_compile/fx/host_part.py: decides which nodes of a graph run on the host, and makes small graphs of them.
"""A compiled optimizer step counts in 0-dim CPU tensors, next to tensors on the device. Each node is in one of four
parts:

before   results on the CPU that need nothing from the device (Adam's step += 1), transfers to the device, the random state
device   everything else; it is lowered
after    results on the CPU that need results of the device (x.cpu())
size     integers that are computed from symbolic sizes alone; nodes of all other parts can use them
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import torch_ocl_compile.fx.ops  # noqa: F401  (defines rng_reserve)
from torch_ocl_compile.errors import ConfigError, CutNeeded
from torch_ocl_compile.fx.graph_pass import compare_copy, placeholders_first
from torch_ocl_compile.fx.host_numbers import stack_numbers


class Part(enum.Enum):
    BEFORE = "before"
    DEVICE = "device"
    AFTER = "after"
    SIZE = "size"


# Ops that run on the host, in the part `before`, although their results are on the device.
HOST_OPS_WITH_DEVICE_RESULTS = {torch.ops.ocl.rng_reserve.default}
TRANSFERS = {torch.ops.prims.device_put.default}


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def first_argument(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the node that is the first argument of a view, a copy_ or a getitem."""
    found = node.args[0]
    assert isinstance(found, torch.fx.Node)
    return found


def graph_device(graph: torch.fx.Graph) -> torch.device:
    """Returns the single device that the graph computes on. It is the CPU only if no other occurs. ConfigError if there
    are two.
    """
    first_nodes: dict[torch.device, torch.fx.Node] = {}
    for node in graph.nodes:
        for tensor in tensors_of(node.meta.get("val")) if node.op != "output" else ():
            if tensor.device.type not in ("cpu", "meta"):
                first_nodes.setdefault(tensor.device, node)
    if len(first_nodes) > 1:
        places = ", ".join(f"{device} ({node.name})" for device, node in first_nodes.items())
        raise ConfigError(f"tensors of one compiled graph are on different devices: {places}.\n  do: move them to one.")
    return next(iter(first_nodes), torch.device("cpu"))


def classify(graph: torch.fx.Graph, device: torch.device) -> dict[torch.fx.Node, Part]:
    """Returns the part of each node. CutNeeded if the device would have to wait for its own results."""
    parts: dict[torch.fx.Node, Part] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        tensors = tensors_of(node.meta.get("val"))
        if node.op in ("placeholder", "get_attr"):
            parts[node] = _part_of_input(tensors, device)
            continue
        sources = {parts[a] for a in node.all_input_nodes}
        on_host = device.type != "cpu" and tensors and all(t.device.type == "cpu" for t in tensors)
        transfer = node.target in HOST_OPS_WITH_DEVICE_RESULTS or (
            node.target in TRANSFERS and parts[node.args[0]] is not Part.DEVICE
        )
        if not tensors and node.op == "call_function" and node.meta.get("val") is not None:
            parts[node] = Part.SIZE
        elif on_host and _casts_for_device(node):
            parts[node] = Part.DEVICE
        elif on_host and Part.DEVICE in sources:
            parts[node] = Part.AFTER
        elif (on_host or transfer) and device.type != "cpu":
            parts[node] = Part.AFTER if Part.AFTER in sources else Part.BEFORE
        elif Part.AFTER in sources:
            moved = (a for a in node.all_input_nodes if parts[a] is Part.AFTER and a.target in TRANSFERS)
            reason = f"it needs a CPU tensor that this graph computed on {device}"
            raise CutNeeded(f"{node.target}: {reason}", {next(moved, node): reason})
        else:
            parts[node] = Part.DEVICE
        if node.target is operator.getitem and not on_host:
            parts[node] = parts[node.args[0]]
    return parts


def _casts_for_device(node: torch.fx.Node) -> bool:
    """Returns whether the node casts a given integer on the CPU that only results on the device need."""
    values = [node.meta["val"], *(source.meta.get("val") for source in node.all_input_nodes)]
    return (
        node.target is torch.ops.prims.convert_element_type.default
        and not any(source.all_input_nodes for source in node.all_input_nodes)
        and all(t.dim() == 0 and not t.is_floating_point() and not t.is_complex() for t in values)
        and all(t.device.type != "cpu" for user in node.users for t in tensors_of(user.meta.get("val")))
        and not any(user.op == "output" for user in node.users)
    )


def _part_of_input(tensors: Sequence[torch.Tensor], device: torch.device) -> Part:
    if not tensors:
        return Part.SIZE
    return Part.BEFORE if device.type != "cpu" and tensors[0].device.type == "cpu" else Part.DEVICE


def extract(
    owner: torch.fx.GraphModule, nodes: Iterable[torch.fx.Node], wanted: Sequence[torch.fx.Node]
) -> tuple[Callable[..., Any], list[torch.fx.Node]]:
    """Returns a function that computes `wanted` by running `nodes` and the sizes that they use, and the nodes that it
    takes as inputs.
    """
    inside = set(nodes)
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs: list[torch.fx.Node] = []

    def get(node: torch.fx.Node) -> torch.fx.Node:
        if node not in copies:
            if node.op == "get_attr":
                copies[node] = graph.get_attr(str(node.target))
            elif node.op == "call_function" and (node in inside or not tensors_of(node.meta.get("val"))):
                for source in node.all_input_nodes:
                    get(source)
                copies[node] = graph.node_copy(node, lambda n: copies[n])
            else:
                inputs.append(node)
                copies[node] = graph.placeholder(f"input_{len(inputs)}")
                copies[node].meta["val"] = node.meta.get("val")
        return copies[node]

    for node in nodes:  # All nodes, because some have effects (copy_). Effects keep their order.
        get(node)
    graph.output(tuple(get(n) for n in wanted))
    placeholders_first(graph)
    compare_copy("extract", nodes, copies)
    part = torch.fx.GraphModule(owner, graph)
    stack_numbers(part)
    return part, inputs
