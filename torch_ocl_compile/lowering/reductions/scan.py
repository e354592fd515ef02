# torch_ocl_compile/lowering/reductions/scan.py: running sums, products and extremes along one dimension.
"""A Scan node steps through its row in order. Long rows are cut into chunks, so that enough work-items are busy:

totals[chunk]    the last result of the scan of each whole chunk alone. The rest of the row is behind all of them
carry[chunk]     the scan of the totals
result           the scan of each chunk, whose first element is merged with the carry of the previous chunk
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term

aten = torch.ops.aten

CHUNK = 256  # The number of elements that one work-item scans.
LONG = 1024  # Rows of at least this many elements are cut into chunks if there are fewer than MANY rows.
MANY = 4096  # The number of rows that keeps a device busy.

Terms = tuple[Term, ...]
# (nest, coordinates of the row, position in the row) -> (the values that enter the scan, whether it restarts there).
Element = Callable[[Nest, list[ir.IndexExpr], ir.IndexExpr], tuple[Terms, Term | None]]
# (nest, coordinates of the row, first position, last position) -> whether the scan restarts anywhere in between.
Fresh = Callable[[Nest, list[ir.IndexExpr], ir.IndexExpr, ir.IndexExpr], Term]
# (nest, coordinates of the row, position) -> the stores: (buffer, coordinates, number of the result, mask or None).
Stores = Callable[
    [Nest, list[ir.IndexExpr], ir.IndexExpr], list[tuple[ir.Value, Sequence[ir.IndexExpr], int, Term | None]]
]


@dataclass(frozen=True)
class Row:
    """A reduction of reductions.def, used as a scan."""

    name: str
    # The dtypes of the results, as stored between the steps.
    dtypes: tuple[ir.DType, ...]
    # Merges the results so far with the values of an element. None: rows are never cut into chunks.
    merge: Callable[[Terms, Terms], Terms] | None
    # True if a row without restarts is reduced to the totals of its chunks, in vectors.
    in_vectors: bool = False


def run(
    c: Context,
    row: Row,
    rows: Sequence[ir.IndexExpr],
    length: ir.IndexExpr,
    element: Element,
    stores: Stores,
    fresh: Fresh | None = None,
    inner: Sequence[ir.IndexExpr] = (),
) -> None:
    """Scans every row of `length` elements and makes the stores that `stores` returns.

    inner: the last of the rows' dimensions, if neighbouring rows are neighbours in memory.
    """
    if row.merge is None or not _is_long([*rows, *inner], length):
        return _run_whole(c, row, [*rows, *inner], length, element, stores)
    carry = _carry(c, row, rows, length, element, fresh, inner)
    lead = len(rows)
    nest = Nest(c.builder, [*rows, ir.ceildiv(length, CHUNK), *inner], [ir.IndexExpr(CHUNK)])
    chunk, at = nest.i[lead], [*nest.i[:lead], *nest.i[lead + 1 :]]
    begin = chunk * CHUNK + nest.r[0]
    inside = nest.index(begin) < nest.index(length)
    position = ir.min(begin, length - 1)
    values, reset = element(nest, at, position)
    first = nest.index(nest.r[0]).eq(0) & (nest.index(chunk) > 0)
    if reset is not None:
        first = first & ~reset
    place = [*at[:lead], ir.max(chunk - 1, 0), *at[lead:]]
    before = tuple(nest.load(k, place, first) for k in carry)
    merged = row.merge(before, values)
    values = tuple(t.where(first, m, v) for m, v in zip(merged, values, strict=True))
    nest.scan(row.name, values, row.dtypes[0], reset)
    for target, coords, result, mask in stores(nest, at, position):
        nest.add_store(target, coords, result, inside if mask is None else mask & inside)
    nest.end()


def _run_whole(
    c: Context, row: Row, rows: Sequence[ir.IndexExpr], length: ir.IndexExpr, element: Element, stores: Stores
) -> None:
    """Scans each row in one piece."""
    nest = Nest(c.builder, rows, [length])
    values, reset = element(nest, nest.i, nest.r[0])
    nest.scan(row.name, values, row.dtypes[0], reset)
    for target, coords, result, mask in stores(nest, nest.i, nest.r[0]):
        nest.add_store(target, coords, result, mask)
    nest.end()


def _is_long(rows: Sequence[ir.IndexExpr], length: ir.IndexExpr) -> bool:
    count = ir.product(list(rows))
    few = not count.is_const() or count.constant() < MANY
    return few and (not length.is_const() or length.constant() >= LONG)


def _carry(
    c: Context,
    row: Row,
    rows: Sequence[ir.IndexExpr],
    length: ir.IndexExpr,
    element: Element,
    fresh: Fresh | None,
    inner: Sequence[ir.IndexExpr],
) -> list[ir.Value]:
    """Returns, for each result of the scan, its values at the ends of all whole chunks: [rows..., chunks, inner...]."""
    chunks, lead = ir.floordiv(length, CHUNK), len(rows)
    sizes = [*rows, chunks, *inner]
    nest = Nest(c.builder, sizes, [ir.IndexExpr(CHUNK)])
    values, reset = element(nest, [*nest.i[:lead], *nest.i[lead + 1 :]], nest.i[lead] * CHUNK + nest.r[0])
    if row.in_vectors and reset is None:
        totals = nest.reduce(row.name, values, row.dtypes)
    else:
        totals = [c.builder.buffer(d, sizes) for d in row.dtypes]
        is_last = nest.index(nest.r[0]).eq(CHUNK - 1)
        nest.scan(row.name, values, row.dtypes[0], reset)
        for number, total in enumerate(totals):
            nest.add_store(total, nest.i, number, is_last)
        nest.end()

    def total_of(n: Nest, at: list[ir.IndexExpr], chunk: ir.IndexExpr) -> tuple[Terms, Term | None]:
        loaded = tuple(n.load(total, [*at[:lead], chunk, *at[lead:]]) for total in totals)
        if fresh is None:
            return loaded, None
        return loaded, fresh(n, at, chunk * CHUNK, (chunk + 1) * CHUNK - 1)

    carry = [c.builder.buffer(d, sizes) for d in row.dtypes]
    chunked_fresh = None
    if fresh is not None:

        def chunked_fresh(n: Nest, at: list[ir.IndexExpr], first: ir.IndexExpr, last: ir.IndexExpr) -> Term:
            assert fresh is not None
            return fresh(n, at, first * CHUNK, (last + 1) * CHUNK - 1)

    # For a symbolic length the recursion would not end, so one work-item scans the totals of all chunks.
    def store(n: Nest, at: list[ir.IndexExpr], chunk: ir.IndexExpr) -> Any:
        return [(k, [*at[:lead], chunk, *at[lead:]], number, None) for number, k in enumerate(carry)]

    if chunks.is_const():
        run(c, row, rows, chunks, total_of, store, chunked_fresh, inner)
    else:
        _run_whole(c, row, [*rows, *inner], chunks, total_of, store)
    return carry


def along(
    c: Context,
    row: Row,
    x: ir.Value,
    dim: int,
    dtypes: Sequence[ir.DType],
    terms: Callable[[Nest, list[ir.IndexExpr]], Terms] | None = None,
) -> list[ir.Value]:
    """Returns the scan of x along `dim`, one buffer of x's shape per result. Positions count along `dim`. terms: what is scanned
    at a place instead of x."""
    dim %= len(x.sizes)
    rows = [s for d, s in enumerate(x.sizes) if d != dim]
    targets = [c.builder.buffer(d, x.sizes) for d in dtypes]

    def place(at: list[ir.IndexExpr], position: ir.IndexExpr) -> list[ir.IndexExpr]:
        return [*at[:dim], position, *at[dim:]]

    def element(nest: Nest, at: list[ir.IndexExpr], position: ir.IndexExpr) -> tuple[Terms, Term | None]:
        if terms is not None:
            return terms(nest, place(at, position)), None
        value = nest.load(x, place(at, position))
        return ((value, nest.index(position)) if len(row.dtypes) > 1 else (value,)), None

    def stores(nest: Nest, at: list[ir.IndexExpr], position: ir.IndexExpr) -> Any:
        return [(target, place(at, position), number, None) for number, target in enumerate(targets)]

    run(c, row, rows, x.sizes[dim], element, stores)
    return targets


def sum_row(dtype: ir.DType) -> Row:
    """Returns the Row of a running sum in the accumulator's dtype. float32 has two parts: a sum and its rounding error."""
    name = "twosum" if dtype == ir.DType.kF32 else "sum"
    return Row(name, (dtype if ir.is_floating(dtype) else ir.DType.kI64,), lambda a, b: (a[0] + b[0],), True)


