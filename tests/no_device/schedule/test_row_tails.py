# tests/no_device/schedule/test_row_tails.py: rows that are not whole vectors, in buffers with and without padded rows.
"""tests/device/kernels/test_row_tails_group.py checks what the kernels compute."""

from __future__ import annotations

import re

import pytest
import torch

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import render
from torch_ocl_compile._C import ir


@pytest.mark.parametrize(
    ("columns", "pitch", "width"),
    [(50257, 50264, 8), (50257, 50260, 4), (135, 136, 8), (70, 72, 4), (9, 16, 1), (9, 9, 1)],
)
def test_vectors(columns: int, pitch: int, width: int) -> None:
    """The first work-items take vectors, the last ones what is left of each row. Numbers of rows are wider and read once."""
    b = ir.Builder()
    x = b.input(ir.DType.kBF16, [64, columns], [pitch, 1])
    row = b.input(ir.DType.kF32, [64, 1], [1, 1])
    value = b.cast(b.op("exp", [b.op("sub", [x, row])]), ir.DType.kBF16)
    b.output(b.place(value, [ir.IndexExpr(pitch), ir.IndexExpr(1)]), [ir.IndexExpr(pitch), ir.IndexExpr(1)])
    rendered = render(b.finish(), "warpgroup")
    assert f" vector {width} " in rendered["schedule"].splitlines()[0]
    text = rendered["kernels"][0]["text"]
    # The text of a load of eight elements has it twice.
    vectors = set(re.findall(r"\*\(__global (?:const )?u(?:short|int)\d\*\)", text))
    assert len(vectors) == (2 if width > 1 else 0), text
    assert len(re.findall(r"for \(int at", text)) == (3 if width > 1 else 1), text


def test_one_copy_for_two_products() -> None:
    """A matrix whose rows begin at any element is copied once to padded rows. Vectors are aligned where they are stored."""
    graphs: list[ir.Graph] = []
    g, a, b = (torch.randn(*sizes, dtype=torch.bfloat16) for sizes in ((512, 1003), (512, 256), (1003, 256)))
    compiled(lambda g, a, b: (g.t() @ a, g @ b), graphs)(g, a, b)
    kernels = render(graphs[0], "warpgroup")["kernels"]
    assert sorted(kernel["kind"] for kernel in kernels) == ["gemm", "gemm", "pointwise"]
    text = next(kernel["text"] for kernel in kernels if kernel["kind"] == "pointwise")
    assert "vload8" in text and len(re.findall(r"\*\(__global uint4\*\)", text)) == 1, text


@pytest.mark.parametrize(
    ("dtype", "result", "columns", "width"),
    [
        ("kBF16", "kBF16", 50257, 8),
        ("kBF16", "kF32", 50257, 4),
        ("kF32", "kF32", 50257, 4),
        ("kF64", "kF64", 50257, 1),
        ("kBF16", "kBF16", 127, 1),
    ],
)
@pytest.mark.parametrize("reduces", [False, True])
def test_ragged_rows(dtype: str, result: str, columns: int, width: int, reduces: bool) -> None:
    """Rows that begin at any element have vectors, too. Both tensors must be aligned alike."""
    b = ir.Builder()
    x = b.input(getattr(ir.DType, dtype), [1024, columns], [columns, 1])
    row = b.reduce("max", x, [1], True)[0] if reduces else b.input(ir.DType.kF32, [1024, 1], [1, 1])
    b.output(b.cast(b.op("sub", [x, row]), getattr(ir.DType, result)), [columns, 1])
    rendered = render(b.finish(), "warpgroup")
    assert len(rendered["kernels"]) == 1
    header = rendered["schedule"].splitlines()[0]
    assert (f" ragged {width} " in header) == (width > 1), header
    text = rendered["kernels"][0]["text"]
    if columns == 127 and reduces:
        return  # The row fits into registers.
    assert bool(re.search(r"\*\(__global (?:const )?(?:uint|ushort|float)\d\*\)", text)) == (width > 1), text
    assert ("in0_offset ^ out0_offset" in text) == (width > 1)
