# tests/no_device/schedule/test_crossed_loops.py: along which loop a transposition on a GPU has its vectors.
"""tests/device/kernels/test_transpositions.py checks what the kernels compute."""

from __future__ import annotations

import pytest

from tests.no_device.scheduling import render
from torch_ocl_compile._C import ir


@pytest.mark.parametrize(
    ("dtype", "rows", "pitch", "vector"),
    [
        (ir.DType.kF32, 2048, 2048, " vector 8 along i0 "),
        (ir.DType.kBF16, 2048, 2048, " vector 16 along i0 "),
        (ir.DType.kBF16, 2056, 2056, " vector 8 along i0 "),
        (ir.DType.kF32, 2052, 2052, " vector 4 along i0 "),
        (ir.DType.kF32, 2048, 2049, " vector 1 "),  # Rows begin at odd addresses.
        (ir.DType.kF32, 32, 32, " vector 1 "),  # Too few elements for all compute units.
    ],
)
def test_vectors(dtype: ir.DType, rows: int, pitch: int, vector: str) -> None:
    b = ir.Builder()
    x = b.input(dtype, [rows, 2048], [1, pitch])
    b.output(b.place(b.op("neg", [x]), [ir.IndexExpr(2048), ir.IndexExpr(1)]), [ir.IndexExpr(2048), ir.IndexExpr(1)])
    rendered = render(b.finish(), "warpgroup")
    assert vector in rendered["schedule"].splitlines()[0] + " ", rendered["schedule"]
