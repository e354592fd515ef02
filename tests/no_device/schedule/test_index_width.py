# tests/no_device/schedule/test_index_width.py: element offsets have 64 bits unless all provably fit 31. Kernels are rendered, not run.
import re

import pytest

from tests.no_device.scheduling import CAPS, render
from torch_ocl_compile._C import ir

COLUMNS = 40000
# Rows (a number, or the range of a size symbol) -> whether offsets fit 31 bits.
ROWS = {100: True, 53687: True, 53688: False, 70000: False, (1, 1000): True, (0, 2**20): False, (0, 2**62): False}


def graph(kind, rows):
    b = ir.Builder()
    m = b.size_symbol(ir.Range(*rows)) if isinstance(rows, tuple) else ir.IndexExpr(rows)
    n, one = ir.IndexExpr(COLUMNS), ir.IndexExpr(1)
    x = b.input(ir.DType.kF32, [m, n], [n, one], False, False)
    if kind == "map":
        b.output(b.op("exp", [x]), [n, one])
    elif kind == "transposed":
        b.output(b.op("exp", [b.permute(x, [1, 0])]), [m, one])
    elif kind == "gather":
        rows_wanted = b.input(ir.DType.kI64, [n], [one], False, False)
        body = ir.BodyBuilder(b, [n], [])
        row = body.as_index(body.load(rows_wanted, [ir.IndexExpr.loop(0)], -1))
        value = body.load(x, [row, ir.IndexExpr.loop(0)], -1)
        b.output(body.store([value], [ir.DType.kF32])[0], [one])
    else:
        b.output(b.reduce("sum", x, [0 if kind == "columns" else 1], False)[0], [one])
    return b.finish()


def narrow_indices(text):
    """Returns the loop variables that a kernel's text declares as int; their products with a stride would overflow."""
    return re.findall(r"\bint [ir]\d+\b.*", text)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("kind", ["map", "transposed", "rows", "columns", "gather"])
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_index_width(caps, kind, rows):
    rendered = render(graph(kind, rows), caps)
    groups = [line for line in rendered["schedule"].splitlines() if line.startswith("group ")]
    if ROWS[rows]:
        assert all("index32" in line for line in groups), groups
    else:
        assert "index32" not in groups[0], groups
        narrow = narrow_indices(rendered["kernels"][0]["text"])
        assert not narrow, narrow


@pytest.mark.parametrize("caps", ["gpu", "cpu16"])
@pytest.mark.parametrize("rows", [100, 70000])
def test_positions_are_as_wide_as_indices(caps, rows):
    b = ir.Builder()
    n, one = ir.IndexExpr(COLUMNS), ir.IndexExpr(1)
    x = b.input(ir.DType.kF32, [ir.IndexExpr(rows), n], [n, one], False, False)
    b.output(b.reduce("argmax", x, [1], False)[0], [one])
    text = "".join(kernel["text"] for kernel in render(b.finish(), caps)["kernels"])
    assert ("LONG_MAX" in text, "INT_MAX" in text) == (not ROWS[rows], ROWS[rows])


def masked(n, wide_bound):
    """y[i] = x[i] where i < n - 7, and the i64 tensor j[i] is cast from i32 and compared too."""
    b = ir.Builder()
    size, one = ir.IndexExpr(n), ir.IndexExpr(1)
    x = b.input(ir.DType.kF32, [size], [one], False, False)
    j = b.input(ir.DType.kI32, [size], [one], False, False)
    i = ir.IndexExpr.loop(0)
    body = ir.BodyBuilder(b, [size], [])
    inside = body.op("lt", [body.index(i, ir.DType.kI64), body.index(ir.IndexExpr(n - 7), ir.DType.kI64)])
    given = body.cast(body.load(j, [i], -1), ir.DType.kI64)
    bound = body.constant(2**40 if wide_bound else 5, ir.DType.kI64)
    mask = body.op("logical_and", [inside, body.op("ge", [given, bound])])
    value = body.load(x, [i], mask)
    b.output(body.store([value], [ir.DType.kF32])[0], [one])
    return b.finish()


@pytest.mark.parametrize("caps", CAPS)
def test_comparisons_of_extended_integers_use_32_bits(caps):
    text = render(masked(1000, False), caps)["kernels"][0]["text"].partition("//@kernel")[2]
    assert "993" in text and "long" not in text.replace("ulong", ""), text


@pytest.mark.parametrize("caps", CAPS)
def test_comparisons_with_larger_constants_use_64_bits(caps):
    text = render(masked(1000, True), caps)["kernels"][0]["text"].partition("//@kernel")[2]
    assert "1099511627776L" in text and "long" in text.replace("ulong", "") and "993L" not in text, text


@pytest.mark.parametrize("caps", CAPS)
def test_positions_of_64_bits_are_compared_in_64_bits(caps):
    text = render(masked(2**33, False), caps)["kernels"][0]["text"].partition("//@kernel")[2]
    assert f"{2**33 - 7}L" in text, text
