# torch_ocl_compile/lowering/movement/index_put.py: x[indices] = values and related ops: masks, rows, strided windows, histograms.
"""Each op says where its source elements go; scatter.py builds the stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.movement.accumulate import (
    REDUCTIONS,
    Coords,
    ScatterSpec,
    accumulated,
    accumulator,
    combined,
)
from torch_ocl_compile.lowering.movement.scatter import lifted, store_winners, winner, winners
from torch_ocl_compile.lowering.reductions import scan

aten = torch.ops.aten
I32, I64 = ir.DType.kI32, ir.DType.kI64


@dataclass(frozen=True)
class IndexedScatter:
    """The scatter that x[indices] = values stands for, and the dimensions of x that it indexes."""

    problem: ScatterSpec
    # Dimensions of x that are indexed. A place is a position in these, flattened.
    indexed: list[int]
    others: list[int]


def _put(c: Context, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value) -> IndexedScatter:
    indexed = [d for d, i in enumerate(indices) if i is not None]
    others = [d for d in range(len(x.sizes)) if d not in indexed]
    shape = c.broadcast([i for i in indices if i is not None])
    adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if adjacent else 0
    sizes = [x.sizes[d] for d in others]
    strides = [c.numel([x.sizes[e] for e in indexed[k + 1 :]]) for k in range(len(indexed))]

    def block(source: ir.IndexExpr) -> list[ir.IndexExpr]:
        """Returns the coordinates of a source in the broadcast shape of the indices."""
        at = []
        for d, size in enumerate(shape):
            inner = c.numel(shape[d + 1 :])
            at.append(ir.mod(ir.floordiv(source, inner), size) if d else ir.floordiv(source, inner))
        return at

    def place(nest: Nest, row: Coords, source: ir.IndexExpr) -> Term:
        at, whole, inside = block(source), None, None
        for d, stride in zip(indexed, strides, strict=True):
            chosen = indices[d]
            assert chosen is not None
            size = nest.index(x.sizes[d])
            index = nest.load_broadcast(chosen, shape, at).cast(I64)
            index = t.where(index < 0, index + size, index)
            good = (index >= 0) & (index < size)
            part = index if stride.is_const(1) else index * nest.index(stride)
            whole = part if whole is None else whole + part
            inside = good if inside is None else inside & good
        assert whole is not None and inside is not None
        return whole if len(indexed) == 1 else t.where(inside, whole, -1)

    result = [*sizes[:first], *shape, *sizes[first:]]

    def source(nest: Nest, row: Coords, s: ir.IndexExpr, inner: Coords) -> Term:
        at = [*inner[:first], *block(s), *inner[first:]]
        return nest.load_broadcast(values, result, at)

    places = c.numel([x.sizes[d] for d in indexed])
    return IndexedScatter(ScatterSpec([], c.numel(shape), places, sizes, place, source), indexed, others)


def _place_of(c: Context, x: ir.Value, put: IndexedScatter, at: Coords) -> ir.IndexExpr:
    place = ir.IndexExpr(0)
    for d in put.indexed:
        place = place * x.sizes[d] + at[d]
    return place


def _coords(x: ir.Value, put: IndexedScatter, place: Term, inner: Coords) -> list[ir.IndexExpr]:
    """Returns the coordinates in x of one inner element of a place."""
    at: dict[int, ir.IndexExpr] = dict(zip(put.others, inner, strict=True))
    rest = place.as_index()
    for k, d in enumerate(reversed(put.indexed), 1):
        last = k == len(put.indexed)
        at[d] = rest if last else ir.mod(rest, x.sizes[d])
        rest = rest if last else ir.floordiv(rest, x.sizes[d])
    return [at[d] for d in range(len(x.sizes))]


def _masked_put(c: Context, x: ir.Value, mask: ir.Value, first: int, values: ir.Value, accumulate: bool) -> Any:
    """Stores one value at every true element of a mask, or the values in order if the mask covers the first dimensions."""
    single = all(s.is_const(1) for s in values.sizes)
    rest = len(x.sizes) - len(mask.sizes)
    if not single and first != 0:
        return NotImplemented
    in_order = not single and len(values.sizes) == rest + 1 and not values.sizes[0].is_const(1)
    counts = _mask_positions(c, mask) if in_order else None
    nest = c.nest(x.sizes)
    at = nest.i[first : first + len(mask.sizes)]
    hit = nest.load(mask, at).ne(0)
    old = nest.load(x, nest.i)
    inner = nest.i[len(mask.sizes) :] if first == 0 else []
    if counts is not None:
        position = t.minimum(t.maximum(nest.load(counts, at) - 1, 0), nest.index(ir.max(values.sizes[0] - 1, 0)))
        shape = [values.sizes[0], *x.sizes[len(mask.sizes) :]]
        new = nest.load_broadcast(values, shape, [position.as_index(), *inner])
    elif single:
        new = nest.load(values, [0] * len(values.sizes))
    else:
        new = nest.load_broadcast(values, [ir.IndexExpr(1), *x.sizes[len(mask.sizes) :]], [ir.IndexExpr(0), *inner])
    new = new.cast(old.dtype)
    return nest.store((t.where(hit, old + new if accumulate else new, old), x.dtype))[0]


@lower(aten.index_put.default, "aten._unsafe_index_put.default")
def index_put(
    c: Context, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, accumulate: bool = False
) -> Any:
    given = [i for i in indices if i is not None]
    if any(i.dtype in (ir.DType.kBool, ir.DType.kU8) for i in given):
        if len(given) == 1:
            first = next(d for d, i in enumerate(indices) if i is not None)
            return _masked_put(c, x, given[0], first, values, accumulate)
        return NotImplemented
    if not given or not x.sizes:
        return NotImplemented
    if any(s.is_const(0) for s in [*x.sizes, *c.broadcast(given)]):
        return x
    put = _put(c, x, indices, values)
    p = put.problem
    if accumulate:
        wide = accumulator(x.dtype, "sum")
        total = accumulated(c, p, "sum", wide, False)[0]
        nest = c.nest(x.sizes)
        inner = [nest.i[d] for d in put.others]
        old = nest.load(x, nest.i).cast(wide)
        return nest.store((old + nest.load(total, [_place_of(c, x, put, nest.i), *inner]), x.dtype))[0]
    table = None if p.count.is_const(1) else winners(c, p)
    if c.in_place:
        return store_winners(c, x, p, table, lambda _, place, inner: _coords(x, put, place, inner))
    nest = c.nest(x.sizes)
    chosen = winner(nest, p, table, [], _place_of(c, x, put, nest.i))
    old = nest.load(x, nest.i)
    new = p.source(nest, [], t.maximum(chosen, 0).as_index(), [nest.i[d] for d in put.others]).cast(old.dtype)
    return nest.store((t.where(chosen >= 0, new, old), x.dtype))[0]


@lower(torch.ops.ocl.put_distinct.default)
def put_distinct(c: Context, x: ir.Value, place: ir.Value, values: ir.Value) -> Any:
    """Returns x with rows replaced, at places of which no two are equal. So there are no winners to find."""
    if not c.in_place:
        return index_put(c, x, [place], values)
    put = _put(c, x, [place], values)
    return store_winners(c, x, put.problem, None, lambda _, place, inner: _coords(x, put, place, inner))


def _rows_problem(c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ScatterSpec:
    """Returns the scatter x[.., index[s], ..] = src[.., s, ..] along dimension `dim`."""
    inner = [s for d, s in enumerate(x.sizes) if d != dim]
    index, src = lifted(c, index), lifted(c, src)

    def place(nest: Nest, row: Coords, source: ir.IndexExpr) -> Term:
        return wrapped(nest, index, source, x.sizes[dim])

    def source(nest: Nest, row: Coords, s: ir.IndexExpr, at: Coords) -> Term:
        return nest.load(src, [*at[:dim], s, *at[dim:]])

    return ScatterSpec([], index.sizes[0], x.sizes[dim], inner, place, source)


def wrapped(nest: Nest, index: ir.Value, at: ir.IndexExpr, size: ir.IndexExpr) -> Term:
    chosen = nest.load(index, [at]).cast(I64)
    return t.where(chosen < 0, chosen + nest.index(size), chosen)


@lower(aten.index_reduce.default)
def index_reduce(
    c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, *, include_self: bool = True
) -> Any:
    if any(s.is_const(0) for s in [*x.sizes, *index.sizes]):
        return x
    sizes = x.sizes
    x, src = lifted(c, x), lifted(c, src)
    dim %= len(x.sizes)
    p = _rows_problem(c, x, dim, index, src)
    name = REDUCTIONS[reduce]
    wide = accumulator(x.dtype, name)
    counted = reduce == "mean" or not include_self
    tables = accumulated(c, p, name, wide, counted)
    nest = c.nest(x.sizes)
    inner = [i for d, i in enumerate(nest.i) if d != dim]
    count = nest.load(tables[1], [nest.i[dim]]) if counted else None
    new = nest.load(tables[0], [nest.i[dim], *inner])
    whole = combined(name, reduce, include_self, nest.load(x, nest.i), new, count, wide)
    return c.builder.reshape(nest.store((whole, x.dtype))[0], sizes)


# Masks


def _mask_positions(c: Context, mask: ir.Value) -> ir.Value:
    """Returns, for each element of the flattened mask, the number of true elements up to and including it (int64)."""
    n = c.numel(mask.sizes)
    flat = c.builder.reshape(mask, [n])
    counts = c.builder.buffer(I64, [n])
    scan.run(
        c,
        scan.sum_row(I64),
        [],
        n,
        lambda nest, at, p: ((nest.load(flat, [p]).cast(I64),), None),
        lambda nest, at, p: [(counts, [p], 0, None)],
    )
    return c.builder.reshape(counts, list(mask.sizes))


@lower(aten.masked_scatter.default)
def masked_scatter(c: Context, x: ir.Value, mask: ir.Value, source: ir.Value) -> Any:
    """Returns x where the true elements of the mask are replaced by the elements of the source, in order."""
    sizes = c.sizes
    if any(s.is_const(0) for s in [*sizes, *source.sizes]):
        return c.builder.expand(x, sizes)
    counts = _mask_positions(c, c.builder.expand(mask, sizes))
    size = c.numel(source.sizes)
    flat = c.builder.reshape(source, [size])
    nest = c.nest(sizes)
    hit = nest.load_broadcast(mask, sizes, nest.i)
    old = nest.load_broadcast(x, sizes, nest.i)
    at = t.minimum(t.maximum(nest.load(counts, nest.i) - 1, 0), nest.index(size - 1))
    return nest.store((t.where(hit, nest.load(flat, [at.as_index()]).cast(old.dtype), old), c.dtype))[0]


@lower(aten.masked_scatter_backward.default)
def masked_scatter_backward(c: Context, grad: ir.Value, mask: ir.Value, sizes: Sequence[Any]) -> Any:
    """Returns the gradient's elements at the true elements of the mask, in order, followed by zeros."""
    if any(s.is_const(0) for s in [*grad.sizes, *c.shape(sizes)]):
        return c.constant(0, c.dtype, c.sizes)
    counts = _mask_positions(c, c.builder.expand(mask, grad.sizes))
    size = c.numel(c.shape(sizes))
    nest = Nest(c.builder, [size])
    result = nest.store((nest.constant(0, c.dtype), c.dtype))[0]
    nest = c.nest(grad.sizes)
    at = nest.load(counts, nest.i) - 1
    hit = nest.load_broadcast(mask, grad.sizes, nest.i) & (at < nest.index(size))
    nest.add_store(result, [at.as_index()], nest.load(grad, nest.i), hit)
    nest.end()
    return c.builder.reshape(result, c.sizes)


