# torch_ocl_compile/compile/constant_masks.py: finds attention masks that no input changes, before autograd.
"""Models compute the mask of causal attention from ranges of indices, in each call. As a tensor, it would be read for every
score, and no kernel could skip the hidden ones. So a mask that depends on no input is computed here, on the CPU. If it hides
the keys after each query, the op becomes causal. If it hides nothing, the op loses its mask. Any other mask stays."""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from torch_ocl_compile.compile.attention_pattern import memory_of, value
from torch_ocl_compile.fx.effects import Effect, effect_of, named_arguments, written
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, on_each_graph

log = logging.getLogger(__name__)

MOST_ELEMENTS = 1 << 26  # Of a mask that is computed. The largest one takes about a second.
MOST_NODES = 200
# What reads only the shape and the type of its tensor.
LIKE = {"new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "full_like"}
# Attention ops -> the names of their mask and of the argument that makes them causal.
ATTENTION = {
    F.scaled_dot_product_attention: ("attn_mask", "is_causal"),
    torch.ops.ocl.attention.default: ("mask", "causal"),
}


def rewrite(gm: GraphModule) -> int:
    """Simplifies the masks of a graph and of the graphs that it calls. Returns the number of changed ops."""
    return on_each_graph(gm, lambda node: node.target in ATTENTION, without_masks)


@graph_pass
def without_masks(gm: GraphModule, changes: Changes) -> int:
    changed = 0
    known: dict[tuple[Node, ...], Tensor | None] = {}  # Layers share a mask, unless something writes to it in between.
    for node in list(gm.graph.nodes):
        if node.target not in ATTENTION:
            continue
        names = ATTENTION[node.target]
        mask, causal = (named_arguments(node)[name] for name in names)
        if causal is not False or not isinstance(mask, Node):
            continue
        cone = _cone(mask, node)
        if (key := (mask, *cone)) not in known:
            known[key] = _computed(mask, cone)
        computed = known[key]
        kind = None if computed is None else _kind(computed)
        if kind is not None:
            for name, argument in zip(names, (None, kind == "causal"), strict=True):
                _set(node, name, argument)
            changed += 1
    if changed:
        log.info("%d masks are constant: the attention needs none", changed)
    return changed


def kind_of(mask: Node, end: Node) -> str | None:
    """Returns "causal" or "whole" for a mask in front of `end` that no input changes, as _kind() does. None for any other mask."""
    computed = _computed(mask, _cone(mask, end))
    return None if computed is None else _kind(computed)


def _set(node: Node, name: str, x: Any) -> None:
    position = list(named_arguments(node)).index(name)
    if len(node.args) > position:
        node.update_arg(position, x)
    else:
        node.update_kwarg(name, x)


def _kind(mask: Tensor) -> str | None:
    """Returns "causal" or "whole" for a mask that hides the later keys or nothing. None for another mask."""
    seen = mask
    if mask.is_floating_point():
        seen = mask == 0
        if not (seen | (mask <= torch.finfo(mask.dtype).min)).all():  # Added to a score, this hides it completely.
            return None
    if seen.all():
        return "whole"
    if mask.dim() < 2 or mask.shape[-2] == 1:  # One row serves all queries.
        return None
    return "causal" if (seen == torch.ones(mask.shape[-2:], dtype=torch.bool).tril()).all() else None


def _cone(mask: Node, end: Node) -> list[Node]:
    """Returns the nodes in front of `end` that the mask depends on, in order: its inputs, and what writes to their memory."""
    before: list[Node] = []
    for node in end.graph.nodes:
        if node is end:
            break
        before.append(node)
    writers: dict[int | None, list[Node]] = {}
    for node in before:
        for target in written(node):
            writers.setdefault(memory_of(target), []).append(node)
    cone, todo = {mask}, [mask]
    while todo and len(cone) <= MOST_NODES:
        node = todo.pop()
        inputs = () if _name(node) in LIKE else node.all_input_nodes
        found = {*inputs, *(writers.get(memory_of(node), ()) if value(node) is not None else ())} - cone
        cone |= found
        todo += found
    return [node for node in before if node in cone]


def _computed(mask: Node, cone: list[Node]) -> Tensor | None:
    """Runs the nodes of the cone. None if an input of the graph is among them."""
    if len(cone) > MOST_NODES or not all(_may_run(node) for node in cone):
        return None
    values: dict[Node, Any] = {}
    try:
        with _disable_current_modes(), torch.no_grad():
            for node in cone:
                values[node] = _run(node, values)
    except Exception as error:
        log.info("the mask %s stays, because it could not be computed: %s", mask.name, error)
        return None
    result = values[mask]
    if not isinstance(result, Tensor) or not (result.dtype is torch.bool or result.is_floating_point()):
        return None
    traced = value(mask)  # None for a node that a pass has made
    return result if traced is None or (result.dtype, result.shape) == (traced.dtype, traced.shape) else None


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _may_run(node: Node) -> bool:
    x = value(node)
    if x is not None and not (all(isinstance(size, int) for size in x.shape) and x.numel() <= MOST_ELEMENTS):
        return False
    return node.op in ("call_function", "call_method") and effect_of(node) in (None, Effect.WRITE)


def _run(node: Node, values: dict[Node, Any]) -> Any:
    """Calls the node's function on the CPU."""

    def argument(x: Any) -> Any:
        if isinstance(x, Node):
            return values[x] if x in values else torch.empty(value(x).shape, dtype=value(x).dtype)
        is_device = isinstance(x, torch.device) or (isinstance(x, str) and x.split(":")[0] == "ocl")
        return torch.device("cpu") if is_device else x

    args, kwargs = map_aggregate(node.args, argument), map_aggregate(node.kwargs, argument)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]
