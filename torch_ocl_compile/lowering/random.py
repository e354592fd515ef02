# torch_ocl_compile/lowering/random.py: random numbers as functions of (state, stream, element).
"""PyTorch's random ops draw from hidden state: a recomputed dropout would see another mask. `functionalise` puts two
ops in their place, before the graph is cut into forward and backward:

    ocl::rng_reserve(device) -> state       int64 [seed, offset]; advances the device's generator; the only effect
    ocl::uniform(state, size, stream, ...)  Philox of (seed, offset + stream, element): pure, so recomputing is free

Only `state`, 16 bytes, is saved for backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from torch_ocl_compile._C import ir
from torch_ocl_compile.graph_ops import fake_reserve
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context
from torch_ocl_compile.lowering.registry import lower

aten = torch.ops.aten

# overload -> (our op, position of the size)
DRAWS: dict[Any, tuple[Any, int]] = {
    aten.rand.default: (torch.ops.ocl.uniform.default, 0),
    aten.randn.default: (torch.ops.ocl.normal.default, 0),
}
COMPARE = {aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar}


def functionalise(graph_module: torch.fx.GraphModule, device_type: str = "ocl") -> int:
    """Replaces random ops on `device_type` by pure ones; returns how many. One state per device, at the top."""
    graph = graph_module.graph
    draws = [n for n in graph.nodes if n.op == "call_function" and n.target in DRAWS and _device(n).type == device_type]
    if not draws:
        return 0
    states: dict[torch.device, torch.fx.Node] = {}
    streams: dict[torch.device, int] = {}
    first = next(n for n in graph.nodes if n.op != "placeholder")
    mode = draws[0].meta["val"].fake_mode
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
        target, position = DRAWS[node.target]
        stream = streams[device] = streams.get(device, -1) + 1
        with graph.inserting_before(node):
            drawn = graph.call_function(target, (states[device], node.args[position], stream, node.meta["val"].dtype))
        drawn.meta.update(node.meta)
        _tag(drawn, CheckpointPolicy.PREFER_RECOMPUTE)
        for user in list(node.users):
            if user.target in COMPARE:
                _tag(user, CheckpointPolicy.PREFER_RECOMPUTE)
        node.replace_all_uses_with(drawn)
        graph.erase_node(node)
    graph.lint()
    graph_module.recompile()
    return len(draws)


def _device(node: torch.fx.Node) -> torch.device:
    device: torch.device = node.meta["val"].device
    return device


def _tag(node: torch.fx.Node, policy: CheckpointPolicy) -> None:
    """Tells the partitioner; a node of a checkpointed region keeps the region's own tag."""
    if "recompute" not in node.meta:
        node.meta["recompute"] = policy
        node.meta["ac_graph_id"] = 0


def _lower_numbers(op: str) -> Any:
    def numbers(c: Context, state: ir.Value, size: Any, stream: int, dtype: torch.dtype) -> ir.Value:
        sizes = c.sizes
        nest = c.nest(c.val.shape)
        element = ir.IndexExpr(0)
        for i, s in zip(nest.i, sizes, strict=True):
            element = element * s + i
        seed, offset = nest.load(state, [0]), nest.load(state, [1])
        return nest.store((t.call(op, seed, offset + stream, nest.index(element)), c.dtype))[0]

    return numbers


lower(torch.ops.ocl.uniform.default)(_lower_numbers("philox_uniform"))
lower(torch.ops.ocl.normal.default)(_lower_numbers("philox_normal"))
