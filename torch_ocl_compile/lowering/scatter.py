# torch_ocl_compile/lowering/scatter.py: stores at coordinates that are themselves loaded, with and without accumulation.
"""Every result is the same from run to run, whatever order the device works in.

Assigning: where several sources name one place the last of them wins. Each place learns its winner by an atomic maximum
of source positions (`winners`); the result is then a gather.
Accumulating: few sources per place are reduced directly, place by place. Otherwise the sources are sorted by place,
stable, and a scan that starts afresh at each new place leaves its last result there (`Segments`). No float atomics.
Sources that name no place of the target are ignored: they change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering import scan, sort
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context
from torch_ocl_compile.lowering.registry import lower
from torch_ocl_compile.lowering.term import Nest, Term

aten = torch.ops.aten
I32, I64 = ir.DType.kI32, ir.DType.kI64

FEW = 32  # sources per row that every place looks through
SMALL = 1 << 18  # pairs of a source and a place that are looked through

Coords = Sequence[ir.IndexExpr]


@dataclass(frozen=True)
class Problem:
    """Sources [rows..., count] go to places [rows..., places]; each carries `inner` elements."""

    rows: list[ir.IndexExpr]
    count: ir.IndexExpr
    places: ir.IndexExpr
    inner: list[ir.IndexExpr]
    place: Callable[[Nest, Coords, ir.IndexExpr], Term]  # (nest, row, source) -> its place, i64; outside: ignored
    source: Callable[[Nest, Coords, ir.IndexExpr, Coords], Term]  # (nest, row, source, inner) -> its element


def known_product(*sizes: ir.IndexExpr) -> int | None:
    whole = ir.product(list(sizes))
    return whole.constant() if whole.is_const() else None


# Assignment


def winners(c: Context, p: Problem) -> ir.Value:
    """Per row and place the last source that names it, -1 if none does: i32."""
    nest = Nest(c.builder, [*p.rows, p.places])
    table = nest.store((nest.constant(-1, I32), I32))[0]
    nest = Nest(c.builder, [*p.rows, p.count])
    row, source = nest.i[:-1], nest.i[-1]
    place = p.place(nest, row, source)
    inside = (place >= 0) & (place < nest.index(p.places))
    nest.add_store(table, [*row, place.as_index()], nest.index(source, I32), inside, maximum=True)
    nest.end()
    return table


def winner(nest: Nest, p: Problem, table: ir.Value | None, row: Coords, place: ir.IndexExpr) -> Term:
    """The source that `place` gets its value from, -1 if none."""
    if table is not None:
        return nest.load(table, [*row, place])
    only = p.place(nest, row, ir.IndexExpr(0))
    return t.where(only.eq(nest.index(place)), nest.constant(0, I32), -1)


# Accumulation

MERGE: dict[str, Callable[[Term, Term], Term]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": t.maximum,
    "min": t.minimum,
}


def identity(name: str, dtype: ir.DType) -> float | int:
    if name in ("sum", "prod"):
        return int(name == "prod")
    if ir.is_floating(dtype):
        return float("-inf") if name == "max" else float("inf")
    bits = 8 * ir.size_bytes(dtype)
    return -(2 ** (bits - 1)) if name == "max" else 2 ** (bits - 1) - 1


def accumulated(c: Context, p: Problem, name: str, wide: ir.DType, with_count: bool) -> list[ir.Value]:
    """[rows..., places, inner...]: the reduction of the sources of each place, the identity where there are none; and,
    if `with_count`, how many there are, [rows..., places] i64."""
    pairs = known_product(*p.rows, p.count, p.places, *p.inner)
    few = p.count.is_const() and p.count.constant() <= FEW
    if few or (pairs is not None and pairs <= SMALL):
        return _directly(c, p, name, wide, with_count)
    return Segments(c, p).reduce(name, wide, with_count)


def _directly(c: Context, p: Problem, name: str, wide: ir.DType, with_count: bool) -> list[ir.Value]:
    """Each place reduces over all sources of its row."""

    def reduced(inner: list[ir.IndexExpr], reduction: str, dtype: ir.DType, element: Any) -> ir.Value:
        nest = Nest(c.builder, [*p.rows, p.places, *inner], [p.count])
        lead = len(p.rows)
        row, source = nest.i[:lead], nest.r[0]
        hit = p.place(nest, row, source).eq(nest.index(nest.i[lead]))
        value = element(nest, row, source, nest.i[lead + 1 :])
        chosen = t.where(hit, value, identity(reduction, dtype))
        return nest.reduce(reduction, [chosen], [dtype])[0]

    def element(nest: Nest, row: Coords, source: ir.IndexExpr, inner: Coords) -> Term:
        return p.source(nest, row, source, inner).cast(wide)

    results = [reduced(p.inner, name, wide, element)]
    if with_count:
        results.append(reduced([], "sum", I64, lambda nest, *_: nest.constant(1, I64)))
    return results


class Segments:
    """The sources of each row, sorted by place."""

    def __init__(self, c: Context, p: Problem) -> None:
        self.c, self.p = c, p
        dtype = I32 if p.places.is_const() and p.places.constant() < 2**31 - 1 else I64
        nest = Nest(c.builder, [*p.rows, p.count])
        place = p.place(nest, nest.i[:-1], nest.i[-1])
        end = nest.index(p.places)
        inside = (place >= 0) & (place < end)
        keys = nest.store((t.where(inside, place, end), dtype))[0]
        self.runs = sort.sort_keys(c, keys)

    def reduce(self, name: str, wide: ir.DType, with_count: bool) -> list[ir.Value]:
        p = self.p

        def element(nest: Nest, row: Coords, source: ir.IndexExpr, inner: Coords) -> Term:
            return p.source(nest, row, source, inner).cast(wide)

        results = [self._scanned(p.inner, name, wide, element)]
        if with_count:
            results.append(self._scanned([], "sum", I64, lambda nest, *_: nest.constant(1, I64)))
        return results

    def _scanned(self, inner: list[ir.IndexExpr], name: str, wide: ir.DType, element: Any) -> ir.Value:
        c, p, runs = self.c, self.p, self.runs
        lead = len(p.rows)
        nest = Nest(c.builder, [*p.rows, p.places, *inner])
        result = nest.store((nest.constant(identity(name, wide), wide), wide))[0]
        row = scan.Row(name, (wide,), lambda a, b: (MERGE[name](a[0], b[0]),))

        def starts(nest: Nest, at: list[ir.IndexExpr], first: ir.IndexExpr, end: ir.IndexExpr) -> Term:
            return sort.starts_between(nest, runs.keys, at[:lead], first, end)

        def value(nest: Nest, at: list[ir.IndexExpr], place: ir.IndexExpr) -> Any:
            source = nest.load(runs.positions, [*at[:lead], place]).as_index()
            source = ir.min(source, p.count - 1)  # padding of the sort, which names no place
            return (element(nest, at[:lead], source, at[lead:]),), starts(nest, at, place, place)

        def stores(nest: Nest, at: list[ir.IndexExpr], place: ir.IndexExpr) -> Any:
            key = nest.load(runs.keys, [*at[:lead], place])
            following = nest.load(runs.keys, [*at[:lead], ir.min(place + 1, p.count - 1)])
            is_last = nest.index(place).eq(nest.index(p.count - 1)) | following.ne(key)
            mask = is_last & (key < nest.index(p.places))
            return [(result, [*at[:lead], key.as_index(), *at[lead:]], 0, mask)]

        scan.run(c, row, [*p.rows, *inner], p.count, value, stores, starts)
        return result


# scatter along a dimension


def _along(c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any) -> Problem:
    """Rows are the other dimensions, as far as `index` reaches."""
    rows = [s for d, s in enumerate(index.sizes) if d != dim]

    def at(row: Coords, source: ir.IndexExpr) -> list[ir.IndexExpr]:
        return [*row[:dim], source, *row[dim:]]

    def place(nest: Nest, row: Coords, source: ir.IndexExpr) -> Term:
        return nest.load(index, at(row, source)).cast(I64)

    def source(nest: Nest, row: Coords, s: ir.IndexExpr, inner: Coords) -> Term:
        if isinstance(src, ir.Value):
            return nest.load(src, at(row, s))
        return nest.constant(src, x.dtype)

    return Problem(rows, index.sizes[dim], x.sizes[dim], [], place, source)


def _reached(nest: Nest, rows: Coords, sizes: Coords, row: Coords) -> Term | None:
    """Whether the row of x at `row` is one that the index covers; None if it covers all."""
    mask: Term | None = None
    for covered, size, i in zip(rows, sizes, row, strict=True):
        if covered == size:
            continue
        inside = nest.index(i) < nest.index(covered)
        mask = inside if mask is None else mask & inside
    return mask


def _lifted(c: Context, x: Any) -> Any:
    return c.builder.unsqueeze(x, 0) if isinstance(x, ir.Value) and not x.sizes else x


def _scatter(c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any) -> ir.Value:
    """x with x[.., index[.., s, ..], ..] = src[.., s, ..]."""
    if not x.sizes:
        return c.builder.select(_scatter(c, *(_lifted(c, v) for v in (x, 0, index, src))), 0, ir.IndexExpr(0))
    index, src = _lifted(c, index), _lifted(c, src)
    if any(s.is_const(0) for s in [*index.sizes, *x.sizes]):
        return x
    dim %= len(x.sizes)
    p = _along(c, x, dim, index, src)
    table = None if p.count.is_const(1) else winners(c, p)
    nest = c.nest(x.sizes)
    row = [i for d, i in enumerate(nest.i) if d != dim]
    reached = _reached(nest, p.rows, [s for d, s in enumerate(x.sizes) if d != dim], row)
    inside = [ir.min(i, n - 1) for i, n in zip(row, p.rows, strict=True)]
    chosen = winner(nest, p, table, inside if reached is not None else row, nest.i[dim])
    hit = chosen >= 0 if reached is None else (chosen >= 0) & reached
    old = nest.load(x, nest.i)
    new = p.source(nest, inside if reached is not None else row, t.maximum(chosen, 0).as_index(), []).cast(old.dtype)
    return nest.store((t.where(hit, new, old), x.dtype))[0]


@lower(aten.scatter.src)
def scatter_src(c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    return _scatter(c, x, dim, index, src)


@lower(aten.scatter.value)
def scatter_value(c: Context, x: ir.Value, dim: int, index: ir.Value, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return NotImplemented
    return _scatter(c, x, dim, index, value)


REDUCTIONS = {
    **{"sum": "sum", "add": "sum", "mean": "sum", "prod": "prod", "multiply": "prod"},
    **{"amax": "max", "amin": "min"},
}


def _accumulator(dtype: ir.DType, name: str) -> ir.DType:
    """The type that sources meet in."""
    compute = ir.compute_type(dtype)
    if ir.is_floating(compute):
        return compute
    return I64 if name in ("sum", "prod") or compute == I64 else I32


def _combined(
    name: str, mode: str, include_self: bool, old: Term, new: Term, count: Term | None, wide: ir.DType
) -> Term:
    """The new element from the old one, the reduced sources and their count."""
    old = old.cast(wide)
    whole = MERGE[name](old, new)
    if not include_self:
        assert count is not None
        whole = t.where(count > 0, new, old)
    if mode == "mean":
        assert count is not None
        n = t.maximum(count + 1 if include_self else count, 1).cast(wide)
        whole = whole / n if ir.is_floating(wide) else t.call("floordiv", whole, n)
        whole = t.where(count > 0, whole, old)
    return whole


def _scatter_reduce(
    c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any, mode: str, include_self: bool
) -> ir.Value:
    if not x.sizes:
        lifted = _scatter_reduce(c, _lifted(c, x), 0, _lifted(c, index), _lifted(c, src), mode, include_self)
        return c.builder.select(lifted, 0, ir.IndexExpr(0))
    index, src = _lifted(c, index), _lifted(c, src)
    if any(s.is_const(0) for s in [*index.sizes, *x.sizes]):
        return x
    dim %= len(x.sizes)
    p = _along(c, x, dim, index, src)
    name = REDUCTIONS[mode]
    wide = _accumulator(x.dtype, name)
    counted = mode == "mean" or not include_self
    tables = accumulated(c, p, name, wide, counted)
    nest = c.nest(x.sizes)
    row = [i for d, i in enumerate(nest.i) if d != dim]
    reached = _reached(nest, p.rows, [s for d, s in enumerate(x.sizes) if d != dim], row)
    inside = row if reached is None else [ir.min(i, n - 1) for i, n in zip(row, p.rows, strict=True)]
    at = [*inside, nest.i[dim]]
    old = nest.load(x, nest.i)
    count = nest.load(tables[1], at) if counted else None
    whole = _combined(name, mode, include_self, old, nest.load(tables[0], at), count, wide)
    if reached is not None:
        whole = t.where(reached, whole, old.cast(wide))
    return nest.store((whole, x.dtype))[0]


@lower(aten.scatter_add.default)
def scatter_add(c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    return _scatter_reduce(c, x, dim, index, src, "sum", True)


@lower(aten.scatter_reduce.two)
def scatter_reduce(
    c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, *, include_self: bool = True
) -> ir.Value:
    return _scatter_reduce(c, x, dim, index, src, reduce, include_self)


@lower(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_mode(c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any, *, reduce: str) -> ir.Value:
    return _scatter_reduce(c, x, dim, index, src, reduce, True)


# index_put and its kin


@dataclass(frozen=True)
class Put:
    """x[indices] = values: `problem`, and where its places and inner elements lie in x."""

    problem: Problem
    indexed: list[int]  # dimensions of x that are indexed; a place is their flattened coordinate
    others: list[int]


def _put(c: Context, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value) -> Put:
    indexed = [d for d, i in enumerate(indices) if i is not None]
    others = [d for d in range(len(x.sizes)) if d not in indexed]
    shape = c.broadcast([i for i in indices if i is not None])
    adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if adjacent else 0
    sizes = [x.sizes[d] for d in others]
    strides = [c.numel([x.sizes[e] for e in indexed[k + 1 :]]) for k in range(len(indexed))]

    def block(source: ir.IndexExpr) -> list[ir.IndexExpr]:
        """Coordinates of a source in the broadcast index shape."""
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
    return Put(Problem([], c.numel(shape), places, sizes, place, source), indexed, others)


def _place_of(c: Context, x: ir.Value, put: Put, at: Coords) -> ir.IndexExpr:
    place = ir.IndexExpr(0)
    for d in put.indexed:
        place = place * x.sizes[d] + at[d]
    return place


def _masked_put(c: Context, x: ir.Value, mask: ir.Value, first: int, values: ir.Value, accumulate: bool) -> Any:
    """x[mask] = one value, or, for a mask of the first dimensions, the values in order."""
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
        wide = _accumulator(x.dtype, "sum")
        total = accumulated(c, p, "sum", wide, False)[0]
        nest = c.nest(x.sizes)
        inner = [nest.i[d] for d in put.others]
        old = nest.load(x, nest.i).cast(wide)
        return nest.store((old + nest.load(total, [_place_of(c, x, put, nest.i), *inner]), x.dtype))[0]
    table = None if p.count.is_const(1) else winners(c, p)
    nest = c.nest(x.sizes)
    chosen = winner(nest, p, table, [], _place_of(c, x, put, nest.i))
    old = nest.load(x, nest.i)
    new = p.source(nest, [], t.maximum(chosen, 0).as_index(), [nest.i[d] for d in put.others]).cast(old.dtype)
    return nest.store((t.where(chosen >= 0, new, old), x.dtype))[0]


def _rows_problem(c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> Problem:
    """Source s is src[.., s, ..], and goes to x[.., index[s], ..]."""
    inner = [s for d, s in enumerate(x.sizes) if d != dim]
    index, src = _lifted(c, index), _lifted(c, src)

    def place(nest: Nest, row: Coords, source: ir.IndexExpr) -> Term:
        return wrapped(nest, index, source, x.sizes[dim])

    def source(nest: Nest, row: Coords, s: ir.IndexExpr, at: Coords) -> Term:
        return nest.load(src, [*at[:dim], s, *at[dim:]])

    return Problem([], index.sizes[0], x.sizes[dim], inner, place, source)


def wrapped(nest: Nest, index: ir.Value, at: ir.IndexExpr, size: ir.IndexExpr) -> Term:
    chosen = nest.load(index, [at]).cast(I64)
    return t.where(chosen < 0, chosen + nest.index(size), chosen)


@lower(aten.index_reduce.default)
def index_reduce(
    c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, *, include_self: bool = True
) -> Any:
    if not x.sizes or any(s.is_const(0) for s in [*x.sizes, *index.sizes]):
        return NotImplemented
    dim %= len(x.sizes)
    p = _rows_problem(c, x, dim, index, src)
    name = REDUCTIONS[reduce]
    wide = _accumulator(x.dtype, name)
    counted = reduce == "mean" or not include_self
    tables = accumulated(c, p, name, wide, counted)
    nest = c.nest(x.sizes)
    inner = [i for d, i in enumerate(nest.i) if d != dim]
    count = nest.load(tables[1], [nest.i[dim]]) if counted else None
    new = nest.load(tables[0], [nest.i[dim], *inner])
    whole = _combined(name, reduce, include_self, nest.load(x, nest.i), new, count, wide)
    return nest.store((whole, x.dtype))[0]


# Masks


def _mask_positions(c: Context, mask: ir.Value) -> ir.Value:
    """For each element of the flat mask how many before it are true, itself included: i64."""
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
    """The true places of the mask, in order, get the elements of the source, in order."""
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
    """The gradient's elements at true places of the mask, in order; 0 behind them."""
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


