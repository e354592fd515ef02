# torch_ocl_compile/compile/attention_pattern.py: finds attention that a model spells out, and makes it one op, before autograd.
"""Finds matmul(q, k^T) * scale [+ mask | masked_fill | where] -> softmax [-> dropout] -> matmul with v in Dynamo's
graph. The attention op has its own gradient, so matching forward also covers backward. If something else uses a
value in between, such as returned attention weights, the single ops stay. The op does not round scores to fp16 or
bf16 in between, as the single ops do."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from torch_ocl_compile import _C
from torch_ocl_compile.fx import attention_ops  # noqa: F401  (this import defines torch.ops.ocl.attention)
from torch_ocl_compile.fx.effects import Effect, effect_of, named_arguments, written
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, on_each_graph

log = logging.getLogger(__name__)

# The plain name of each function. The method has this name too, with or without a trailing underscore, or METHODS has
# its name.
FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((operator.matmul, torch.matmul, torch.bmm), "matmul"),
    **dict.fromkeys((operator.add, operator.iadd, torch.add), "add"),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, torch.multiply), "mul"),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, torch.true_divide), "div"),
    **dict.fromkeys((F.softmax, torch.softmax), "softmax"),
    **dict.fromkeys((F.dropout, torch.dropout), "dropout"),
    **dict.fromkeys((torch.transpose, torch.swapaxes), "transpose"),
    torch.masked_fill: "masked_fill",
    torch.where: "where",
    torch.full: "full",
    torch.tensor: "tensor",
    torch.repeat_interleave: "repeat_interleave",
    operator.getitem: "getitem",
}
METHODS = {"bmm": "matmul", "__matmul__": "matmul", "swapaxes": "transpose", "view": "reshape"}
CASTS = {"to", "float", "half", "bfloat16", "type_as", "type"}


def kind(node: Any) -> str:
    """Returns the op's plain name. "" if the node is no call."""
    if not isinstance(node, Node):
        return ""
    if node.op == "call_function":
        return FUNCTIONS.get(node.target, "")
    if node.op != "call_method":
        return ""
    name = str(node.target)
    name = name if name.startswith("__") else name.removesuffix("_")
    return METHODS.get(name, name)


def value(node: Any) -> Any:
    """Returns the traced tensor of a node, or None."""
    found = node.meta.get("example_value") if isinstance(node, Node) else None
    return found if isinstance(found, torch.Tensor) else None


