# tests/no_device/test_few_rows.py: products of few rows become sums over the rows of the matrix.
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.no_device.scheduling import Seen, collecting, render
from tests.no_device.test_golden import packed_weight
from tests.no_device.test_schedule import assert_scheduled_equals_unscheduled


def lowered(function: Any, *inputs: torch.Tensor) -> Seen:
    seen: list[Seen] = []
    with torch.no_grad():
        collecting(function, seen, dynamic=False)(*inputs)
    return seen[0]


def kinds(seen: Seen, caps: str) -> list[str]:
    return [kernel["kind"] for kernel in render(seen.graph, caps)["kernels"]]


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_packed_weight(rows: int, caps: str) -> None:
    packed, scale = torch.randint(0, 256, (24, 128), dtype=torch.uint8), torch.rand(24, 2)
    seen = lowered(packed_weight, torch.randn(rows, 256), packed, scale)
    assert_scheduled_equals_unscheduled(seen, caps, of_scale=1e-5)
    found = kinds(seen, caps)
    assert (found.count("reduction") == 1 and "gemm" not in found) == (rows < 9), found


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_large_plain_weight_on_a_gpu(rows: int) -> None:
    x, w = torch.randn(rows, 512), torch.randn(512, 512)
    seen = lowered(lambda x, w: F.linear(x, w).relu(), x, w)
    assert_scheduled_equals_unscheduled(seen, "gpu", of_scale=1e-5)
    assert ("gemm" in kinds(seen, "gpu")) == (rows > 4) and "gemm" in kinds(seen, "cpu16")
    assert "gemm" in kinds(lowered(torch.mm, x, w), "gpu")  # Columns of w are not contiguous.
    assert "gemm" in kinds(lowered(lambda x, w: F.linear(x, w), x, w[:256].contiguous()), "gpu")  # Too small.


def test_norm_of_one_row_is_one_launch() -> None:
    seen = lowered(lambda x, w: F.rms_norm(x, (2048,), w), torch.randn(1, 2048), torch.randn(2048))
    assert kinds(seen, "warpgroup") == ["reduction"]
    long = lowered(lambda x: x.sum(-1), torch.randn(1, 8192))
    assert kinds(long, "warpgroup") == ["reduction"] * 2
