# tests/no_device/schedule/test_byte_products.py: how products of int8 are computed, depending on instructions and sizes.
from __future__ import annotations

import pytest
import torch

from tests.no_device.schedule.test_few_rows import lowered
from tests.no_device.schedule.test_schedule import assert_scheduled_equals_unscheduled
from tests.no_device.scheduling import render


def linear(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(x, w.t()) * scale


def kernel_of(text: str) -> str:
    macros = {"#define COLUMNS": "dot_pairs_item", "#define B_LAYOUT": "pairs_item"}
    return next((kernel for macro, kernel in macros.items() if macro in text), "other")


@pytest.mark.parametrize(
    ("caps", "rows", "depth", "products"),
    [
        ("words", 3, 100, ["dot_pairs_item"]),
        ("words", 16, 2050, ["pairs_item"]),  # Its rows do not stay in the L1 cache.
        ("words", 17, 100, ["pairs_item"]),
        # Without the instruction, there is a product of bf16 for each 1024 of the depth; loops compute a few rows.
        ("cpu16", 9, 2050, ["other"] * 3),
        ("cpu16", 8, 2050, []),
        ("gpu", 24, 1024, ["other"]),
    ],
)
def test_products_of_int8(caps: str, rows: int, depth: int, products: list[str]) -> None:
    x = torch.randint(-128, 128, (rows, depth), dtype=torch.int8)
    seen = lowered(linear, x, torch.randint(-128, 128, (24, depth), dtype=torch.int8), torch.rand(24))
    assert_scheduled_equals_unscheduled(seen, caps, of_scale=1e-6)
    kernels = [kernel for kernel in render(seen.graph, caps)["kernels"] if kernel["kind"] == "gemm"]
    assert [kernel_of(kernel["text"]) for kernel in kernels] == products
    of_bytes = ["#define IN_INT8 1" in kernel["text"] for kernel in kernels]
    assert of_bytes == [caps == "words"] * len(products)