def given(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Returns an argument by position or name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


@dataclass
class Scores:
    """Scores of attention: scale * q k^T with masks, as computed by a chain of nodes that ends at a softmax."""

    q: Node
    k_transposed: Node
    scale: float = 1.0
    hidden: list[Node] = field(default_factory=list)  # Bool masks in which true means masked.
    seen: list[Node] = field(default_factory=list)  # Bool masks in which false means masked.
    added: list[Node] = field(default_factory=list)
    chain: list[Node] = field(default_factory=list)


def constant(x: Any) -> float | None:
    """Returns the value of a number, or of a tensor that is made of one number. None for anything else."""
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return float(x)
    if kind(x) == "full":
        return constant(given(x, 1, "fill_value"))
    return constant(given(x, 0, "data")) if kind(x) == "tensor" else None


def read_scores(x: Any) -> Scores | None:
    """Reads the chain of nodes that ends in x. None if it is no masked product."""
    if not isinstance(x, Node) or len(x.users) != 1 or value(x) is None:
        return None
    found = _step(x)
    if found is None or not _writes_only(x, found.chain):
        return None
    found.chain.append(x)
    return found


def _writes_only(node: Node, chain: list[Node]) -> bool:
    """True if the node writes only to values of the chain. Nobody sees these after the chain is replaced."""
    return all(target in chain for target in written(node))


def _step(x: Node) -> Scores | None:
    op = kind(x)
    if op in CASTS:
        return read_scores(x.args[0]) if value(x).is_floating_point() else None
    if op == "matmul":
        q, k = given(x, 0, "input"), given(x, 1, "other", x.kwargs.get("mat2"))
        return Scores(q, k) if value(q) is not None and value(k) is not None else None
    if op in ("mul", "div"):
        return _scaled(x, op)
    if op == "add" and not x.kwargs:
        left, right = x.args
        mask: Any
        for chain, mask in ((left, right), (right, left)):
            if value(mask) is not None and value(mask).is_floating_point() and (found := read_scores(chain)):
                found.added.append(mask)
                return found
    if op == "masked_fill":
        mask, fill = given(x, 1, "mask"), constant(given(x, 2, "value"))
        return _filled(read_scores(x.args[0]), mask, fill, True)
    if op == "where" and len(x.args) == 3:
        mask, first, second = x.args
        if constant(second) is not None:
            return _filled(read_scores(first), mask, constant(second), False)
        return _filled(read_scores(second), mask, constant(first), True)
    return None


def _scaled(x: Node, op: str) -> Scores | None:
    chain, factor = (x.args[0], constant(x.args[1])) if len(x.args) == 2 else (None, None)
    if factor is None and op == "mul" and len(x.args) == 2:
        chain, factor = x.args[1], constant(x.args[0])
    found = read_scores(chain)
    # A factor after a mask would scale the mask too. The factor must be positive, so that -inf stays -inf.
    if found is None or factor is None or not factor > 0 or found.added:
        return None
    found.scale *= factor if op == "mul" else 1 / factor
    return found


def _filled(found: Scores | None, mask: Any, fill: float | None, where: bool) -> Scores | None:
    # Only -inf is a mask. Scores replaced by a finite value get no gradient, but with an added mask they would get one.
    if found is None or fill != -math.inf or value(mask) is None or value(mask).dtype is not torch.bool:
        return None
    (found.hidden if where else found.seen).append(mask)
    return found


def rewrite(gm: GraphModule, device_type: str = "ocl") -> int:
    """Replaces spelled-out attention in a graph and in the graphs that it calls. Returns the number of replacements."""
    return on_each_graph(gm, _is_attention, written_attention, device_type)


def _is_attention(node: Node) -> bool:
    """True if a node may belong to attention. Most graphs have no such node and need no pass."""
    return node.target is F.scaled_dot_product_attention or kind(node) == "softmax"


@graph_pass
def written_attention(gm: GraphModule, changes: Changes, device_type: str) -> int:
    if any("increment_nesting" in str(n.target) for n in gm.graph.nodes):
        return 0  # Inside vmap and grad, the op would need rules of its own.
    changed = 0
    for node in list(gm.graph.nodes):
        x = value(node)
        if x is None or x.device.type != device_type:
            continue
        if kind(node) == "softmax":
            changed += _written(node, changes)
        elif node.target is F.scaled_dot_product_attention:
            if x.dim() != 4:
                changed += _other_rank(node, changes)
            else:
                operands = (value(named_arguments(node)[name]) for name in ("query", "key"))
                _head_sizes([x, *(t for t in operands if t is not None)])
                _keep_detached(node)
    if changed:
        log.info("%d attentions found", changed)
    return changed


def _written(softmax: Node, changes: Changes) -> bool:
    """Replaces the matmul after a softmax, if the nodes around it are attention."""
    x = value(softmax)
    if given(softmax, 1, "dim") not in (-1, x.dim() - 1):
        return False
    scores = read_scores(softmax.args[0] if softmax.args else softmax.kwargs.get("input"))
    end, p, chain = softmax, 0.0, [softmax]
    while True:
        if len(end.users) != 1:
            return False
        source, end = end, next(iter(end.users))
        op = kind(end)
        if op == "matmul":
            break
        if op == "dropout" and p == 0.0 and isinstance(given(end, 1, "p", 0.5), (int, float)):
            p = float(given(end, 1, "p", 0.5)) if given(end, 2, "training", given(end, 2, "train", True)) else 0.0
        elif op not in CASTS or not value(end).is_floating_point() or end.args[0] is not source:
            return False
        chain.append(end)
    v = given(end, 1, "other", end.kwargs.get("mat2"))
    if scores is None or end.args[0] is not source or not _agree(scores, v, end):
        return False
    whole = [*scores.chain, *chain]
    if _disturbed(scores.chain[0], end, set(whole)) or not all(_writes_only(n, whole) for n in (*chain, end)):
        return False
    masks = [*scores.hidden, *scores.seen, *scores.added]
    if _needed_and_written(end, [scores.q, scores.k_transposed, v, *masks]):
        return False
    graph = end.graph
    with graph.inserting_before(end):
        k, v = _keys_and_values(graph, scores.k_transposed, v)
        made = graph.call_function(
            torch.ops.ocl.attention.default,
            (scores.q, k, v, _mask(graph, scores), None),
            {"p": p, "nan_rows": True, "scale": scores.scale},
        )
        result = _result(made, end)
    _replace(end, made, result, changes)
    for node in reversed(whole):
        changes.move_effect(node, made)
        changes.erase(node)
    return True


def _needed_and_written(end: Node, operands: list[Any]) -> bool:
    """True if a gradient is needed and a later node writes to an operand. The gradient of the attention op reads every
    operand. The gradients of separate matmul and softmax ops read fewer."""
    return bool(value(end).requires_grad) and any(_is_exposed(x, end) for x in operands if value(x) is not None)


def _keep_detached(node: Node) -> None:
    """Gives the op an alias of each operand that a later node detaches in place. The op saves its operands for the gradient,
    and autograd refuses a saved tensor that has been detached. The gradients of separate products need not save it."""
    later: list[Node] = []
    end = node.next
    while end.op != "root":
        later += [end.all_input_nodes[0]] if end.target in ("detach_", torch.detach_) else []
        end = end.next
    detached = {memory_of(x) for x in later} if value(node).requires_grad else set()
    for x in list(node.all_input_nodes):
        if value(x) is not None and memory_of(x) in detached:
            with node.graph.inserting_before(node):
                alias = node.graph.call_function(torch.ops.aten.alias.default, (x,))
            alias.meta.update(x.meta)
            node.replace_input_with(x, alias)


def _result(made: Node, end: Node) -> Node:
    """Returns the op's result. It is a copy if a later node or the caller may write to it, because the op's gradient reads the
    result."""
    result = made.graph.call_function(operator.getitem, (made, 0))
    leaves = value(end).requires_grad and (_is_exposed(end, end) or _is_returned(end))
    return made.graph.call_method("clone", (result,)) if leaves else result


def memory_of(node: Any) -> int | None:
    """Returns the address of the storage. Nodes that view the same memory have the same address."""
    x = value(node)
    while x is not None and torch._C._functorch.is_functorch_wrapped_tensor(x):  # In vmap or grad.
        x = torch._C._functorch.get_unwrapped(x)
    return None if x is None else x.untyped_storage()._cdata


def _is_exposed(x: Node, end: Node) -> bool:
    """True if a node after `end` writes, or may write, to the memory of x."""
    memory, node = memory_of(x), end.next
    while node.op != "root":
        targets = node.all_input_nodes if effect_of(node) is Effect.OTHER else written(node)
        if any(memory_of(target) == memory for target in targets):
            return True
        node = node.next
    return False


def _is_returned(x: Node) -> bool:
    """True if the caller sees the memory of x."""
    return any(memory_of(result) == memory_of(x) for result in x.graph.output_node().all_input_nodes)


def _replace(old: Node, made: Node, result: Node, changes: Changes) -> None:
    made.meta.update({k: v for k, v in old.meta.items() if k != "example_value"})
    result.meta.update(old.meta)
    changes.move_effect(old, made)
    changes.replace(old, result)


def _agree(scores: Scores, v: Any, end: Node) -> bool:
    """True if q, k and v have the same dtype and leading sizes, their head sizes have a kernel, and no mask widens the
    scores."""
    tensors = [value(scores.q), value(scores.k_transposed), value(v), value(end)]
    if any(t is None for t in tensors):
        return False
    q, k, w, out = tensors
    if not (q.dtype == k.dtype == w.dtype == out.dtype and q.dim() == k.dim() == w.dim() >= 2):
        return False
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16) or any(
        t.shape[:-2] != q.shape[:-2] for t in (k, w)
    ):
        return False
    if not _head_sizes((q, w)):
        return False
    masks = [*scores.hidden, *scores.seen, *scores.added]
    shape = [*q.shape[:-1], k.shape[-1]]
    return all(_broadcasts(value(m).shape, shape) for m in masks)