# Windows


@lower(aten.as_strided_scatter.default)
def as_strided_scatter(
    c: Context, x: ir.Value, src: ir.Value, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> Any:
    """x, laid out row-major, with the window's elements replaced; of those that share a place the last stays."""
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

    p = Problem([], count, places, [], place, lambda nest, row, s, inner: nest.load(flat, [s]))
    table = winners(c, p)
    whole = c.builder.reshape(x, [places])
    nest = Nest(c.builder, [places])
    chosen = winner(nest, p, table, [], nest.i[0])
    old = nest.load(whole, nest.i)
    new = p.source(nest, [], t.maximum(chosen, 0).as_index(), []).cast(old.dtype)
    return c.builder.reshape(nest.store((t.where(chosen >= 0, new, old), c.dtype))[0], c.sizes)


@lower(aten.histc.default)
def histc(c: Context, x: ir.Value, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Counts of equal intervals of [min, max]; the extremes of x if these are equal."""
    if not ir.is_floating(x.dtype) or any(s.is_const(0) for s in x.sizes):
        return NotImplemented
    wide = ir.compute_type(x.dtype)
    count = c.numel(x.sizes)
    flat = c.builder.reshape(x, [count])
    found = None
    if min == max:
        low, high = (c.builder.reduce(name, flat, [0], False, wide)[0] for name in ("min", "max"))
        found = low, high

    def place(nest: Nest, row: Coords, s: ir.IndexExpr) -> Term:
        value = nest.load(flat, [s])
        if found is None:
            low, high = nest.constant(float(min), wide), nest.constant(float(max), wide)
        else:
            low, high = nest.load(found[0], []), nest.load(found[1], [])
            same = low.eq(high)
            low, high = t.where(same, low - 1, low), t.where(same, high + 1, high)
        at = t.call("floor", (value - low) / (high - low) * float(bins))
        good = (value >= low) & (value <= high)
        return t.where(good, t.minimum(t.where(good, at, 0.0), float(bins - 1)).cast(I64), -1)

    p = Problem([], count, ir.IndexExpr(bins), [], place, lambda nest, *_: nest.constant(1, I64))
    return c.cast(accumulated(c, p, "sum", I64, False)[0], c.dtype)
