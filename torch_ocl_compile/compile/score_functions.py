# torch_ocl_compile/compile/score_functions.py: what the functions score_mod and mask_mod of FlexAttention do to all scores at once.
"""Both are graphs of scalars: (score,) b, h, q_idx, kv_idx, and the tensors that they capture. torch.vmap applies them to the
ranges of all indices. An index that a function does not read gets a range of one element, so that a mask of queries and keys
has no copy for each head.

A score_mod is additive if it computes scale * score + bias, or cap * tanh(scale * score / cap) + bias, and hides some scores.
Attention kernels have the cap, and take such a bias as a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.interpreter import Interpreter
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten

Sizes = Sequence[Any]  # [batch, heads, queries, keys]
INDICES = 4  # b, h, q_idx, kv_idx


class NotAdditive(Exception):
    """A score_mod is not additive. The message says why."""


class IndexByTensors(TorchFunctionMode):
    """Makes x[i] a gather if i is a tensor of no dimensions. Otherwise PyTorch would read i on the host."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.__getitem__:
            x, given = args
            indices = given if isinstance(given, tuple) else (given,)
            if any(isinstance(i, Tensor) for i in indices) and all(isinstance(i, (Tensor, int)) for i in indices):
                for dim in reversed(range(len(indices))):
                    if isinstance(indices[dim], int):
                        x = aten.select.int(x, dim, indices[dim])
                return aten.index.Tensor(x, [i for i in indices if isinstance(i, Tensor)])
        return function(*args, **(kwargs or {}))


def numbers_of(constant: Tensor) -> Any:
    """Returns the number or the lists of numbers that a constant of a traced graph has."""
    known: Any = getattr(constant, "constant", None) if hasattr(constant, "fake_mode") else constant
    with unset_fake_temporarily():
        return known.tolist()


@dataclass(frozen=True)
class Score:
    """cap(scale * score) + bias where `seen`, else -inf, with cap(x) = cap * tanh(x / cap)."""

    scale: float = 1.0
    cap: float = 0.0  # 0: the score is not capped.
    bias: Any = None  # A tensor or a number. None: nothing is added.
    seen: Tensor | None = None

    def plus(self, x: Any) -> Score:
        return replace(self, bias=x if self.bias is None else self.bias + x)

    def times(self, factor: float) -> Score:
        if not (0 < factor < math.inf):
            raise NotAdditive(f"it multiplies the score by {factor}")
        bias = None if self.bias is None else self.bias * factor
        return Score(self.scale * factor, self.cap * factor, bias, self.seen)

    def hidden_unless(self, seen: Tensor) -> Score:
        return replace(self, seen=seen if self.seen is None else self.seen & seen)


class ScoreInterpreter(Interpreter):
    """Runs a score_mod in aten ops with a Score in place of the score. Returns a Score. Raises NotAdditive."""

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if any(isinstance(x, Score) for x in (*args, *kwargs.values())):
            rule = RULES.get(n.target)
            if rule is None:
                raise NotAdditive(f"it applies {_name(n)} to the score")
            return rule(self, n, *args, **kwargs)
        return super().run_node(n)

    def literal(self, x: Any) -> float | None:
        """Returns the number that an argument of a node is, or None."""
        if isinstance(x, (int, float)):
            return float(x)
        if not isinstance(x, Node):
            return None
        if x.op == "get_attr":
            constant = getattr(self.module, str(x.target))
            return float(numbers_of(constant)) if constant.dim() == 0 else None
        if x.target in (aten.full.default, aten.full_like.default):
            return self.literal(x.args[1])
        if x.target in (aten.scalar_tensor.default, *COPIES):
            return self.literal(x.args[0])
        return None


COPIES = (
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten._to_copy.default,
    aten.alias.default,
    aten.detach.default,
    aten.clone.default,
    torch.ops.prims.convert_element_type.default,
)


