# torch_ocl_compile/tools/repro.py: runs a program that compile/repro.py wrote.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from torch_ocl_compile.compile.backend import compile_or_raise


def tensor(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str = "ocl"
) -> Callable[[], torch.Tensor]:
    """Returns a function that makes an argument: normal numbers, or zeros of a dtype that may hold indices."""

    def make() -> torch.Tensor:
        values = (
            torch.randn(shape).to(dtype)
            if dtype.is_floating_point or dtype.is_complex
            else torch.zeros(shape, dtype=dtype)
        )
        return torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device=device).copy_(values)

    return make


def run(
    forward: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    constants: Path | None,
    kind: str,
    settings: Mapping[str, Any],
) -> None:
    """Compiles the graph of `forward(self, *arguments)`, runs it, and compares it with PyTorch op by op."""
    torch.manual_seed(0)
    root = type("Graph", (torch.nn.Module,), {"forward": forward})()
    for name, value in (torch.load(constants) if constants else {}).items():
        root.register_buffer(name, value)
    values = [make() if callable(make) else make for make in arguments]
    gm = torch.fx.symbolic_trace(root)
    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*values)
    expected = gm(*_clones(values))
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    # Numbers have no fake value in torch 2.11.
    places = [node.meta.get("val", value) for node, value in zip(placeholders, values, strict=True)]
    found = compile_or_raise(gm, places, kind, dict(settings), "repro")(_clones(values))
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if isinstance(ours, torch.Tensor):
            apart = (ours.cpu().double() - theirs.cpu().double()).abs()
            largest = apart.max().item() if apart.numel() else 0.0
            print(f"result {number}: shape {tuple(ours.shape)}, largest difference {largest:.2e}")
    print("The graph compiles and runs here.")


def _clones(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
