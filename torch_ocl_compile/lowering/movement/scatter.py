# torch_ocl_compile/lowering/movement/scatter.py: stores at coordinates that are themselves loaded, with and without accumulation.
"""Assignment: where several sources go to one place, the last one wins. Each place finds its winner by an atomic
maximum of source positions (`winners`); the result is then a gather. Accumulation: see accumulate.py.

Every result is the same in every run, whatever order the device works in. Sources whose place lies outside the target are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable
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
    add_in_order,
    combined,
    slices_of,
)
from torch_ocl_compile.lowering.movement.indexing import is_expanded

aten = torch.ops.aten
I32, I64 = ir.DType.kI32, ir.DType.kI64


# Assignment


def winners(c: Context, p: ScatterSpec) -> ir.Value:
    """Returns [rows..., places] int32: the last source that goes to each place, or -1."""
    nest = Nest(c.builder, [*p.rows, p.places])
    table = nest.store((nest.constant(-1, I32), I32))[0]
    nest = Nest(c.builder, [*p.rows, p.count])
    row, source = nest.i[:-1], nest.i[-1]
    place = p.place(nest, row, source)
    inside = (place >= 0) & (place < nest.index(p.places))
    nest.add_store(table, [*row, place.as_index()], nest.index(source, I32), inside, mode=ir.StoreMode.kMaximum)
    nest.end()
    return table


def winner(nest: Nest, p: ScatterSpec, table: ir.Value | None, row: Coords, place: ir.IndexExpr) -> Term:
    """Returns the number of the source from which `place` gets its value, or -1."""
    if table is not None:
        return nest.load(table, [*row, place])
    only = p.place(nest, row, ir.IndexExpr(0))
    return t.where(only.eq(nest.index(place)), nest.constant(0, I32), -1)


def store_winners(
    c: Context, x: ir.Value, p: ScatterSpec, table: ir.Value | None, at: Callable[[Coords, Term, Coords], Coords]
) -> ir.Value:
    """Stores the winning sources directly into x, at `at(row, place, inner)`. Other elements of x are not touched."""
    nest = Nest(c.builder, [*p.rows, p.count, *p.inner])
    lead = len(p.rows)
    row, source, inner = nest.i[:lead], nest.i[lead], nest.i[lead + 1 :]
    place = p.place(nest, row, source)
    mask = (place >= 0) & (place < nest.index(p.places))
    if table is not None:
        mask = mask & nest.load(table, [*row, place.as_index()], mask).eq(nest.index(source, I32))
    nest.add_store(x, at(row, place, inner), p.source(nest, row, source, inner), mask)
    nest.end()
    return x


# Scatter along a dimension


@dataclass(frozen=True)
class Along:
    """A scatter along `dim` into x, as `spec`.

    Its rows and inner dimensions are the other dimensions of the index, which may be shorter than the same dimensions of
    x. Those in which the index is expanded are inner ones: a source is then a vector, and its place is looked at once.
    """

    spec: ScatterSpec
    dim: int
    rows: list[int]
    inner: list[int]
    # The sizes of x and of the index, for each dimension. In `dim`, both are that of x.
    sizes: list[ir.IndexExpr]
    covered: list[ir.IndexExpr]

    def coords(self, row: Coords, at: ir.IndexExpr, inner: Coords) -> list[ir.IndexExpr]:
        """Returns the coordinates in the order of the dimensions; `at` is the one along `dim`."""
        given = dict(zip([*self.rows, self.dim, *self.inner], [*row, at, *inner], strict=True))
        return [given[d] for d in sorted(given)]

    def parts(self, nest: Nest, i: Coords) -> tuple[Coords, Coords, Term | None]:
        """Returns the row and the inner coordinates of an element of x, and whether the index covers it (None: it does).

        Where it does not, they are those of the last covered one.
        """
        mask: Term | None = None
        inside = list(i)
        for d, (size, covered) in enumerate(zip(self.sizes, self.covered, strict=True)):
            if covered == size:
                continue
            inside[d] = ir.min(i[d], covered - 1)
            reached = nest.index(i[d]) < nest.index(covered)
            mask = reached if mask is None else mask & reached
        return [inside[d] for d in self.rows], [inside[d] for d in self.inner], mask


def _along(x: ir.Value, dim: int, index: ir.Value, src: Any) -> Along:
    others = [d for d in range(len(x.sizes)) if d != dim]
    inner = [d for d in others if is_expanded(index, d)]
    rows = [d for d in others if d not in inner]

    def place(nest: Nest, row: Coords, source: ir.IndexExpr) -> Term:
        return nest.load(index, made.coords(row, source, [ir.IndexExpr(0)] * len(inner))).cast(I64)

    def source(nest: Nest, row: Coords, s: ir.IndexExpr, at: Coords) -> Term:
        if isinstance(src, ir.Value):
            return nest.load(src, made.coords(row, s, at))
        return nest.constant(src, x.dtype)

    sizes = [[index.sizes[d] for d in dims] for dims in (rows, inner)]
    spec = ScatterSpec(sizes[0], index.sizes[dim], x.sizes[dim], sizes[1], place, source)
    covered = [x.sizes[d] if d == dim else index.sizes[d] for d in range(len(x.sizes))]
    made = Along(spec, dim, rows, inner, x.sizes, covered)
    return made


def lifted(c: Context, x: Any) -> Any:
    return c.builder.unsqueeze(x, 0) if isinstance(x, ir.Value) and not x.sizes else x


def _scatter(c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any) -> ir.Value:
    """Returns x with x[.., index[.., s, ..], ..] = src[.., s, ..]."""
    if not x.sizes:
        return c.builder.select(_scatter(c, *(lifted(c, v) for v in (x, 0, index, src))), 0, ir.IndexExpr(0))
    index, src = lifted(c, index), lifted(c, src)
    if any(s.is_const(0) for s in [*index.sizes, *x.sizes]):
        return x
    along = _along(x, dim % len(x.sizes), index, src)
    p = along.spec
    table = None if p.count.is_const(1) else winners(c, p)
    if c.in_place:
        return store_winners(c, x, p, table, lambda row, place, inner: along.coords(row, place.as_index(), inner))
    nest = c.nest(x.sizes)
    row, inner, reached = along.parts(nest, nest.i)
    chosen = winner(nest, p, table, row, nest.i[along.dim])
    hit = chosen >= 0 if reached is None else (chosen >= 0) & reached
    old = nest.load(x, nest.i)
    new = p.source(nest, row, t.maximum(chosen, 0).as_index(), inner).cast(old.dtype)
    return nest.store((t.where(hit, new, old), x.dtype))[0]


@lower(aten.scatter.src)
def scatter_src(c: Context, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    return _scatter(c, x, dim, index, src)


@lower(aten.scatter.value)
def scatter_value(c: Context, x: ir.Value, dim: int, index: ir.Value, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return NotImplemented
    return _scatter(c, x, dim, index, _source(c, value, index))


def _source(c: Context, value: Any, index: ir.Value) -> Any:
    """Returns what a scatter reads beside its index. A float that varies from call to call is a value of rank 0."""
    is_number = isinstance(value, ir.Value) and len(value.sizes) < len(index.sizes)
    return c.builder.expand(value, index.sizes) if is_number else value


def _scatter_reduce(
    c: Context, x: ir.Value, dim: int, index: ir.Value, src: Any, mode: str, include_self: bool
) -> ir.Value:
    if not x.sizes:
        vector = _scatter_reduce(c, lifted(c, x), 0, lifted(c, index), lifted(c, src), mode, include_self)
        return c.builder.select(vector, 0, ir.IndexExpr(0))
    index, src = lifted(c, index), lifted(c, src)
    if any(s.is_const(0) for s in [*index.sizes, *x.sizes]):
        return x
    along = _along(x, dim % len(x.sizes), index, src)
    p = along.spec
    name = REDUCTIONS[mode]
    wide = accumulator(x.dtype, name)
    counted = mode == "mean" or not include_self
    if mode == "sum" and include_self and slices_of(c, p, name) == 1:
        total = x
        if not c.in_place or x.dtype != wide:
            sums = c.nest(x.sizes)
            total = sums.store((sums.load(x, sums.i).cast(wide), wide))[0]
        add_in_order(c, p, total, 1, p.inner, p.source, lambda row, _, place, inner: along.coords(row, place, inner))
        return c.cast(total, x.dtype)
    tables = accumulated(c, p, name, wide, counted)
    nest = c.nest(x.sizes)
    row, inner, reached = along.parts(nest, nest.i)
    at = [*row, nest.i[along.dim]]
    old = nest.load(x, nest.i)
    count = nest.load(tables[1], at) if counted else None
    whole = combined(name, mode, include_self, old, nest.load(tables[0], [*at, *inner]), count, wide)
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
    return _scatter_reduce(c, x, dim, index, _source(c, src, index), reduce, True)


@lower(torch.ops.ocl.places.default)
def places(c: Context, numbers: ir.Value, like: ir.Value) -> ir.Value:
    """Returns where each number from 1 on is first, in numbers that begin with 0 or 1 and rise by 0 or 1."""
    found = c.builder.buffer(I64, like.sizes)
    nest = Nest(c.builder, numbers.sizes)
    i = nest.i[0]
    number = nest.load(numbers, [i])
    before = nest.load(numbers, [ir.max(i - 1, 0)], nest.index(i) > 0)
    nest.add_store(found, [t.maximum(number - 1, 0).as_index()], nest.index(i), number.ne(before))
    nest.end()
    return found
