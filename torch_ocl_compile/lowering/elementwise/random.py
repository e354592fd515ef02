# torch_ocl_compile/lowering/elementwise/random.py: random numbers as pure functions of a random state and a position.
"""PyTorch's random ops draw from hidden state, so a recomputed dropout would get another mask. `functionalise` replaces
them by the following ops, before the graph is split into forward and backward:

    ocl::rng_reserve(device, count) -> state  int64 [seed, offset]; it advances the device's generator, its only effect
    ocl::uniform(state, size, stream, ...)    Philox of (seed, offset + stream, element / 4): pure, so it can be recomputed

ocl::normal and ocl::randint are like ocl::uniform. Only the state, 16 bytes, is saved for backward. Other
distributions are formulas of these three (decompositions/random.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx import attention_ops
from torch_ocl_compile.fx.effects import named_arguments
from torch_ocl_compile.fx.graph_pass import Changes, graph_pass, set_policy
from torch_ocl_compile.fx.ops import UNIFORM_STEPS, fake_reserve
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.complex_value import Complex, is_complex, real_dtype
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower, lower_complex
from torch_ocl_compile.lowering.core.term import Nest, Term

aten = torch.ops.aten

ATTENTION = {
    torch.ops.ocl.attention.default,
    torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default,
}
ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
# Overload -> (replacement op, position of the size argument, function that returns the arguments after the dtype).
DRAWS: dict[Any, tuple[Any, int, Callable[[torch.fx.Node], tuple[Any, ...]]]] = {
    aten.rand.default: (torch.ops.ocl.uniform.default, 0, lambda n: ()),
    aten.randn.default: (torch.ops.ocl.normal.default, 0, lambda n: ()),
    aten.randint.default: (torch.ops.ocl.randint.default, 1, lambda n: (0, n.args[0])),
    aten.randint.low: (torch.ops.ocl.randint.default, 2, lambda n: (n.args[0], n.args[1])),
}
COMPARE = {aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar}


@graph_pass
def functionalise(graph_module: torch.fx.GraphModule, changes: Changes, device_type: str = "ocl") -> int:
    """Replaces the random ops on `device_type` by pure ones, and returns how many.

    Each device gets one state, which is reserved at the top of the graph.
    """
    graph = graph_module.graph
    draws = [n for n in graph.nodes if n.op == "call_function" and _draws(n) and _device(n).type == device_type]
    if not draws:
        return 0
    states: dict[torch.device, torch.fx.Node] = {}
    streams: dict[torch.device, int] = {}
    first = next(n for n in graph.nodes if n.op != "placeholder")
    mode = _first(draws[0].meta["val"]).fake_mode
    for node in draws:
        device = _device(node)
        if device not in states:
            total = sum(_device(n) == device for n in draws)
            with graph.inserting_before(first):
                state = graph.call_function(torch.ops.ocl.rng_reserve.default, (device, total))
            with mode:
                state.meta["val"] = fake_reserve(device, total)
            _tag(state, CheckpointPolicy.MUST_SAVE)
            states[device] = state
        stream = streams[device] = streams.get(device, -1) + 1
        if node.target in ATTENTION:
            with graph.inserting_before(node):
                own = graph.call_function(torch.ops.ocl.rng_stream.default, (states[device], stream))
            own.meta["val"] = states[device].meta["val"]
            _tag(own, CheckpointPolicy.PREFER_RECOMPUTE)
            changes.move_effect(node, states[device])
            seed_attention(node, own, changes)
            continue
        target, position, extra = DRAWS[node.target]
        with graph.inserting_before(node):
            settings = (node.args[position], stream, node.meta["val"].dtype, *extra(node))
            drawn = graph.call_function(target, (states[device], *settings))
        drawn.meta.update(node.meta)
        _tag(drawn, CheckpointPolicy.PREFER_RECOMPUTE)
        for user in list(node.users):
            if user.target in COMPARE:
                _tag(user, CheckpointPolicy.PREFER_RECOMPUTE)
        changes.move_effect(node, states[device])
        changes.replace(node, drawn)
    return len(draws)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _device(node: torch.fx.Node) -> torch.device:
    device: torch.device = _first(node.meta["val"]).device
    return device


def _draws(node: torch.fx.Node) -> bool:
    if node.target in ATTENTION:
        given = named_arguments(node)
        p: Any = given.get("p", given.get("dropout_p"))
        return p > 0 and given.get("state") is None and _replaceable(node)
    return node.target in DRAWS


def _replaceable(node: torch.fx.Node) -> bool:
    """Returns whether the results that only PyTorch's op has are read by nothing but its gradient."""
    if node.target is torch.ops.ocl.attention.default:
        return True
    parts = [u for u in node.users if u.target is operator.getitem]
    readers = [u for part in parts if part.args[1] not in (0, 1) for u in part.users]
    return len(parts) == len(node.users) and all(u.target is ATTENTION_BACKWARD for u in readers)


@graph_pass
def own_attention(graph_module: torch.fx.GraphModule, changes: Changes) -> None:
    """Replaces PyTorch's fused attention without dropout by ocl::attention, which returns no seed and offset to save."""
    for node in list(graph_module.graph.nodes):
        if node.target in ATTENTION and node.target is not torch.ops.ocl.attention.default and _replaceable(node):
            seed_attention(node, None, changes)