def _head_sizes(tensors: Any) -> bool:
    """True if a kernel takes these head sizes. A symbolic size is guarded here, because it decides the kernel."""
    return all(0 < int(t.shape[-1]) <= _C.exec.LARGEST_HEAD_SIZE for t in tensors)


def _broadcasts(shape: Any, to: list[Any]) -> bool:
    if len(shape) > len(to):
        return False
    return all((isinstance(a, int) and a == 1) or a == b for a, b in zip(reversed(shape), reversed(to), strict=False))


def _disturbed(first: Node, last: Node, own: set[Node]) -> bool:
    """True if something is written in place between the two products. They would then read it at different times."""
    node = first
    while node is not last:
        if node not in own and effect_of(node) in (Effect.WRITE, Effect.OTHER):
            return True
        node = node.next
    return False


def _mask(graph: torch.fx.Graph, scores: Scores) -> Node | None:
    """Combines all masks to one: bool (false means masked) if all are bool, otherwise added."""
    seen = [*scores.seen, *(graph.call_function(torch.logical_not, (m,)) for m in scores.hidden)]
    both: Callable[..., Any] = torch.logical_and
    allowed = _fold(graph, both, seen)
    total = _fold(graph, operator.add, scores.added)
    if allowed is None or total is None:
        return allowed if total is None else total
    return graph.call_function(torch.where, (allowed, total, -math.inf))


