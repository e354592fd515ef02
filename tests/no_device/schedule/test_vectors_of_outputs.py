# tests/no_device/schedule/test_vectors_of_outputs.py: when a GPU's work-item computes vectors of outputs.
"""Pooling of channels-last images, and images that a convolution reads in padded pixels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import render
from torch_ocl_compile._C import ir


def rendered_for(function: Callable[..., Any], *inputs: torch.Tensor) -> dict[str, Any]:
    graphs: list[ir.Graph] = []
    compiled(function, graphs)(*inputs)
    return render(graphs[0], "warpgroup")


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, 1)


@pytest.mark.parametrize(
    ("dtype", "batch", "layout", "vector"),
    [
        (torch.bfloat16, 32, torch.channels_last, "vector 8 "),
        (torch.float32, 32, torch.channels_last, "vector 4 "),
        (torch.bfloat16, 32, torch.contiguous_format, "vector 1 "),  # Columns are two elements apart.
        (torch.bfloat16, 1, torch.channels_last, "vector 1 "),  # Too few outputs for all compute units.
    ],
)
def test_pooling(dtype: torch.dtype, batch: int, layout: torch.memory_format, vector: str) -> None:
    x = torch.zeros(batch, 64, 56, 56, dtype=dtype).to(memory_format=layout)
    rendered = rendered_for(pooled, x)
    assert vector in rendered["schedule"], rendered["schedule"]
    text = rendered["kernels"][0]["text"].split("__kernel")[1]
    # A load beyond the image gives -infinity, without a selection. Behind its condition is nothing but the load.
    assert re.search(r"\? \w+ : ", text) is None
    if vector == "vector 8 ":
        assert re.search(r"if \((v\d+)\) \w+ = \*\(__global const uint4\*\)\(in0", text)


def test_padded_pixels() -> None:
    def first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x.bfloat16(), w.bfloat16(), stride=2, padding=1)

    rendered = rendered_for(first, torch.zeros(32, 3, 224, 224), torch.zeros(32, 3, 3, 3))
    assert "loops pointwise [32, 224, 113, 8] vector 8 " in rendered["schedule"], rendered["schedule"]


@pytest.mark.parametrize(("highest", "rounds"), [(6.0, False), (0.3, True)])
def test_no_second_rounding(highest: float, rounds: bool) -> None:
    """What is picked from numbers of 16 bits and constants that such a number holds needs no rounding."""
    x = torch.zeros(256, 256, dtype=torch.bfloat16)
    rendered = rendered_for(lambda x: F.hardtanh(x, 0.0, highest), x)
    assert ("op_round" in rendered["kernels"][0]["text"]) == rounds