def prod_row(dtype: ir.DType) -> Row:
    return Row("prod", (dtype if ir.is_floating(dtype) else ir.DType.kI64,), lambda a, b: (a[0] * b[0],), True)


def _accumulate(c: Context, make: Callable[[ir.DType], Row], x: ir.Value, dim: int) -> ir.Value:
    if not x.sizes:
        return c.cast(x, c.dtype)
    x = c.cast(x, c.dtype)
    wide = ir.compute_type(c.dtype)
    return along(c, make(wide), x, dim, [c.dtype])[0]


@lower(aten.cumsum.default)
def cumsum(c: Context, x: ir.Value, dim: int, *, dtype: Any = None) -> ir.Value:
    return _accumulate(c, sum_row, x, dim)


@lower(aten.cumprod.default)
def cumprod(c: Context, x: ir.Value, dim: int, *, dtype: Any = None) -> ir.Value:
    return _accumulate(c, prod_row, x, dim)


def _running_extreme(c: Context, name: str, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """Returns (value, position) of the running extreme. Of equal elements the last counts."""
    values, positions = (ir_dtype(v.dtype) for v in c.val)
    if not x.sizes:
        return c.cast(x, values), c.constant(0, positions)
    wide = ir.compute_type(x.dtype)
    if wide == ir.DType.kBool:
        wide = ir.DType.kI32
        x = c.cast(x, wide)

    def merge(a: Terms, b: Terms) -> Terms:
        wins = b[0] >= a[0] if name == "last_max" else b[0] <= a[0]
        if ir.is_floating(b[0].dtype):
            wins = wins | t.call("isnan", b[0])
        return t.where(wins, b[0], a[0]), t.where(wins, b[1], a[1])

    found = along(c, Row(name, (wide, ir.DType.kI64), merge), x, dim, [x.dtype, positions])
    return c.cast(found[0], values), found[1]


@lower(aten.cummax.default)
def cummax(c: Context, x: ir.Value, dim: int) -> Any:
    return _running_extreme(c, "last_max", x, dim)


@lower(aten.cummin.default)
def cummin(c: Context, x: ir.Value, dim: int) -> Any:
    return _running_extreme(c, "last_min", x, dim)


@lower(aten.logcumsumexp.default)
def logcumsumexp(c: Context, x: ir.Value, dim: int) -> Any:
    """Computes log(sum(exp)) from the running maximum and the running sum of exponentials relative to it."""
    if not x.sizes:
        return x
    wide = ir.compute_type(c.dtype)
    row = Row("softmax_twosum" if wide == ir.DType.kF32 else "softmax", (wide,), None)
    largest, total = along(c, row, x, dim, [wide, wide])
    return c.pointwise(lambda m, s: m + t.log(s), largest, total, compute=wide)