def _fold(graph: torch.fx.Graph, combine: Callable[..., Any], nodes: list[Node]) -> Node | None:
    result: Node | None = None
    for node in nodes:
        result = node if result is None else graph.call_function(combine, (result, node))
    return result


def _keys_and_values(graph: torch.fx.Graph, k_transposed: Node, v: Node) -> tuple[Node, Node]:
    """Returns k and v without the repetition of heads, if both are repeated in the same way."""
    k: Node | None = None
    if kind(k_transposed) == "transpose":
        source, a, b = (*k_transposed.args, None, None)[:3]
        rank = value(k_transposed).dim()
        if isinstance(a, int) and isinstance(b, int) and {a % rank, b % rank} == {rank - 2, rank - 1}:
            k = source if isinstance(source, Node) else None
    if k is not None:
        few_k, few_v = _unrepeated(k), _unrepeated(v)
        if few_k is not None and few_v is not None and value(few_k).shape[1] == value(few_v).shape[1]:
            return few_k, few_v
        return k, v
    return graph.call_method("transpose", (k_transposed, -2, -1)), v


def _unrepeated(x: Node) -> Node | None:
    """Returns the tensor whose heads are repeated to give x [b, h, l, d], by repeat_interleave or x[:, :,
    None].expand(...).reshape(...). None if x is no such repetition.
    """
    if value(x).dim() != 4:
        return None
    if kind(x) == "repeat_interleave":
        dim = given(x, 2, "dim")
        return x.args[0] if dim in (1, -3) and isinstance(x.args[0], Node) else None
    if kind(x) != "reshape" or kind(x.args[0]) != "expand":
        return None
    wide = x.args[0]
    narrow = wide.args[0]  # type: ignore[union-attr]
    if kind(narrow) != "getitem" or value(narrow) is None or value(narrow).dim() != 5:
        return None
    source, index = narrow.args  # type: ignore[union-attr]
    whole = slice(None, None, None)
    if not isinstance(index, tuple) or list(index[:3]) != [whole, whole, None] or any(i != whole for i in index[3:]):
        return None
    before, after = value(source), value(x)
    kept = before is not None and before.dim() == 4 and before.shape[2:] == after.shape[2:]
    return source if kept and before.shape[0] == after.shape[0] else None  # type: ignore[return-value]


def _in_type_of(node: Node, x: Any) -> Any:
    """Returns operand x of `node` as autocast passes it on: a floating-point operand is cast to the type of the result."""
    tensor, dtype = value(x), value(node).dtype
    if tensor is None or tensor.dtype is dtype or not tensor.is_floating_point():
        return x
    return node.graph.call_method("to", (x, dtype))


def _other_rank(node: Node, changes: Changes) -> bool:
    """Handles scaled_dot_product_attention whose operands are not 4-D. PyTorch would decompose it."""
    arguments = named_arguments(node)
    q, k, v, mask = (arguments[name] for name in ("query", "key", "value", "attn_mask"))
    p, causal, scale = (arguments[name] for name in ("dropout_p", "is_causal", "scale"))
    tensors = [value(x) for x in (q, k, v)]
    if any(t is None or t.is_nested for t in tensors) or arguments["enable_gqa"] or not isinstance(p, (int, float)):
        return False
    if any(t.shape[:-2] != tensors[0].shape[:-2] or t.dtype != tensors[0].dtype for t in tensors):
        return False
    if not _head_sizes(tensors) or _needed_and_written(node, [q, k, v, mask]):
        return False
    if (
        not isinstance(scale, (int, float, type(None)))
        or not isinstance(causal, bool)
        or not tensors[0].is_floating_point()
    ):
        return False
    graph = node.graph
    with graph.inserting_before(node):
        q, k, v, mask = (_in_type_of(node, x) for x in (q, k, v, mask))
        settings: dict[str, Any] = {"p": float(p), "causal": causal, "scale": scale}
        made = graph.call_function(torch.ops.ocl.attention.default, (q, k, v, mask, None), settings)
        result = _result(made, node)
    _replace(node, made, result, changes)
    return True