def _name(n: Node) -> str:
    return str(getattr(getattr(n.target, "overloadpacket", n.target), "__name__", n.target))


def _add(it: ScoreInterpreter, n: Node, x: Any, y: Any, *, alpha: float = 1) -> Score:
    if isinstance(x, Score) and isinstance(y, Score):
        raise NotAdditive("it adds the score to itself")
    if isinstance(x, Score):
        return x.plus(y if alpha == 1 else y * alpha)
    score: Score = y
    return score.times(alpha).plus(x)


def _sub(it: ScoreInterpreter, n: Node, x: Any, y: Any, *, alpha: float = 1) -> Score:
    return _add(it, n, x, y, alpha=-alpha)


def _mul(it: ScoreInterpreter, n: Node, x: Any, y: Any) -> Score:
    score: Score
    score, node = (x, n.args[1]) if isinstance(x, Score) else (y, n.args[0])
    factor = it.literal(node)
    if factor is None or (isinstance(x, Score) and isinstance(y, Score)):
        raise NotAdditive("it multiplies the score by a value that is computed")
    return score.times(factor)


def _div(it: ScoreInterpreter, n: Node, x: Any, y: Any) -> Score:
    divisor = it.literal(n.args[1])
    if divisor is None or not isinstance(x, Score) or divisor == 0:
        raise NotAdditive("it divides by a value that is computed")
    return x.times(1 / divisor)


def _where(it: ScoreInterpreter, n: Node, condition: Any, x: Any, y: Any) -> Score:
    if isinstance(condition, Score):
        raise NotAdditive("it decides by the score")
    if isinstance(x, Score) and isinstance(y, Score):
        if (x.scale, x.cap) != (y.scale, y.cap):
            raise NotAdditive("it scales scores differently")
        left, right = (0.0 if s.bias is None else s.bias for s in (x, y))
        bias = None if x.bias is None and y.bias is None else torch.where(condition, left, right)
        if x.seen is None and y.seen is None:
            return replace(x, bias=bias)
        left, right = (torch.ones_like(condition) if s.seen is None else s.seen for s in (x, y))
        return replace(x, bias=bias, seen=torch.where(condition, left, right))
    score: Score
    score, other, seen = (x, n.args[2], condition) if isinstance(x, Score) else (y, n.args[1], ~condition)
    if it.literal(other) != -math.inf:
        raise NotAdditive("it replaces scores by values other than -inf")
    return score.hidden_unless(seen)


def _masked_fill(it: ScoreInterpreter, n: Node, x: Any, hidden: Any, fill: Any) -> Score:
    if isinstance(hidden, Score) or not isinstance(x, Score) or it.literal(n.args[2]) != -math.inf:
        raise NotAdditive("it replaces scores by values other than -inf")
    return x.hidden_unless(~hidden)


def _copy(it: ScoreInterpreter, n: Node, x: Score, *args: Any, **kwargs: Any) -> Score:
    source = n.args[0]
    assert isinstance(source, Node)
    if n.meta["val"].dtype is not source.meta["val"].dtype:
        raise NotAdditive("it rounds the score to another type")
    return x


def _tanh(it: ScoreInterpreter, n: Node, x: Score) -> Score:
    if x.cap > 0 or x.bias is not None or x.seen is not None:
        raise NotAdditive("it applies tanh to more than a scaled score")
    return replace(x, cap=1.0)


RULES: dict[Any, Callable[..., Score]] = {
    aten.add.Tensor: _add,
    aten.add.Scalar: _add,
    aten.sub.Tensor: _sub,
    aten.sub.Scalar: _sub,
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.where.self: _where,
    aten.tanh.default: _tanh,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    **dict.fromkeys(COPIES, _copy),
}


