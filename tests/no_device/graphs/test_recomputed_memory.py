# tests/no_device/graphs/test_recomputed_memory.py: backward graphs recompute what they should, and when they need it.
"""Graphs are scheduled for fixed capabilities. Nothing is computed: the forward's results are empty tensors."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import render, traced
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import joint_graph
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


class Block(nn.Module):
    """A block of a transformer without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = nn.functional.gelu(self.wide(self.norm(x)))
        return x + self.narrow(wide)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("dtype", "pays"), [(torch.float32, True), (torch.bfloat16, False)])
def test_operands_of_products_are_computed_again(
    dtype: torch.dtype, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_graph, "_is_fp32_on_gpu", lambda x: x.dtype is torch.float32)
    torch.manual_seed(0)
    model, x, grad = nn.Sequential(Block(), Block()).to(dtype), torch.randn(40, 32).to(dtype), torch.randn(40, 32)
    graphs: list[ir.Graph] = []
    results = compiled(lambda x: model(x), graphs)(x)
    results.backward(grad.to(dtype))
    saved = [tuple(graphs[0].buffers[output.buffer].sizes) for output in graphs[0].outputs]
    wide = [sizes for sizes in saved if "128" in str(sizes)]
    assert len(wide) == (2 if pays else 4)  # The result of a gelu is saved beside its input, or not.
    exact = nn.Sequential(Block(), Block()).double()
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    exact(x.double()).backward(grad.to(dtype).double())
    limit = 1e-5 if pays else 5e-2
    for got, want in zip(model.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(got.grad.double(), want.grad, rtol=limit, atol=limit)
