# torch_ocl_compile/lowering/movement/accumulate.py: reduces sources by the places they go to, without float atomics.
"""Few sources per place are reduced directly, place by place. On a CPU, a work-item adds the sources of a row in their
order, or those of a slice of it to a table of its own (`_in_order`). Otherwise the sources are sorted by place with a
stable sort, and a scan that restarts at each new place stores its last result there (`Segments`).

Every result is the same in every run, whatever order the device works in. Sources whose place lies outside the target are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.movement import sort
from torch_ocl_compile.lowering.movement.sorting import Digits, Keys, sort_keys
from torch_ocl_compile.lowering.reductions import scan

I32, I64 = ir.DType.kI32, ir.DType.kI64

# Every place looks at all sources of its row ("directly") in three cases: there are at most FEW_PAIRS pairs of a source
# and a place, or at most FEW_SOURCES sources per row, or at most SOME_SOURCES sources per row and SOME_PAIRS pairs.
FEW_PAIRS, SOME_PAIRS = 1 << 18, 1 << 24
FEW_SOURCES, SOME_SOURCES = 4, 32
ITEMS_OF_UNIT = 4  # The work-items of each compute unit of a CPU that share the rows of sources.
# A work-item of a CPU adds a source in the time in which it makes so many steps of sorting and scanning.
STEPS_OF_SORTING = 8
USUAL_ROWS = 16  # Of scatters whose number of rows is symbolic.

Coords = Sequence[ir.IndexExpr]


@dataclass(frozen=True)
class ScatterSpec:
    """A scatter: sources [rows..., count] go to places [rows..., places]. Each source has the shape `inner`."""

    rows: list[ir.IndexExpr]
    count: ir.IndexExpr
    places: ir.IndexExpr
    inner: list[ir.IndexExpr]
    # (nest, row, source) -> the place of the source, int64. A source whose place is outside [0, places) is ignored.
    place: Callable[[Nest, Coords, ir.IndexExpr], Term]
    # (nest, row, source, inner coordinates) -> the element of the source.
    source: Callable[[Nest, Coords, ir.IndexExpr, Coords], Term]


def known_product(*sizes: ir.IndexExpr) -> int | None:
    whole = ir.product(list(sizes))
    return whole.constant() if whole.is_const() else None


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
    half = 1 << (8 * ir.size_bytes(dtype) - 1)
    return -half if name == "max" else half - 1


def accumulated(
    c: Context, p: ScatterSpec, name: str, wide: ir.DType, with_count: bool, dtype: ir.DType | None = None
) -> list[ir.Value]:
    """Returns the reduction of the sources of each place, [rows..., places, inner...]; the identity where there are
    none. They are accumulated in `wide`, and stored in `dtype` (None: `wide`).

    If `with_count`, the second value is the number of sources of each place, [rows..., places] int64.
    """
    pairs = known_product(*p.rows, p.count, p.places, *p.inner)
    count = known_product(p.count)
    few = count is not None and (
        count <= FEW_SOURCES or (count <= SOME_SOURCES and pairs is not None and pairs <= SOME_PAIRS)
    )
    if few or (pairs is not None and pairs <= FEW_PAIRS):
        return _directly(c, p, name, wide, with_count, dtype or wide)
    if slices := slices_of(c, p, name):
        sums = [c.cast(_in_order(c, p, slices, p.inner, wide, p.source), dtype or wide)]
        if with_count:
            sums.append(_in_order(c, p, slices, [], I64, lambda nest, *_: nest.constant(1, I64)))
        return sums
    return Segments(c, p).reduce(name, wide, with_count, dtype or wide)


def slices_of(c: Context, p: ScatterSpec, name: str) -> int:
    """Returns into how many slices the sources of a row are cut for `_in_order`; 0 if sorting them is faster."""
    if not c.cpu_units or name != "sum":
        return 0
    rows, count, places = (
        known_product(*p.rows, *p.inner) or USUAL_ROWS,
        known_product(p.count),
        known_product(p.places),
    )
    # The tables of all slices are not larger than the sources.
    most = 1 if count is None or places is None else max(1, count // max(places, 1))
    slices = min(most, -(-ITEMS_OF_UNIT * c.cpu_units // rows))
    return slices if rows * slices * STEPS_OF_SORTING >= c.cpu_units else 0


def _in_order(
    c: Context, p: ScatterSpec, slices: int, inner: list[ir.IndexExpr], wide: ir.DType, source: Any
) -> ir.Value:
    """Adds the sources of each place in their order. With several slices, each has a table, and the tables are summed."""
    nest = Nest(c.builder, [*p.rows, ir.IndexExpr(slices), p.places, *inner])
    tables = nest.store((nest.constant(0, wide), wide))[0]
    add_in_order(c, p, tables, slices, inner, source, lambda row, slice_, place, at: [*row, slice_, place, *at])
    lead = len(p.rows)
    if slices == 1:
        return c.builder.select(tables, lead, ir.IndexExpr(0))
    nest = Nest(c.builder, [*p.rows, p.places, *inner], [ir.IndexExpr(slices)])
    return nest.reduce("sum", [nest.load(tables, [*nest.i[:lead], nest.r[0], *nest.i[lead:]])], [wide])[0]


def add_in_order(
    c: Context,
    p: ScatterSpec,
    tables: ir.Value,
    slices: int,
    inner: list[ir.IndexExpr],
    source: Any,
    at: Callable[[Coords, Any, Any, Coords], Coords],
) -> None:
    """Adds the sources to `tables`, whose dtype is an accumulator's, at `at(row, slice, place, inner)`."""
    length = ir.ceildiv(p.count, slices)
    nest = Nest(c.builder, [*p.rows, ir.IndexExpr(slices), *inner], [length])
    lead = len(p.rows)
    row, slice_, vector = nest.i[:lead], nest.i[lead], nest.i[lead + 1 :]
    number = slice_ * length + nest.r[0]
    inside = ir.min(number, p.count - 1)
    place = p.place(nest, row, inside)
    mask = (place >= 0) & (place < nest.index(p.places)) & (nest.index(number) < nest.index(p.count))
    value = source(nest, row, inside, vector).cast(tables.dtype)
    # Each element is a sum of its own, which the store adds.
    nest.scan("sum", [value], tables.dtype, nest.constant(True, ir.DType.kBool))
    nest.add_store(tables, at(row, slice_, place.as_index(), vector), 0, mask, ir.StoreMode.kAdd)
    nest.end()


