# tests/no_device/graphs/test_recomputed_memory.py: backward graphs recompute activations when they need them, not all at the start.
"""Graphs are scheduled for fixed capabilities. Nothing is computed: the forward's results are empty tensors."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from tests.no_device.scheduling import render, traced
from torch_ocl_compile.lowering.graphs.graph import lower_module

LAYERS = 8
SHAPE = (16, 64, 112, 112)
BYTES = 2 * torch.Size(SHAPE).numel()  # of one activation in bf16


class Net(nn.Sequential):
    def __init__(self) -> None:
        layers = [(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(LAYERS)]
        super().__init__(*(part for layer in layers for part in layer))


def schedules(model: nn.Module, x: torch.Tensor) -> dict[str, str]:
    """Returns the schedule of the forward and of the backward of the model's sum."""
    found: dict[str, str] = {}

    def compiler(kind: str, gm: torch.fx.GraphModule, _: Any) -> Any:
        found[kind] = render(lower_module(gm).graph, "warpgroup")["schedule"]
        nodes = next(node for node in gm.graph.nodes if node.op == "output").args[0]
        values = [node.meta["val"] if isinstance(node, torch.fx.Node) else None for node in nodes]

        def run(args: list[Any]) -> list[Any]:
            args.clear()
            return [
                torch.empty_strided(v.size(), v.stride(), dtype=v.dtype) if isinstance(v, torch.Tensor) else v
                for v in values
            ]

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().sum()  # type: ignore[no-any-return]

    torch._dynamo.reset()
    torch.compile(loss, backend=lambda gm, inputs: traced(gm, inputs, compiler))(x).backward()  # type: ignore[no-untyped-call]
    return found


def peak_bytes(schedule: str) -> int:
    """Returns the most bytes of intermediate results that are alive at a time."""
    spans = [
        tuple(map(int, m.groups())) for m in re.finditer(r"arena \d+, groups (\d+) to (\d+), (\d+) bytes", schedule)
    ]
    return max(
        sum(size for first, last, size in spans if first <= g <= last) for g in range(1 + max(s[1] for s in spans))
    )


def test_activations_are_recomputed_late() -> None:
    backward = schedules(Net(), torch.empty(SHAPE))["backward"]
    assert backward.count("aten.convolution_backward") >= LAYERS
    assert peak_bytes(backward) < 4 * BYTES
