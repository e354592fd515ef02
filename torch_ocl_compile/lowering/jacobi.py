# torch_ocl_compile/lowering/jacobi.py: kernels of ocl.jacobi: Jacobi rotations of all pairs of columns at once.
"""In each round of a round-robin tournament column k meets column e - 1 - k, where e is the number of columns, even.

All columns but the last then move on by one place, cyclically; after e - 1 rounds each is back at its place. Every
round is the same few kernels:

    cosine, sine [.., e / 2]   from three sums over the rows of a pair, or from three elements of a symmetric matrix
    matrix, vectors [.., e]    each element from two, or from four where the rows are rotated too
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_ocl_compile._C import ir
from torch_ocl_compile.decompositions.spectral import rounds
from torch_ocl_compile.dtypes import TORCH_DTYPES
from torch_ocl_compile.lowering import term as t
from torch_ocl_compile.lowering.context import Context, static_int
from torch_ocl_compile.lowering.registry import lower
from torch_ocl_compile.lowering.term import Nest, Term

Angles = tuple[ir.Value, ir.Value]


def _rotation(first: Term, second: Term, mixed: Term) -> tuple[Term, Term]:
    """Computes decompositions/spectral.py:rotation on terms."""
    is_flat = mixed.eq(0)
    ratio = (second - first) / t.where(is_flat, 1.0, 2 * mixed)
    one = ratio.nest.constant(1.0, ratio.dtype)
    tangent = t.where(ratio < 0, -one, one) / (t.abs_(ratio) + t.sqrt(1 + ratio * ratio))
    tangent = t.where(is_flat, 0.0, tangent)
    cosine = 1 / t.sqrt(1 + tangent * tangent)
    return cosine, cosine * tangent


@dataclass(frozen=True)
class Place:
    """The source of a column after a round: where it was before, where its partner was, the number of the pair, and
    whether it was the first of the pair.
    """

    own: ir.IndexExpr
    other: ir.IndexExpr
    pair: ir.IndexExpr
    is_first: Term


class Tournament:
    """Rounds among the columns of matrices [.., rows, n]."""

    def __init__(self, c: Context, batch: list[ir.IndexExpr], n: int, dtype: ir.DType) -> None:
        self.c, self.batch, self.n, self.dtype = c, batch, n, dtype
        self.even = n + n % 2
        self.half = self.even // 2

    def nest(self, *sizes: int | ir.IndexExpr, over: int | None = None) -> Nest:
        whole = [*self.batch, *(ir.IndexExpr(s) if isinstance(s, int) else s for s in sizes)]
        return Nest(self.c.builder, whole, [] if over is None else [ir.IndexExpr(over)])

    def padded(self, x: ir.Value, rows: int) -> ir.Value:
        """Returns x as [.., rows, e], with zeros beyond x."""
        nest = self.nest(rows, self.even)
        *_, row, k = nest.i
        have = [static_int(s.constant(), "a matrix's size") for s in x.sizes[-2:]]
        inside = (nest.index(row) < have[0]) & (nest.index(k) < have[1])
        at = [ir.min(row, have[0] - 1), ir.min(k, have[1] - 1)]
        return nest.store((nest.load(x, [*nest.i[:-2], *at], inside), self.dtype))[0]

    def unit(self) -> ir.Value:
        nest = self.nest(self.n, self.even)
        same = nest.index(nest.i[-1]).eq(nest.index(nest.i[-2]))
        return nest.store((t.where(same, nest.constant(1.0, self.dtype), 0.0), self.dtype))[0]

    def angles_of_columns(self, x: ir.Value, rows: int) -> Angles:
        """Returns the angles that make the columns of each pair orthogonal."""

        def product(mirror_a: bool, mirror_b: bool) -> ir.Value:
            nest = self.nest(self.half, over=rows)
            at = [[*nest.i[:-1], nest.r[0], self._mirrored(nest.i[-1], m)] for m in (mirror_a, mirror_b)]
            return nest.reduce("sum", [nest.load(x, at[0]) * nest.load(x, at[1])], [self.dtype])[0]

        sums = product(False, False), product(True, True), product(False, True)
        nest = self.nest(self.half)
        return self._stored(nest, *(nest.load(s, nest.i) for s in sums))

    def angles_of_symmetric(self, x: ir.Value) -> Angles:
        """Returns the angles that make the off-diagonal element of each pair 0."""
        nest = self.nest(self.half)
        k, other = nest.i[-1], self._mirrored(nest.i[-1], True)
        return self._stored(nest, *(nest.load(x, [*nest.i[:-1], *at]) for at in ((k, k), (other, other), (k, other))))

    def _mirrored(self, k: ir.IndexExpr, mirror: bool) -> ir.IndexExpr:
        return self.even - 1 - k if mirror else k

    def _stored(self, nest: Nest, first: Term, second: Term, mixed: Term) -> Angles:
        cosine, sine = _rotation(first, second, mixed)
        made = nest.store((cosine, self.dtype), (sine, self.dtype))
        return made[0], made[1]

    def _source(self, nest: Nest, k: ir.IndexExpr) -> Place:
        """Returns where the column that is at place k after the round comes from."""
        last = nest.index(k).eq(self.even - 1)
        before = nest.index(ir.mod(k + (self.even - 2), ir.IndexExpr(self.even - 1)))
        own = t.where(last, self.even - 1, before)
        other = self.even - 1 - own
        pair = t.minimum(own, other)
        return Place(own.as_index(), other.as_index(), pair.as_index(), own < self.half)

    def rotated(self, x: ir.Value, rows: int, angles: Angles, both_sides: bool) -> ir.Value:
        """Returns x after the round; `both_sides`: its rows are rotated like its columns."""
        nest = self.nest(rows, self.even)
        *batch, row, k = nest.i
        column = self._source(nest, k)

        def mixed(p: Place, own: Term, other: Term) -> Term:
            cosine, sine = (nest.load(a, [*batch, p.pair]) for a in angles)
            return cosine * own + t.where(p.is_first, -sine, sine) * other

        def in_row(r: ir.IndexExpr) -> Term:
            return mixed(column, *(nest.load(x, [*batch, r, j]) for j in (column.own, column.other)))

        if both_sides:
            place = self._source(nest, row)
            value = mixed(place, in_row(place.own), in_row(place.other))
        else:
            value = in_row(row)
        return nest.store((value, self.dtype))[0]


@lower("ocl.jacobi.default")
def jacobi(c: Context, a: ir.Value, symmetric: bool) -> ir.Value:
    rows, n = (static_int(s.constant(), "a matrix's size") for s in a.sizes[-2:])
    games = Tournament(c, a.sizes[:-2], n, a.dtype)
    rows = games.even if symmetric else rows
    x, v = games.padded(a, rows), games.unit()
    for _ in range(rounds(games.even, TORCH_DTYPES[a.dtype])):
        angles = games.angles_of_symmetric(x) if symmetric else games.angles_of_columns(x, rows)
        x, v = games.rotated(x, rows, angles, symmetric), games.rotated(v, n, angles, False)
    return c.builder.slice(v, len(v.sizes) - 1, 0, n, 1)
