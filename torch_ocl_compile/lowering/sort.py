# torch_ocl_compile/lowering/sort.py: sort, topk, kthvalue, median and mode; searches in sorted rows.
"""Sorting is built from ordinary loop nests. Numbers become integer keys that have the wanted order (NaN last).

A block of keys is sorted by rank: each key counts the keys that go before it; equal keys keep their order. Sorted
runs are merged by rank, too, many at a time: the place of an element is the sum of its ranks in all runs of the
group, each found by binary search.

    keys   | 256 | 256 | 256 | ...      each key is stored at its rank among 256
    runs   | 4 * 256       | ...        each key is stored at the sum of its ranks in 4 runs; and so on
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering import scan
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context, ir_dtype
from torch_ocl_compile.lowering.indexing import inside
from torch_ocl_compile.lowering.registry import lower
from torch_ocl_compile.lowering.term import Nest, Term

aten = torch.ops.aten

BLOCK = 256  # The number of keys of a block, which is sorted by counting.
WHOLE = 512  # Rows of up to this many keys are one block.
WAYS = 4  # The number of runs that are merged at a time: fewer searches than 16, fewer launches than 2.
LONGEST = 1 << 20  # Rows of a symbolic length are merged by WAYS up to this length, then all at a time.
EXACT_F32 = 1 << 24  # The largest count that float32 represents exactly.
I32, I64 = ir.DType.kI32, ir.DType.kI64


def moved_last(c: Context, x: ir.Value, dim: int) -> ir.Value:
    rank = len(x.sizes)
    return c.builder.permute(x, [d for d in range(rank) if d != dim] + [dim]) if dim != rank - 1 else x


def moved_back(c: Context, x: ir.Value, dim: int) -> ir.Value:
    """Moves the last dimension back to `dim`, which undoes moved_last."""
    rank = len(x.sizes)
    return c.builder.permute(x, [*range(dim), rank - 1, *range(dim, rank - 1)]) if dim != rank - 1 else x


def key_of(x: Term, descending: bool = False) -> Term:
    """Returns an int32 or int64 key that has the order of x; NaN is the greatest."""
    key = t.call("order_key", x) if ir.is_floating(x.dtype) else x if x.dtype == I64 else x.cast(I32)
    return t.call("bitwise_not", key) if descending else key


def keys_of(c: Context, x: ir.Value, descending: bool = False) -> ir.Value:
    nest = c.nest(x.sizes)
    key = key_of(nest.load(x, nest.i), descending)
    return nest.store((key, key.dtype))[0]


def _greatest(dtype: ir.DType) -> int:
    return 2**31 - 1 if dtype == I32 else 2**63 - 1


class Runs:
    """Keys and their original positions along the last dimension, sorted in runs of `run` elements each.

    The padding is the greatest key. The sort is stable, so that padding stays behind real keys that are equal to it.
    """

    def __init__(self, keys: ir.Value, positions: ir.Value, run: ir.IndexExpr) -> None:
        self.keys, self.positions, self.run = keys, positions, run

    @property
    def rows(self) -> list[ir.IndexExpr]:
        return list(self.keys.sizes[:-1])

    @property
    def length(self) -> ir.IndexExpr:
        return self.keys.sizes[-1]


def _counted(nest: Nest, terms: Term, most: ir.IndexExpr) -> ir.Value:
    """Returns the sum of a count over the loops r*. `most` is its upper bound."""
    exact = most.is_const() and most.constant() <= EXACT_F32
    dtype = ir.DType.kF32 if exact else I64
    return nest.reduce("sum", [terms.cast(dtype)], [dtype])[0]


def _scatter(c: Context, runs: Runs, sizes: list[ir.IndexExpr], fill: Callable[[Nest], Any], length: Any) -> Runs:
    """Stores new runs. `fill(nest)` returns key, position, place along the last dimension, and a mask or None."""
    rows = runs.rows
    keys = c.builder.buffer(runs.keys.dtype, [*rows, length])
    positions = c.builder.buffer(I32, [*rows, length])
    nest = Nest(c.builder, sizes)
    key, position, place, mask = fill(nest)
    at = [*nest.i[: len(rows)], place]
    nest.add_store(keys, at, key, mask)
    nest.add_store(positions, at, position, mask)
    nest.end()
    return Runs(keys, positions, runs.run)


def sorted_blocks(c: Context, keys: ir.Value, positions: ir.Value | None, keep: int | None = None) -> Runs:
    """Sorts each block. If `keep` is given, only the first `keep` elements of each block are kept.

    `positions` (default: 0, 1, ...) are moved along with the keys.
    """
    rows, n = list(keys.sizes[:-1]), keys.sizes[-1]
    block = n if n.is_const() and n.constant() <= WHOLE else ir.IndexExpr(BLOCK)
    count = ir.ceildiv(n, block)
    kept = block if keep is None else ir.min(block, keep)
    padded = not (n.is_const() and n.constant() % block.constant() == 0)
    sizes = [*rows, count, block]

    def key_at(nest: Nest, offset: ir.IndexExpr) -> Term:
        position = nest.i[len(rows)] * block + offset
        at = nest.i[: len(rows)]
        if not padded:
            return nest.load(keys, [*at, position])
        inside = nest.index(position) < nest.index(n)
        loaded = nest.load(keys, [*at, position], inside)
        return t.where(inside, loaded, _greatest(keys.dtype))

    nest = Nest(c.builder, sizes, [block])
    i, j = nest.i[-1], nest.r[0]
    mine, other = key_at(nest, i), key_at(nest, j)
    earlier = nest.index(j, I32) < nest.index(i, I32)
    ranks = _counted(nest, (other < mine) | (other.eq(mine) & earlier), block)

    def fill(nest: Nest) -> Any:
        rank = nest.load(ranks, nest.i).cast(I32)
        position = nest.i[len(rows)] * block + nest.i[-1]
        if positions is None:
            old = nest.index(position, I32)
        else:
            inside = nest.index(position) < nest.index(n) if padded else None
            old = nest.load(positions, [*nest.i[: len(rows)], position], inside)
        mask = None if keep is None else rank < nest.index(kept, I32)
        return key_at(nest, nest.i[-1]), old, nest.i[len(rows)] * kept + rank.as_index(), mask

    empty = Runs(keys, keys, kept)
    return _scatter(c, empty, sizes, fill, count * kept)


def merged(c: Context, runs: Runs, ways: ir.IndexExpr) -> Runs:
    """Merges each group of `ways` runs into one run."""
    rows, n, run = runs.rows, runs.length, runs.run
    nest = Nest(c.builder, [*rows, n], [ways])
    at, place = nest.i[:-1], nest.i[-1]
    own = ir.floordiv(place, run)
    group = ir.floordiv(own, ways) * ways
    sibling = group + nest.r[0]
    key = nest.load(runs.keys, nest.i)
    begin = sibling * run
    length = ir.max(ir.min(n - begin, run), 0)
    earlier, same = nest.index(sibling) < nest.index(own), nest.index(sibling).eq(nest.index(own))
    found = search(nest, runs.keys, at, begin, length, run, lambda k: (k < key) | (earlier & k.eq(key)))
    count = t.where(same, nest.index(ir.mod(place, run), I32), found)
    ranks = _counted(nest, count, n)

    def fill(nest: Nest) -> Any:
        rank = nest.load(ranks, nest.i).cast(I64)
        start = ir.floordiv(nest.i[-1], run * ways) * (run * ways)
        return (
            nest.load(runs.keys, nest.i),
            nest.load(runs.positions, nest.i),
            start + rank.as_index(),
            None,
        )

    result = _scatter(c, runs, [*rows, n], fill, n)
    result.run = run * ways
    return result


def search(
    nest: Nest,
    keys: ir.Value,
    at: Sequence[ir.IndexExpr],
    begin: ir.IndexExpr,
    length: ir.IndexExpr,
    longest: ir.IndexExpr | int,
    before: Callable[[Term], Term],
) -> Term:
    """Returns the number of keys (int32) of the sorted run [begin, begin + length) for which `before` is true.

    It is a binary search, unrolled for runs of up to `longest` keys.
    """
    most = longest if isinstance(longest, int) else longest.constant() if longest.is_const() else 2**31 - 1
    end = nest.index(length, I32)
    place = nest.constant(0, I32)
    step = 1 << max(most.bit_length() - 1, 0) if most else 0
    while step:
        probe = place + step
        inside = probe <= end
        key = nest.load(keys, [*at, begin + probe.as_index() - 1], inside)
        place = t.where(inside & before(key), probe, place)
        step //= 2
    return place


def sort_keys(c: Context, keys: ir.Value, keep: int | None = None, positions: ir.Value | None = None) -> Runs:
    """Returns the keys along the last dimension in sorted order, with their original positions.

    If `keep` is given, only the first `keep` of them are guaranteed to be correct.
    """
    n = keys.sizes[-1]
    if keep is not None and n.is_const() and n.constant() > WHOLE and 4 * keep <= BLOCK:
        best = sorted_blocks(c, keys, positions, keep)
        return sort_keys(c, best.keys, keep, best.positions)
    runs = sorted_blocks(c, keys, positions)
    if not n.is_const():
        while runs.run.constant() < LONGEST:
            runs = merged(c, runs, ir.IndexExpr(WAYS))
        return merged(c, runs, ir.ceildiv(n, LONGEST))
    while runs.run.constant() < n.constant():
        ways = min(WAYS, -(-runs.length.constant() // runs.run.constant()))
        runs = merged(c, runs, ir.IndexExpr(ways))
    return runs


def _take(c: Context, x: ir.Value, positions: ir.Value, count: Any, dim: int, dtype: ir.DType) -> Any:
    """Returns x and the positions at the first `count` sorted places, with `dim` moved back to its place."""
    last = moved_last(c, x, dim)
    nest = Nest(c.builder, [*last.sizes[:-1], c.size(count)])
    position = nest.load(positions, nest.i)
    value = nest.load(last, [*nest.i[:-1], position.as_index()])
    values, indices = nest.store((value, x.dtype), (position, dtype))
    return moved_back(c, values, dim), moved_back(c, indices, dim)


def _empty(sizes: Sequence[ir.IndexExpr]) -> bool:
    return any(s.is_const(0) for s in sizes)


@lower(aten.sort.default)
def sort(c: Context, x: ir.Value, dim: int = -1, descending: bool = False) -> Any:
    if not x.sizes:
        return x, c.constant(0, I64)
    dim %= len(x.sizes)
    if _empty(x.sizes):
        return x, c.constant(0, I64, x.sizes)
    runs = sort_keys(c, keys_of(c, moved_last(c, x, dim), descending))
    return _take(c, x, runs.positions, x.sizes[dim], dim, I64)


@lower(aten.sort.stable)
def sort_stable(c: Context, x: ir.Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return sort(c, x, dim, descending)


@lower(aten.topk.default)
def topk(c: Context, x: ir.Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.sizes:
        if k == 1:
            return x, c.constant(0, I64)
        return NotImplemented
    dim %= len(x.sizes)
    sizes = list(x.sizes)
    sizes[dim] = c.size(k)
    if _empty(sizes):
        return c.constant(0, x.dtype, sizes), c.constant(0, I64, sizes)
    keep = k if isinstance(k, int) else None
    runs = sort_keys(c, keys_of(c, moved_last(c, x, dim), largest), keep)
    return _take(c, x, runs.positions, k, dim, I64)


def _nan_count(c: Context, x: ir.Value) -> ir.Value | None:
    """Returns the number of NaN in each row of the last dimension; None for integers."""
    if not ir.is_floating(x.dtype):
        return None
    nest = Nest(c.builder, x.sizes[:-1], x.sizes[-1:])
    is_nan = t.call("isnan", nest.load(x, [*nest.i, nest.r[0]]))
    return nest.reduce("sum", [is_nan.cast(I64)], [I64])[0]


def _element(
    c: Context, x: ir.Value, dim: int, keepdim: bool, rank: Callable[[Nest, Term | None], Term], stop: int | None = None
) -> Any:
    """Returns (value, position) of the element at place `rank(nest, number of NaN)` of each sorted row."""
    last = moved_last(c, x, dim)
    runs = sort_keys(c, keys_of(c, last), stop)
    nans = _nan_count(c, last)
    nest = Nest(c.builder, last.sizes[:-1])
    place = rank(nest, None if nans is None else nest.load(nans, nest.i))
    position = nest.load(runs.positions, [*nest.i, place.as_index()])
    value = nest.load(last, [*nest.i, position.as_index()])
    values, indices = nest.store((value, x.dtype), (position, I64))
    if keepdim:
        return c.builder.unsqueeze(values, dim), c.builder.unsqueeze(indices, dim)
    return values, indices


@lower(aten.kthvalue.default)
def kthvalue(c: Context, x: ir.Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.sizes:
        return x, c.constant(0, I64)
    if _empty(x.sizes):
        return NotImplemented
    return _element(c, x, dim % len(x.sizes), keepdim, lambda n, _: n.index(c.size(k) - 1), k)


def _middle(length: ir.IndexExpr, ignore_nan: bool) -> Callable[[Nest, Term | None], Term]:
    """Returns a function for the place of the median: the lower of the two middle places.

    If the row has NaN, it is the place of the first NaN, or, with `ignore_nan`, the middle of the other elements.
    """

    def rank(nest: Nest, nans: Term | None) -> Term:
        n = nest.index(length)
        if nans is None:
            return nest.index(ir.floordiv(length - 1, 2))
        if ignore_nan:
            return t.maximum(t.call("truncdiv", n - nans - 1, 2), 0)
        return t.where(nans > 0, n - nans, nest.index(ir.floordiv(length - 1, 2)))

    return rank


def _median(c: Context, x: ir.Value, dim: int, keepdim: bool, ignore_nan: bool) -> Any:
    if not x.sizes:
        return x, c.constant(0, I64)
    if _empty(x.sizes):
        return NotImplemented
    dim %= len(x.sizes)
    return _element(c, x, dim, keepdim, _middle(x.sizes[dim], ignore_nan))


@lower(aten.median.dim)
def median_dim(c: Context, x: ir.Value, dim: int, keepdim: bool = False) -> Any:
    return _median(c, x, dim, keepdim, False)


@lower(aten.nanmedian.dim)
def nanmedian_dim(c: Context, x: ir.Value, dim: int, keepdim: bool = False) -> Any:
    return _median(c, x, dim, keepdim, True)


def _flat(c: Context, x: ir.Value) -> ir.Value:
    return c.builder.reshape(x, [c.numel(x.sizes)])


@lower(aten.median.default)
def median(c: Context, x: ir.Value) -> Any:
    return NotImplemented if _empty(x.sizes) else _median(c, _flat(c, x), 0, False, False)[0]


@lower(aten.nanmedian.default)
def nanmedian(c: Context, x: ir.Value) -> Any:
    return NotImplemented if _empty(x.sizes) else _median(c, _flat(c, x), 0, False, True)[0]


@lower(aten.mode.default)
def mode(c: Context, x: ir.Value, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns (the smallest of the most frequent values, its last position)."""
    if not x.sizes:
        return x, c.constant(0, I64)
    if _empty(x.sizes):
        return NotImplemented
    dim %= len(x.sizes)
    last = moved_last(c, x, dim)
    length = last.sizes[-1]
    runs = sort_keys(c, keys_of(c, last))
    counts = c.builder.buffer(I64, last.sizes)

    def starts(nest: Nest, at: list[ir.IndexExpr], first: ir.IndexExpr, end: ir.IndexExpr) -> Term:
        return starts_between(nest, runs.keys, at, first, end)

    scan.run(
        c,
        scan.sum_row(I64),
        last.sizes[:-1],
        length,
        lambda nest, at, p: ((nest.constant(1, I64),), starts(nest, at, p, p)),
        lambda nest, at, p: [(counts, [*at, p], 0, None)],
        starts,
    )
    best = c.builder.reduce("argmax", counts, [len(last.sizes) - 1], False, I64)[0]
    nest = Nest(c.builder, last.sizes[:-1])
    place = nest.load(best, nest.i)
    position = nest.load(runs.positions, [*nest.i, place.as_index()])
    value = nest.load(last, [*nest.i, position.as_index()])
    values, indices = nest.store((value, x.dtype), (position, I64))
    if keepdim:
        return c.builder.unsqueeze(values, dim), c.builder.unsqueeze(indices, dim)
    return values, indices


