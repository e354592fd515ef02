# tests/no_device/schedule/test_product_rows.py: how many rows of a matrix times a row a work-item computes.
from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.schedule.test_few_rows import lowered
from tests.no_device.scheduling import CAPS, render

Tensor = torch.Tensor


def product(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.float())


def gated(x: Tensor, w: Tensor) -> Tensor:
    gate, up = product(x, w).chunk(2, -1)
    return F.silu(gate) * up


def rows_of_item(function: Any, rows: int, depth: int, caps: str = "gpu") -> int:
    weight = torch.randint(-127, 128, (rows, depth), dtype=torch.int8)
    kernels = render(lowered(function, torch.randn(1, depth), weight).graph, caps)["kernels"]
    assert [kernel["kind"] for kernel in kernels] == ["reduction"]
    found = re.search(r"if \((?:live && )?lane < (\d)\) \{\n *const int \w+ = i0_first", kernels[0]["text"])
    return int(found[1]) if found else 1


@pytest.mark.parametrize(
    ("function", "rows", "depth", "count"),
    [
        (product, 2048, 1024, 4),
        (product, 2050, 1024, 2),  # Four do not divide the rows.
        (product, 2049, 1024, 1),
        (gated, 4096, 1024, 4),
        (product, 256, 1024, 2),  # With four, most of the 32 compute units would have too little to load.
        (product, 64, 1024, 1),
    ],
)
def test_rows_that_share_the_row(function: Any, rows: int, depth: int, count: int) -> None:
    assert rows_of_item(function, rows, depth) == count


def test_more_compute_units_need_more_rows() -> None:
    assert CAPS["warpgroup"]["units"] > CAPS["gpu"]["units"]
    assert rows_of_item(product, 1536, 1024, "gpu") == 4 and rows_of_item(product, 1536, 1024, "warpgroup") == 2


def sums_of_rows(x: Tensor, w: Tensor) -> Tensor:
    return w.float().sum(-1) + x[0, 0]


def normed_rows(x: Tensor, w: Tensor) -> Tensor:
    """A norm reads its rows again."""
    return F.layer_norm(w.float(), (w.shape[1],), x[0])


@pytest.mark.parametrize("function", [sums_of_rows, normed_rows])
def test_rows_that_share_nothing(function: Any) -> None:
    assert rows_of_item(function, 2048, 1024) == 1