@dataclass
class ScalarFunction:
    """A score_mod or mask_mod in aten ops."""

    graph: GraphModule
    captured: Sequence[Any]  # Its captured tensors and sizes.

    @property
    def indices(self) -> list[Node]:
        places = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        return places[len(places) - len(self.captured) - INDICES :][:INDICES]

    def ranges(self, sizes: Sizes, device: torch.device) -> list[Tensor]:
        """Returns the range of each index. It has one element if the function does not read the index."""
        return [
            torch.arange(size if n.users else 1, device=device, dtype=torch.int32)
            for n, size in zip(self.indices, sizes, strict=True)
        ]

    @property
    def is_identity(self) -> bool:
        nodes = list(self.graph.graph.nodes)
        return nodes[-1].args[0] is nodes[0]

    @property
    def is_causal(self) -> bool:
        """True for a mask_mod that is written as q_idx >= kv_idx or kv_idx <= q_idx, whatever the sizes are."""
        _, _, query, key = self.indices
        seen = list(self.graph.graph.nodes)[-1].args[0]
        ways = {aten.ge.Tensor: (query, key), aten.le.Tensor: (key, query)}
        return isinstance(seen, Node) and seen.args == ways.get(seen.target)  # type: ignore[call-overload]


def trace(function: Any, score: Tensor | None, captured: Sequence[Any], device: torch.device) -> ScalarFunction:
    """Traces a score_mod, or a mask_mod if `score` is None. Call it in the fake mode of the graph."""
    with IndexByTensors():
        graph = make_fx(function)(*([] if score is None else [score]), *_one_of_each(device), *captured)
    graph.graph.eliminate_dead_code()
    return ScalarFunction(graph, captured)


def _one_of_each(device: torch.device) -> list[Tensor]:
    """Returns the four indices of one score."""
    return [torch.zeros((), dtype=torch.int32, device=device) for _ in range(INDICES)]


def over_all(function: Callable[..., Any], score: bool, captured: int) -> Callable[..., Any]:
    """Applies a function of scalars to all scores: function(score [b, h, q, k] if `score`, four ranges, captured tensors)."""
    first, rest = (0,) if score else (), (None,) * captured
    for own in range(INDICES):
        dims = tuple(0 if i == INDICES - 1 - own else None for i in range(INDICES))
        function = torch.vmap(function, in_dims=(*first, *dims, *rest))
    return function


def seen_by(mask: ScalarFunction, sizes: Sizes, device: torch.device, captured: Sequence[Any]) -> Tensor:
    """Returns the mask [b or 1, h or 1, q or 1, k or 1] of a mask_mod: true where a query sees a key."""
    result: Tensor = over_all(mask.graph, False, len(captured))(*mask.ranges(sizes, device), *captured)
    return result


def scale_of(score_mod: ScalarFunction, score: Tensor) -> Score:
    """Runs an additive score_mod for one score. Returns its scale, and whether there are a bias and a mask. Raises NotAdditive."""
    result = ScoreInterpreter(score_mod.graph).run(Score(), *_one_of_each(score.device), *score_mod.captured)
    if not isinstance(result, Score):
        raise NotAdditive("it does not read the score")
    return result


def added_by(
    score_mod: ScalarFunction, kind: Score, sizes: Sizes, like: Tensor, captured: Sequence[Any]
) -> list[Tensor | None]:
    """Returns what an additive score_mod adds to the scores, and the mask of scores that it does not hide. None: nothing.

    kind: the result of scale_of. like: a tensor with the type of scores."""

    def both(*args: Any) -> tuple[Tensor, ...]:
        made = ScoreInterpreter(score_mod.graph).run(Score(), *args)
        bias = made.bias
        if isinstance(bias, Tensor):
            bias = bias.to(like.dtype)
        elif bias is not None:
            bias = torch.full((), bias, dtype=like.dtype, device=like.device)
        return tuple(x for x in (bias, made.seen) if x is not None)

    ranges = score_mod.ranges(sizes, like.device)
    found = iter(over_all(both, False, len(captured))(*ranges, *captured))
    return [None if x is None else next(found) for x in (kind.bias, kind.seen)]