def _directly(
    c: Context, p: ScatterSpec, name: str, wide: ir.DType, with_count: bool, dtype: ir.DType
) -> list[ir.Value]:
    """Scatters without atomics: each element of the result loops over all sources of its row, and reduces the sources
    that go to its place.
    """

    def reduced(inner: list[ir.IndexExpr], reduction: str, dtype: ir.DType, element: Any) -> ir.Value:
        nest = Nest(c.builder, [*p.rows, p.places, *inner], [p.count])
        lead = len(p.rows)
        row, source = nest.i[:lead], nest.r[0]
        hit = p.place(nest, row, source).eq(nest.index(nest.i[lead]))
        value = element(nest, row, source, nest.i[lead + 1 :])
        chosen = t.where(hit, value, identity(reduction, value.dtype))
        return nest.reduce(reduction, [chosen], [dtype])[0]

    def element(nest: Nest, row: Coords, source: ir.IndexExpr, inner: Coords) -> Term:
        return p.source(nest, row, source, inner).cast(wide)

    results = [reduced(p.inner, name, dtype, element)]
    if with_count:
        results.append(reduced([], "sum", I64, lambda nest, *_: nest.constant(1, I64)))
    return results


class Segments:
    """The sources of each row, sorted by place."""

    def __init__(self, c: Context, p: ScatterSpec) -> None:
        self.c, self.p = c, p
        dtype = I32 if p.places.is_const() and p.places.constant() < 2**31 - 1 else I64
        nest = Nest(c.builder, [*p.rows, p.count])
        place = p.place(nest, nest.i[:-1], nest.i[-1])
        end = nest.index(p.places)
        inside = (place >= 0) & (place < end)
        keys = nest.store((t.where(inside, place, end), dtype))[0]
        self.runs = sort_keys(c, Keys(keys, Digits.below(p.places)))

    def reduce(self, name: str, wide: ir.DType, with_count: bool, dtype: ir.DType) -> list[ir.Value]:
        p = self.p

        def element(nest: Nest, row: Coords, source: ir.IndexExpr, inner: Coords) -> Term:
            return p.source(nest, row, source, inner).cast(wide)

        results = [self._scanned(p.inner, name, wide, element, dtype)]
        if with_count:
            results.append(self._scanned([], "sum", I64, lambda nest, *_: nest.constant(1, I64), I64))
        return results

    def _scanned(self, inner: list[ir.IndexExpr], name: str, wide: ir.DType, element: Any, dtype: ir.DType) -> ir.Value:
        c, p, runs = self.c, self.p, self.runs
        lead = len(p.rows)
        nest = Nest(c.builder, [*p.rows, p.places, *inner])
        result = nest.store((nest.constant(identity(name, wide), wide), dtype))[0]
        row = scan.Row(name, (wide,), lambda a, b: (MERGE[name](a[0], b[0]),))

        def starts(nest: Nest, at: list[ir.IndexExpr], first: ir.IndexExpr, end: ir.IndexExpr) -> Term:
            return sort.starts_between(nest, runs.keys, at[:lead], first, end)

        def value(nest: Nest, at: list[ir.IndexExpr], place: ir.IndexExpr) -> Any:
            source = nest.load(runs.positions, [*at[:lead], place]).as_index()
            return (element(nest, at[:lead], source, at[lead:]),), starts(nest, at, place, place)

        def stores(nest: Nest, at: list[ir.IndexExpr], place: ir.IndexExpr) -> Any:
            key = nest.load(runs.keys, [*at[:lead], place])
            following = nest.load(runs.keys, [*at[:lead], ir.min(place + 1, p.count - 1)])
            is_last = nest.index(place).eq(nest.index(p.count - 1)) | following.ne(key)
            mask = is_last & (key < nest.index(p.places))
            return [(result, [*at[:lead], key.as_index(), *at[lead:]], 0, mask)]

        scan.run(c, row, p.rows, p.count, value, stores, starts, inner)
        return result


REDUCTIONS = {
    **{"sum": "sum", "add": "sum", "mean": "sum", "prod": "prod", "multiply": "prod"},
    **{"amax": "max", "amin": "min"},
}


def accumulator(dtype: ir.DType, name: str) -> ir.DType:
    """Returns the dtype in which sources are accumulated."""
    compute = ir.compute_type(dtype)
    if ir.is_floating(compute):
        return compute
    return I64 if name in ("sum", "prod") or compute == I64 else I32


def combined(
    name: str, mode: str, include_self: bool, old: Term, new: Term, count: Term | None, wide: ir.DType
) -> Term:
    """Returns the new element, given the old one, the reduced sources and their count."""
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
