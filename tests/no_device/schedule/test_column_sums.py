# tests/no_device/schedule/test_column_sums.py: how GPUs read the columns that they add up.
"""Graphs are scheduled for fixed capabilities. tests/device/kernels/test_rows_group.py checks what the kernels compute."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import CAPS, render
from torch_ocl_compile._C import ir


def column_sum(dtype: ir.DType, rows: int, columns: int, reduction: str = "sum") -> dict[str, Any]:
    b = ir.Builder()
    x = b.input(dtype, [rows, columns], [columns, 1])
    for value in b.reduce(reduction, x, [0], False, None):
        b.output(value, [])
    return render(b.finish(), "warpgroup")


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "wanted"),
    [
        (ir.DType.kBF16, 4096, 3072, "columns 16 vector 8"),
        (ir.DType.kF16, 4096, 768, "columns 16 vector 8"),
        (ir.DType.kF32, 4096, 768, "columns 8 vector 4"),
        (ir.DType.kBF16, 12608, 768, "columns 32 vector 8"),
        (ir.DType.kBF16, 4096, 771, "columns 16 vector 1"),
        (ir.DType.kI32, 4096, 768, "columns 8 vector 1"),
    ],
)
def test_vectors(dtype: ir.DType, rows: int, columns: int, wanted: str) -> None:
    rendered = column_sum(dtype, rows, columns)
    groups = [line for line in rendered["schedule"].splitlines() if line.startswith("group ")]
    assert wanted in groups[0], rendered["schedule"]
    text = rendered["kernels"][0]["text"]
    vector = {ir.DType.kBF16: "uint4", ir.DType.kF16: "ushort8"}.get(dtype, "float4")
    assert (f"(__global const {vector}*)(in0" in text) == ("vector 1" not in wanted), text


def test_several_accumulators_stay_scalar() -> None:
    """A vector of three numbers for each column would take too many registers."""
    assert "vector 1" in column_sum(ir.DType.kF32, 4096, 768, "welford")["schedule"].splitlines()[0]


@pytest.mark.parametrize("local_is_global", [False, True])
def test_columns_are_shared_by_fewer_items_where_local_memory_is_global(
    local_is_global: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16384 columns are a column for each of 512 work-items of 32 compute units."""
    b = ir.Builder()
    x = b.input(ir.DType.kF32, [512, 16384], [16384, 1])
    b.output(b.reduce("sum", x, [0], False, None)[0], [])
    monkeypatch.setitem(CAPS, "shared", CAPS["gpu"] | {"local_is_global": local_is_global})
    rendered = render(b.finish(), "shared")
    assert ("__local" in rendered["kernels"][0]["text"]) != local_is_global, rendered["schedule"]


@pytest.mark.parametrize("columns", [768, 771])
def test_concatenated_gradients(columns: int) -> None:
    """Each vector of a sum of padded tensors lies in one of them, so its condition is a scalar."""
    b = ir.Builder()
    parts = [b.input(ir.DType.kBF16, [4096, columns], [columns, 1]) for _ in range(3)]
    joined = ir.BodyBuilder(b, [4096, 3 * columns])
    total = joined.constant(0.0, ir.DType.kF32)
    column = ir.IndexExpr.loop(1)
    for k, part in enumerate(parts):
        number = joined.index(column // columns - k, ir.DType.kI64)
        mask = joined.op("eq", [number, joined.constant(0, ir.DType.kI64)])
        total = joined.op("add", [total, joined.load(part, [ir.IndexExpr.loop(0), column % columns], mask)])
    b.output(b.reduce("sum", joined.store([total], [ir.DType.kF32])[0], [0], False, None)[0], [])
    rendered = render(b.finish(), "warpgroup")
    loads = re.findall(r"if \((v\d+)\) \w+ = \*\(__global const uint4\*\)", rendered["kernels"][0]["text"])
    assert bool(loads) == (columns == 768), rendered["schedule"]


def test_rows_at_loaded_numbers() -> None:
    """The gradient of an embedding adds up rows in sorted order. Neighbouring work-items take neighbouring columns."""
    graphs: list[ir.Graph] = []
    gradient, indices = torch.zeros(8192, 256), torch.zeros(8192, dtype=torch.int64)
    compiled(lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 8192, -1, False), graphs)(gradient, indices)
    scans = [k["text"] for k in render(graphs[0], "warpgroup")["kernels"] if k["name"].startswith("scan_sum")]
    assert scans and all("__local" not in text for text in scans)