def starts_between(
    nest: Nest, keys: ir.Value, at: Sequence[ir.IndexExpr], first: ir.IndexExpr, end: ir.IndexExpr
) -> Term:
    """Returns whether a new key begins at any place from `first` to `end` of the sorted keys."""
    before = nest.load(keys, [*at, ir.max(first - 1, 0)])
    return nest.index(first).eq(0) | nest.load(keys, [*at, end]).ne(before)


def _search_sorted(
    c: Context, edges: ir.Value, x: ir.Value, right: bool, order: ir.Value | None, dtype: ir.DType
) -> ir.Value:
    """Returns, for each element of x, where it would be inserted in its row of `edges` to keep the row sorted.

    A NaN goes behind all edges.
    """
    shared = len(edges.sizes) == 1
    common = c.common_dtype([edges, x])
    length = edges.sizes[-1]
    keys = c.nest(edges.sizes)
    at = list(keys.i)
    if order is not None:
        at[-1] = inside(keys.load(order, keys.i), length).as_index()
    edge = keys.load(edges, at).cast(ir.compute_type(common))
    key = key_of(edge)
    # An edge that is NaN orders below everything.
    if ir.is_floating(edge.dtype):
        key = t.where(t.call("isnan", edge), -_greatest(key.dtype) - 1, key)
    table = keys.store((key, key.dtype))[0]
    nest = c.nest(x.sizes)
    wanted = key_of(nest.load(x, nest.i).cast(ir.compute_type(common)))
    row: list[ir.IndexExpr] = [] if shared else nest.i[:-1]
    found = search(
        nest,
        table,
        row,
        ir.IndexExpr(0),
        length,
        length,
        (lambda k: k <= wanted) if right else (lambda k: k < wanted),
    )
    return nest.store((found, dtype))[0]


@lower(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    c: Context,
    edges: ir.Value,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    value = x if isinstance(x, ir.Value) else c.number(x, edges.dtype)
    return _search_sorted(c, edges, value, right or side == "right", sorter, c.dtype)


@lower(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(c: Context, x: Any, edges: ir.Value, *, out_int32: bool = False, right: bool = False) -> ir.Value:
    value = x if isinstance(x, ir.Value) else c.number(x, edges.dtype)
    return _search_sorted(c, edges, value, right, None, ir_dtype(c.val.dtype))