# Strided windows


@lower(aten.as_strided_scatter.default)
def as_strided_scatter(
    c: Context, x: ir.Value, src: ir.Value, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> Any:
    """Returns x, row-major, with the elements of a strided window of its memory replaced.

    Of several elements that share a place, the last is stored.
    """
    assert c.node is not None
    source: Any = c.node.args[0]
    if not source.meta["val"].is_contiguous() or any(s.is_const(0) for s in [*x.sizes, *src.sizes]):
        return NotImplemented
    count, places = c.numel(src.sizes), c.numel(x.sizes)
    flat = c.builder.reshape(src, [count])
    strides, offset = c.shape(stride), c.size(storage_offset or 0)

    def place(nest: Nest, row: Coords, s: ir.IndexExpr) -> Term:
        at = offset
        for d, step in enumerate(strides):
            inner = c.numel(src.sizes[d + 1 :])
            at = at + (ir.mod(ir.floordiv(s, inner), src.sizes[d]) if d else ir.floordiv(s, inner)) * step
        return nest.index(at)

    p = ScatterSpec([], count, places, [], place, lambda nest, row, s, inner: nest.load(flat, [s]))
    table = winners(c, p)
    whole = c.builder.reshape(x, [places])
    nest = Nest(c.builder, [places])
    chosen = winner(nest, p, table, [], nest.i[0])
    old = nest.load(whole, nest.i)
    new = p.source(nest, [], t.maximum(chosen, 0).as_index(), []).cast(old.dtype)
    return c.builder.reshape(nest.store((t.where(chosen >= 0, new, old), c.dtype))[0], c.sizes)


@lower(aten.histc.default)
def histc(c: Context, x: ir.Value, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Returns the number of elements in each of `bins` equal intervals of [min, max]; of x's range if min equals max.

    Integers are divided among the intervals without rounding errors, as on CUDA.
    """
    if x.dtype == ir.DType.kBool:
        return NotImplemented
    if any(s.is_const(0) for s in x.sizes):
        return c.constant(0, c.dtype, c.sizes)
    wide = ir.compute_type(x.dtype) if ir.is_floating(x.dtype) else I64
    count = c.numel(x.sizes)
    flat = c.builder.reshape(x, [count])
    found = None
    if min == max:
        low, high = (c.builder.reduce(name, flat, [0], False, wide)[0] for name in ("min", "max"))
        found = low, high

    def place(nest: Nest, row: Coords, s: ir.IndexExpr) -> Term:
        value = nest.load(flat, [s]).cast(wide)
        if found is None:
            low, high = nest.constant(min, wide), nest.constant(max, wide)
        else:
            low, high = nest.load(found[0], []), nest.load(found[1], [])
            same = low.eq(high)
            low, high = t.where(same, low - 1, low), t.where(same, high + 1, high)
        good = (value >= low) & (value <= high)
        if wide == I64:
            at = t.call("truncdiv", t.where(good, value - low, 0) * bins, high - low)
        else:
            at = t.where(good, t.call("floor", (value - low) / (high - low) * float(bins)), 0.0)
        return t.where(good, t.minimum(at, nest.constant(bins - 1, wide)).cast(I64), -1)

    p = ScatterSpec([], count, ir.IndexExpr(bins), [], place, lambda nest, *_: nest.constant(1, I64))
    return c.cast(accumulated(c, p, "sum", I64, False)[0], c.dtype)
