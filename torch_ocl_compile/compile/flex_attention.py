# torch_ocl_compile/compile/flex_attention.py: makes FlexAttention in Dynamo's graph an attention op, or single ops, before autograd.
"""An additive score_mod and the mask_mod become a mask, which attention kernels take: as a tensor, or better, as the ops that compute
it (csrc/schedule/computed_masks.h). A mask that hides nothing, or the later keys, needs neither
(constant_masks.py). With any other score_mod, the op becomes products, the score_mod and a softmax. Both ways are traced to aten ops
in the graph, so autograd finds the gradients, also of what score_mod captures.

Kernels skip blocks of scores that are hidden (blocks_of.py)."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from torch_ocl_compile.compile import blocks_of, constant_masks, debug
from torch_ocl_compile.compile.attention_pattern import value
from torch_ocl_compile.compile.score_functions import (
    NotAdditive,
    ScalarFunction,
    Score,
    added_by,
    numbers_of,
    over_all,
    scale_of,
    seen_by,
    trace,
)
from torch_ocl_compile.fx import attention_ops  # noqa: F401  (this import defines torch.ops.ocl.attention)
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, on_each_graph
from torch_ocl_compile.fx.origin import source_line

log = logging.getLogger(__name__)

aten = torch.ops.aten
ARGUMENTS = ("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
             "mask_mod_other_buffers")  # fmt: skip
UNFUSED = "products, pointwise ops and a softmax: no kernel takes score_mod"


def is_flex(node: Node) -> bool:
    return node.op == "call_function" and str(getattr(node.target, "__name__", "")) == "flex_attention"


def rewrite(gm: GraphModule, device_type: str = "ocl") -> int:
    """Replaces FlexAttention in a graph and in the graphs that it calls. Returns the number of replacements."""
    return on_each_graph(gm, is_flex, flex_attention_ops, device_type)


@graph_pass
def flex_attention_ops(gm: GraphModule, changes: Changes, device_type: str) -> int:
    changed = 0
    for node in list(gm.graph.nodes):
        query = value(node.args[0]) if is_flex(node) else None
        if query is None or query.device.type != device_type:
            continue
        if any("example_value" not in n.meta for n in node.all_input_nodes if n.op != "get_attr"):
            continue  # A tensor gets another shape later (reshaped.py), or a pass has made it.
        Replacement(gm, node, changes).run()
        changed += 1
    return changed


@dataclass
class Results:
    """What replaces the results of the op. lse and largest are nodes only if something reads them."""

    out: Node
    lse: Node | None
    largest: Node | None


class Replacement:
    """Replaces one FlexAttention."""

    def __init__(self, gm: GraphModule, node: Node, changes: Changes) -> None:
        self.gm, self.node, self.changes = gm, node, changes
        given: dict[str, Any] = {**dict(zip(ARGUMENTS, node.args, strict=False)), **node.kwargs}
        self.operands: list[Node] = [given[name] for name in ARGUMENTS[:3]]
        self.block_mask: Sequence[Any] = given["block_mask"]
        self.score_node, self.mask_node = given["score_mod"], self.block_mask[-1]
        self.scale = given["scale"]
        self.score_captured = tuple(given.get("score_mod_other_buffers", ()))
        self.mask_captured = tuple(given.get("mask_mod_other_buffers", ()))
        self.parts: dict[Any, list[Node]] = {}
        for user in node.users:
            self.parts.setdefault(user.args[1] if user.target is operator.getitem else None, []).append(user)
        q: Any = value(self.operands[0])
        self.mode = q.fake_mode
        self.device = q.device
        result = node.meta["example_value"][0]
        if result.dtype is not q.dtype:  # autocast
            self.operands = self.insert(lambda *given: [x.to(result.dtype) for x in given], self.operands)
            q = value(self.operands[0])
        self.wide = torch.float64 if q.dtype is torch.float64 else torch.float32

    def run(self) -> None:
        with self.mode:
            score = torch.zeros((), dtype=self.wide, device=self.device)
            self.score_mod = self._traced(self.score_node, score, self.score_captured)
            self.mask_mod = self._traced(self.mask_node, None, self.mask_captured)
        try:
            with self.mode:
                kind = scale_of(self.score_mod, score)
            if not isinstance(self.scale, (int, float)) or not self.scale * kind.scale > 0:
                raise NotAdditive("its scale is no positive number that is known")
            results, way = self._fused(kind, score)
        except NotAdditive as error:
            results, way = self._unfused(), f"{UNFUSED}, because {error}"
        log.info("flex_attention becomes %s", way)
        debug.remember_choice(debug.Choice("flex_attention", way, source_line(self.node)))
        self._put(results)

    def _traced(self, node: Any, score: Tensor | None, captured: Sequence[Any]) -> ScalarFunction:
        return trace(getattr(self.gm, str(node.target)), score, self._values(captured), self.device)

    def _values(self, nodes: Sequence[Any]) -> list[Any]:
        """Returns the traced values of nodes, as tensors that need no gradient."""
        values = [n.meta.get("example_value") if isinstance(n, Node) else n for n in nodes]
        return [x.detach() if isinstance(x, Tensor) else x for x in values]

    # As one op

    def _fused(self, kind: Score, score: Tensor) -> tuple[Results, str]:
        captured = [*self.score_captured, *self.mask_captured]
        count = len(self.score_captured)

        def masks(q: Tensor, k: Tensor, *tensors: Any) -> list[Tensor | None]:
            sizes = [*q.shape[:3], k.shape[2]]
            bias, seen = added_by(self.score_mod, kind, sizes, score, tensors[:count])
            shown = seen_by(self.mask_mod, sizes, self.device, tensors[count:])
            return [bias, shown if seen is None else seen & shown]

        bias, seen = self.insert(masks, [*self.operands[:2], *captured])
        # A mask of many scores, or of an unknown number, is not computed to find out what it hides.
        plain = kind.seen is None and self.mask_mod.is_causal
        hides = "causal" if plain else constant_masks.kind_of(seen, self.node)
        words = ["a soft cap"] if kind.cap > 0 else []
        if bias is not None:
            given = [n.meta.get("example_value") for n in self.score_captured if isinstance(n, Node)]
            learned = any(isinstance(x, Tensor) and x.requires_grad for x in given)
            words.append("a bias (stored, as it has a gradient)" if learned else "a bias")
        if hides == "causal":
            words.append("the causal mask")
        elif hides != "whole":
            words.append("a mask")
        mask, blocks, block_size = bias, None, blocks_of.MASK_BLOCK
        if hides is None:
            blocks, block_size = self._blocks(kind, seen)
            mask = seen
            if bias is not None:
                (mask,) = self.insert(lambda b, s: [torch.where(s, b, -math.inf)], [bias, seen])
        scale, causal = float(self.scale) * kind.scale, hides == "causal"

        def attention(q: Tensor, k: Tensor, v: Tensor, *masks: Tensor) -> list[Tensor | None]:
            k, v = (x.expand(q.shape[0], *x.shape[1:]) for x in (k, v))
            whole, parts = (*masks, None, None)[:2]
            settings = {"causal": causal, "scale": scale, "cap": kind.cap, "block_size": block_size}
            out, sums, _ = torch.ops.ocl.attention(q, k, v, whole, None, parts, **settings)
            largest, total = sums.unbind(0)
            lse = (largest + total.log()) / math.log(2) if 1 in self.parts else None
            most = torch.where(total > 0, largest, -math.inf) / math.log(2) if 2 in self.parts else None
            return [like_query(out, q), lse, most]

        found = self.insert(attention, [*self.operands, *(x for x in (mask, blocks) if x is not None)])
        return Results(*found), f"one attention{' with ' if words else ''}{' and '.join(words)}"

    def _blocks(self, kind: Score, seen: Node) -> tuple[Node, int]:
        """Returns the node of what is hidden of blocks, and their size: from the lists of the BlockMask, or from the mask."""
        _, _, *lists = self.block_mask[:6]
        block_sizes = self.block_mask[-3:-1]
        q, k = (value(x) for x in self.operands[:2])
        assert q is not None and k is not None
        read = [len(index.users) > 0 for index in self.mask_mod.indices]
        whole = kind.bias is None
        if kind.seen is None and blocks_of.use_lists(block_sizes, q.shape[2], k.shape[2], any(read[:2])):
            given = [x for x in lists if x is not None]

            def listed(q: Tensor, k: Tensor, *lists: Tensor) -> list[Tensor | None]:
                return [blocks_of.listed(lists, block_sizes, q.shape[2], k.shape[2], whole)]

            return self.insert(listed, [*self.operands[:2], *given])[0], math.gcd(*block_sizes)
        return self.insert(lambda s: [blocks_of.seen(s, whole)], [seen])[0], blocks_of.MASK_BLOCK

    # As single ops

    def _unfused(self) -> Results:
        count = len(self.score_captured)

        def attention(q: Tensor, k: Tensor, v: Tensor, scale: Any, *tensors: Any) -> list[Tensor | None]:
            group = q.shape[1] // k.shape[1]
            key, worth = (x.expand(q.shape[0], *x.shape[1:]).repeat_interleave(group, 1) for x in (k, v))
            scores = (q.to(self.wide) @ key.to(self.wide).transpose(-2, -1)) * scale
            sizes = [*q.shape[:3], k.shape[2]]
            ranges = [torch.arange(size, device=self.device, dtype=torch.int32) for size in sizes]
            changed = over_all(self.score_mod.graph, True, count)(scores, *ranges, *tensors[:count])
            seen = seen_by(self.mask_mod, sizes, self.device, tensors[count:])
            scores = torch.where(seen, changed.to(self.wide), -math.inf)
            lse = torch.logsumexp(scores, -1) / math.log(2) if 1 in self.parts else None
            most = scores.amax(-1) / math.log(2) if 2 in self.parts else None
            out = torch._safe_softmax(scores, -1).to(q.dtype) @ worth.to(q.dtype)
            return [like_query(out, q), lse, most]

        captured = [*self.score_captured, *self.mask_captured]
        return Results(*self.insert(attention, [*self.operands, self.scale, *captured]))

    # The graph

    def insert(self, function: Callable[..., list[Tensor | None]], inputs: Sequence[Any]) -> list[Any]:
        """Inserts the aten ops of a function in front of the op. Returns the nodes of its results."""
        with self.mode:
            traced = make_fx(function)(*self._values(inputs))
        traced.graph.eliminate_dead_code()
        graph, known = self.gm.graph, dict[Node, Any]()
        places = iter(inputs)
        with graph.inserting_before(self.node):
            for node in traced.graph.nodes:
                if node.op == "placeholder":
                    known[node] = next(places)
                elif node.op == "get_attr":
                    known[node] = self._constant(getattr(traced, node.target))
                elif node.op == "call_function":
                    if node.target is aten._to_copy.default and isinstance(node.args[0], (int, float)):
                        known[node] = node.args[0]  # vmap makes tensors of numbers.
                        continue
                    made = graph.create_node(
                        "call_function", node.target, *(map_arg(x, known.__getitem__) for x in (node.args, node.kwargs))
                    )
                    made.meta = {k: v for k, v in self.node.meta.items() if k != "example_value"}
                    made.meta["example_value"] = node.meta.get("val")
                    known[node] = made
        results: Any = traced.graph.output_node().args[0]
        return list(map_arg(results, known.__getitem__))

    def _constant(self, tensor: Tensor) -> Node:
        """Returns a node with a tensor that score_mod or mask_mod contains."""
        options: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
        made = self.gm.graph.call_function(torch.tensor, (numbers_of(tensor),), options)
        with self.mode:
            made.meta["example_value"] = torch.empty(list(tensor.shape), **options)
        return made

    def _put(self, results: Results) -> None:
        """Lets the users of the op read the results, and erases the op."""
        for position, node in enumerate((results.out, results.lse, results.largest)):
            for user in self.parts.pop(position, ()):
                assert node is not None
                self.changes.replace(user, node)
        self.changes.move_effect(self.node, results.out)
        self.changes.erase(self.node)
        for function in (self.score_node, self.mask_node):
            if not function.users:
                self.changes.erase(function)


def like_query(out: Tensor, q: Tensor) -> Tensor:
    """Returns the output with its dimensions in memory in the order of those of the query, as PyTorch does."""
    strides = q.stride()
    order = sorted(range(q.dim() - 1), key=lambda d: -strides[d])
    if order == sorted(order):
        return out
    order.append(q.dim() - 1)
    back = [order.index(d) for d in range(q.dim())]
    return out.permute(order).contiguous().permute(back)
