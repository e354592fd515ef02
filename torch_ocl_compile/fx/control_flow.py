# torch_ocl_compile/fx/control_flow.py: nodes of torch.cond, while_loop, scan and map, whose graphs are compiled.
from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

# Ops with graphs as arguments. PyTorch makes sure that the graphs write to nothing.
NAMES = ("cond", "while_loop", "while_loop_stack_output", "scan", "map_impl", "invoke_subgraph")


def is_control_flow(node: Node) -> bool:
    if getattr(node.target, "namespace", "") != "higher_order" or node.kwargs:
        return False
    return control_flow_name(node) in NAMES


def control_flow_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def graphs_and_operands(node: Node) -> tuple[list[GraphModule], list[list[Any]]]:
    """Returns the graphs of an op, and its operands as lists."""
    args: list[Any] = list(node.args)
    name = control_flow_name(node)
    if name == "cond":  # cond(flag, true_graph, false_graph, operands)
        flag, yes, no, operands = args
        return [_graph(yes), _graph(no)], [[flag], list(operands)]
    if name == "invoke_subgraph":  # invoke_subgraph(graph, identifier, *operands)
        return [_graph(args[0])], [args[2:]]
    count = 2 if name.startswith("while_loop") else 1
    return [_graph(a) for a in args[:count]], [list(operands) for operands in args[count:]]


def _graph(node: Node) -> GraphModule:
    owner: Any = node.graph.owning_module
    found = owner.get_submodule(str(node.target))
    assert isinstance(found, GraphModule)
    return found
