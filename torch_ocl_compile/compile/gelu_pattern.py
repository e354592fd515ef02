# torch_ocl_compile/compile/gelu_pattern.py: finds gelu that a model spells out, and makes it one op, before autograd.
"""Models write 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3))) in many ways. Each single op rounds its result to
fp16 or bf16, and autograd saves several of them. The one op rounds once, and saves x only. An expression around a tanh or an
erf is gelu if it has one tensor operand and gelu's values, in double precision at many points."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from torch_ocl_compile.compile.attention_pattern import value
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, on_each_graph

log = logging.getLogger(__name__)

CURVED = {
    torch.tanh: "tanh",
    torch.erf: "none",
    "tanh": "tanh",
    "erf": "none",
}  # Function or method -> gelu's `approximate`.
ARITHMETIC: set[Any] = {
    *CURVED,
    *(getattr(operator, name) for name in ("add", "mul", "neg", "pow", "sub", "truediv")),
    *(getattr(torch, name) for name in ("add", "div", "mul", "neg", "pow", "square", "sub")),
    *("add", "div", "mul", "neg", "pow", "square", "sub"),
}
MOST_STEPS = 8  # From the operand to the tanh, and from there to the result.
TOLERANCE = 2e-6  # Models write sqrt(2/pi) with seven digits or more.


def rewrite(gm: GraphModule) -> int:
    """Replaces spelled-out gelu in a graph and in the graphs that it calls. Returns the number of replacements."""
    return on_each_graph(gm, lambda node: node.target in CURVED, written_gelu)


@graph_pass
def written_gelu(gm: GraphModule, changes: Changes) -> int:
    changed = 0
    for node in list(gm.graph.nodes):
        if not _is_arithmetic(node) or node.target not in CURVED:
            continue
        found = next(_gelus(node), None)
        if found is None:
            continue
        x, end, inside = found
        with gm.graph.inserting_before(end):
            operand = x if value(x).dtype is value(end).dtype else gm.graph.call_method("to", (x, value(end).dtype))
            made = gm.graph.call_function(F.gelu, (operand,), {"approximate": CURVED[node.target]})
        made.meta.update(end.meta)
        changes.replace(end, made)
        for inner in reversed(inside):
            if inner is not end:
                changes.erase(inner)
        changed += 1
    if changed:
        log.info("%d gelus found", changed)
    return changed


def _is_arithmetic(node: Any) -> bool:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method") or "out" in node.kwargs:
        return False
    x = value(node)
    return node.target in ARITHMETIC and x is not None and x.is_floating_point()


def _gelus(curved: Node) -> Iterator[tuple[Node, Node, list[Node]]]:
    """Yields (x, end, nodes from x to end), where `end` is gelu of x, computed with the node `curved`."""
    ends = [curved]
    while len(ends) <= MOST_STEPS and len(ends[-1].users) == 1 and _is_arithmetic(user := next(iter(ends[-1].users))):
        ends.append(user)
    operands = [curved.all_input_nodes[0]]
    while len(operands) <= MOST_STEPS and _is_arithmetic(operands[-1]) and operands[-1].all_input_nodes:
        operands.append(operands[-1].all_input_nodes[0])
    for end in reversed(ends[1:]):
        for x in operands:
            inside = _between(x, end)
            same = inside is not None and value(x) is not None and value(x).shape == value(end).shape
            if same and _is_gelu(x, inside or [], CURVED[curved.target]):
                yield x, end, inside or []


def _between(x: Node, end: Node) -> list[Node] | None:
    """Returns the nodes that compute `end` from x, in order. None if they read another tensor, or something else reads them."""
    inside: set[Node] = set()
    todo = [end]
    while todo:
        node = todo.pop()
        if node is x or node in inside:
            continue
        if not _is_arithmetic(node) or len(inside) > 2 * MOST_STEPS:
            return None
        inside.add(node)
        todo += node.all_input_nodes
    if any(not inside.issuperset(node.users) for node in inside - {end}):
        return None
    return sorted(inside)


@functools.cache
def _points() -> dict[str, tuple[Tensor, Tensor]]:
    x = torch.linspace(-6, 6, 97, dtype=torch.float64)
    return {name: (x, F.gelu(x, approximate=name)) for name in ("tanh", "none")}


def _is_gelu(x: Node, inside: list[Node], approximate: str) -> bool:
    with _disable_current_modes(), torch.no_grad():
        at, expected = _points()[approximate]
        values: dict[Node, Any] = {x: at}
        for node in inside:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
            values[node] = function(*args, **kwargs)
        return bool(((values[inside[-1]] - expected).abs() <= TOLERANCE).all())