def seed_attention(node: torch.fx.Node, state: torch.fx.Node | None, changes: Changes) -> None:
    """Makes an attention and its gradient take their dropout from `state`, and replaces PyTorch's op by ocl::attention."""
    graph, given = node.graph, named_arguments(node)
    parts: dict[Any, torch.fx.Node] = {u.args[1]: u for u in node.users if u.target is operator.getitem}
    if node.target is torch.ops.ocl.attention.default:
        node.args = (*node.args[:4], state, *node.args[5:])
        if 2 in parts and state is not None:
            changes.replace(parts[2], state)
        return
    settings = {"p": given["dropout_p"], "causal": given["is_causal"], "scale": given["scale"]}
    operands = [given[name] for name in ("query", "key", "value", "attn_bias")]
    with graph.inserting_before(node):
        made = graph.call_function(torch.ops.ocl.attention.default, (*operands, state), settings)
    made.meta.update(node.meta)
    value = node.meta["val"]
    query = given["query"].meta["val"]
    with value[0].fake_mode:
        sums = value[1].new_empty([2, *query.shape[:-1]], dtype=attention_ops.statistics_dtype(query))
        drawn = value[1].new_empty([2], dtype=torch.int64) if state is None else state.meta["val"]
    made.meta["val"] = (value[0], sums, drawn)
    changes.replace(node, made)
    # The getitem nodes that follow become getitem nodes of the new op, so that their values are saved for backward.
    for position in (0, 1):
        if position in parts:
            parts[position].args = (made, position)
            parts[position].meta["val"] = made.meta["val"][position]
    for user in dict.fromkeys(u for n in parts.values() for u in n.users):
        if user.target is not ATTENTION_BACKWARD:
            continue
        known = named_arguments(user)
        taken = [known[n] for n in ("grad_out", "query", "key", "value", "out", "logsumexp", "attn_bias")]
        with graph.inserting_before(user):
            gradient = graph.call_function(
                torch.ops.ocl.attention_backward.default,
                (*taken, state),
                {"wanted": known["grad_input_mask"], **settings},
            )
        gradient.meta.update(user.meta)
        values = zip(user.meta["val"], known["grad_input_mask"], strict=True)
        gradient.meta["val"] = tuple(value if wanted else None for value, wanted in values)
        changes.replace(user, gradient)
    for position, part in parts.items():
        if position > 1 and not part.users:
            changes.erase(part)


def _tag(node: torch.fx.Node, policy: CheckpointPolicy) -> None:
    """Tells the partitioner whether to save or recompute the node. A node in a checkpointed region keeps that region's
    tag."""
    if "recompute" not in node.meta:
        set_policy(node, policy)


@lower(torch.ops.ocl.rng_stream.default)
def rng_stream(c: Context, state: ir.Value, stream: int) -> ir.Value:
    nest = c.nest(c.val.shape)
    added = nest.index(nest.i[0]) * stream
    return nest.store((nest.load(state, nest.i) + added, c.dtype))[0]


def _draw(c: Context, op: str, state: ir.Value, stream: int) -> tuple[Nest, list[Term]]:
    """Returns (a nest over the result, `op` applied to the index of its element, or to the indices of its two parts)."""
    nest = c.nest(c.val.shape)
    element = ir.IndexExpr(0)
    for i, s in zip(nest.i, c.sizes, strict=True):
        element = element * s + i
    seed, offset = nest.load(state, [0]), nest.load(state, [1])
    indices = [element * 2, element * 2 + 1] if is_complex(c.val) else [element]
    return nest, [t.call(op, seed, offset + stream, nest.index(index)) for index in indices]


def _stored(c: Context, nest: Nest, drawn: list[Term]) -> Any:
    dtype = ir_dtype(real_dtype(c.val.dtype))
    values = nest.store(*((term, dtype) for term in drawn))
    return Complex(*values) if is_complex(c.val) else values[0]


@lower(torch.ops.ocl.uniform.default)
@lower_complex("ocl.uniform.default")
def uniform(c: Context, state: ir.Value, size: Any, stream: int, dtype: torch.dtype) -> Any:
    """Draws uniform numbers in [0, 1). In 16-bit types they have only so many bits that none rounds up to 1."""
    nest, drawn = _draw(c, "philox_lane", state, stream)
    steps = UNIFORM_STEPS.get(real_dtype(dtype))
    if steps is not None:
        drawn = [t.call("floor", term * float(steps)) * (1 / steps) for term in drawn]
    return _stored(c, nest, drawn)


@lower(torch.ops.ocl.normal.default)
@lower_complex("ocl.normal.default")
def normal(c: Context, state: ir.Value, size: Any, stream: int, dtype: torch.dtype) -> Any:
    """Draws normal numbers of variance 1, which the parts of a complex number share."""
    nest, drawn = _draw(c, "philox_normal", state, stream)
    return _stored(c, nest, [term * math.sqrt(0.5) for term in drawn] if is_complex(c.val) else drawn)


@lower(torch.ops.ocl.randint.default)
def randint(c: Context, state: ir.Value, size: Any, stream: int, dtype: torch.dtype, low: Any, high: Any) -> ir.Value:
    """Returns low + (63 random bits modulo the width); the distribution is uniform up to a relative error of width /
    2^63."""
    nest, (bits,) = _draw(c, "philox_bits", state, stream)
    first, end = nest.index(c.size(low)), nest.index(c.size(high))
    positive = t.call("bitwise_and", bits, nest.constant(2**63 - 1, ir.DType.kI64))
    return nest.store((first + t.call("remainder", positive, end - first), c.dtype))[0]


@lower("ocl.checked.default")
def checked(c: Context, x: ir.Value, faults: ir.Value, message: str) -> ir.Value:
    return x
