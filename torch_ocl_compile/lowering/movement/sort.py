# torch_ocl_compile/lowering/movement/sort.py: sort, topk, kthvalue, median and mode; searches in sorted rows.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.movement import selection, sorting
from torch_ocl_compile.lowering.movement.indexing import inside
from torch_ocl_compile.lowering.movement.sorting import Sorted, key_of, keys_of, number_of, sort_keys
from torch_ocl_compile.lowering.reductions import scan

aten = torch.ops.aten

I32, I64 = ir.DType.kI32, ir.DType.kI64


def moved_last(c: Context, x: ir.Value, dim: int) -> ir.Value:
    rank = len(x.sizes)
    return c.builder.permute(x, [d for d in range(rank) if d != dim] + [dim]) if dim != rank - 1 else x


def moved_back(c: Context, x: ir.Value, dim: int) -> ir.Value:
    """Moves the last dimension back to `dim`, which undoes moved_last."""
    rank = len(x.sizes)
    return c.builder.permute(x, [*range(dim), rank - 1, *range(dim, rank - 1)]) if dim != rank - 1 else x


def _greatest(dtype: ir.DType) -> int:
    return 2**31 - 1 if dtype == I32 else 2**63 - 1


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


def _take(c: Context, x: ir.Value, made: Sorted, count: Any, dim: int, descending: bool) -> Any:
    """Returns x and the positions at the first `count` sorted places, with `dim` moved back to its place."""
    last = moved_last(c, x, dim)
    nest = Nest(c.builder, [*last.sizes[:-1], c.size(count)])
    position = nest.load(made.positions, nest.i)
    if ir.is_floating(x.dtype):  # Zeros of both signs have the same key.
        value = nest.load(last, [*nest.i[:-1], position.as_index()])
    else:
        value = number_of(nest.load(made.keys, nest.i), descending).cast(ir.compute_type(x.dtype))
    values, indices = nest.store((value, x.dtype), (position, I64))
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
    made = sort_keys(c, keys_of(c, moved_last(c, x, dim), descending))
    return _take(c, x, made, x.sizes[dim], dim, descending)


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
    made = sort_keys(c, keys_of(c, moved_last(c, x, dim), largest), keep)
    return _take(c, x, made, k, dim, largest)


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
    keys = keys_of(c, last)
    few = stop is not None and stop <= sorting.FEW
    select = not few and selection.pays(keys)
    made = None if select else sort_keys(c, keys, stop)
    nans = _nan_count(c, last)
    nest = Nest(c.builder, last.sizes[:-1])
    place = rank(nest, None if nans is None else nest.load(nans, nest.i))
    if made is None:
        found = selection.position_at(c, keys, nest.store((place, I64))[0])
        nest = Nest(c.builder, last.sizes[:-1])
        position = nest.load(found, nest.i)
    else:
        position = nest.load(made.positions, [*nest.i, place.as_index()])
    return _at(c, nest, last, position, dim, keepdim)


def _at(c: Context, nest: Nest, last: ir.Value, position: Term, dim: int, keepdim: bool) -> Any:
    """Returns (value, position) of an element of each row of `last`."""
    value = nest.load(last, [*nest.i, position.as_index()])
    values, indices = nest.store((value, last.dtype), (position, I64))
    if keepdim:
        return c.builder.unsqueeze(values, dim), c.builder.unsqueeze(indices, dim)
    return values, indices


@lower(aten.kthvalue.default)
def kthvalue(c: Context, x: ir.Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.sizes:
        return x, c.constant(0, I64)
    if _empty(x.sizes):
        return NotImplemented
    return _element(
        c, x, dim % len(x.sizes), keepdim, lambda n, _: n.index(c.size(k) - 1), k if isinstance(k, int) else None
    )


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


def _medians(name: str, ignore_nan: bool) -> None:
    def along(c: Context, x: ir.Value, dim: int, keepdim: bool = False) -> Any:
        return _median(c, x, dim, keepdim, ignore_nan)

    def whole(c: Context, x: ir.Value) -> Any:
        return NotImplemented if _empty(x.sizes) else _median(c, _flat(c, x), 0, False, ignore_nan)[0]

    lower(f"aten.{name}.dim")(along)
    lower(f"aten.{name}.default")(whole)


def _flat(c: Context, x: ir.Value) -> ir.Value:
    return c.builder.reshape(x, [c.numel(x.sizes)])


_medians("median", False)
_medians("nanmedian", True)


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
    made = sort_keys(c, keys_of(c, last))
    counts = c.builder.buffer(I64, last.sizes)

    def starts(nest: Nest, at: list[ir.IndexExpr], first: ir.IndexExpr, end: ir.IndexExpr) -> Term:
        return starts_between(nest, made.keys, at, first, end)

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
    return _at(c, nest, last, nest.load(made.positions, [*nest.i, place.as_index()]), dim, keepdim)


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
