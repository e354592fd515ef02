# torch_ocl_compile/lowering/complex_numbers/jacobi.py: kernels of ocl.jacobi: Jacobi rotations of all pairs of columns at once.
"""In each round of a round-robin tournament column k meets column e - 1 - k, where e is the number of columns, even.

All columns but the last then move on by one place, cyclically; after e - 1 rounds each is back at its place. Every
round is the same few kernels:

    cosine, sine [.., e / 2]   from three sums over the rows of a pair, or from three elements of a symmetric matrix
    matrix, vectors [.., e]    each element from two, or from four where the rows are rotated too

Complex matrices have a real cosine and a complex sine, whose phase makes the product of the pair real.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.decompositions.spectral import rounds
from torch_ocl_compile.dtypes import TORCH_DTYPES
from torch_ocl_compile.lowering.complex_numbers import complex_term as z
from torch_ocl_compile.lowering.complex_numbers.complex_term import Z
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.complex_value import Complex
from torch_ocl_compile.lowering.core.context import Context, static_int
from torch_ocl_compile.lowering.core.registry import lower, lower_complex
from torch_ocl_compile.lowering.core.term import Nest, Term

Angles = tuple[ir.Value, Any]  # (cosine, sine); the sine is a Complex for complex numbers.


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
    """Rounds among the columns of real matrices [.., rows, n]."""

    def __init__(self, c: Context, batch: list[ir.IndexExpr], n: int, dtype: ir.DType) -> None:
        self.c, self.batch, self.n, self.dtype = c, batch, n, dtype
        self.even = n + n % 2
        self.half = self.even // 2

    # What depends on the kind of numbers. An element is a Term, or a Z for complex numbers.

    def parts(self, x: Any, function: Callable[[ir.Value], ir.Value]) -> Any:
        return function(x)

    def load(self, nest: Nest, x: Any, at: list[ir.IndexExpr]) -> Any:
        return nest.load(x, at)

    def store(self, nest: Nest, element: Any) -> Any:
        return nest.store((element, self.dtype))[0]

    def size(self, element: Any) -> Term:
        """Returns an element that is known to be real."""
        made: Term = element
        return made

    def unit(self) -> Any:
        nest = self.nest(self.n, self.even)
        same = nest.index(nest.i[-1]).eq(nest.index(nest.i[-2]))
        return nest.store((t.where(same, nest.constant(1.0, self.dtype), 0.0), self.dtype))[0]

    def product(self, x: Any, rows: int, mirror_a: bool, mirror_b: bool) -> Any:
        """Returns the products of columns with columns, or with their partners: [.., half]."""
        nest = self.nest(self.half, over=rows)
        a, b = (nest.load(x, self._in_row(nest, m)) for m in (mirror_a, mirror_b))
        return nest.reduce("sum", [a * b], [self.dtype])[0]

    def angles(self, nest: Nest, first: Term, second: Term, mixed: Any) -> Any:
        cosine, sine = _rotation(first, second, mixed)
        made = nest.store((cosine, self.dtype), (sine, self.dtype))
        return made[0], made[1]

    def mixed(self, nest: Nest, angles: Angles, p: Place, own: Any, other: Any, is_row: bool) -> Any:
        """Returns an element after its rotation with its partner."""
        cosine, sine = (nest.load(a, [*self._batch(nest), p.pair]) for a in angles)
        return cosine * own + t.where(p.is_first, -sine, sine) * other

    # What is the same for all numbers.

    def nest(self, *sizes: int | ir.IndexExpr, over: int | None = None) -> Nest:
        whole = [*self.batch, *(ir.IndexExpr(s) if isinstance(s, int) else s for s in sizes)]
        return Nest(self.c.builder, whole, [] if over is None else [ir.IndexExpr(over)])

    def padded(self, x: Any, rows: int) -> Any:
        """Returns x as [.., rows, e], with zeros beyond x."""
        have = [static_int(s.constant(), "a matrix's size") for s in x.sizes[-2:]]

        def part(x: ir.Value) -> ir.Value:
            nest = self.nest(rows, self.even)
            *_, row, k = nest.i
            inside = (nest.index(row) < have[0]) & (nest.index(k) < have[1])
            at = [ir.min(row, have[0] - 1), ir.min(k, have[1] - 1)]
            return nest.store((nest.load(x, [*nest.i[:-2], *at], inside), self.dtype))[0]

        return self.parts(x, part)

    def angles_of_columns(self, x: Any, rows: int) -> Any:
        """Returns the angles that make the columns of each pair orthogonal."""
        first, second, mixed = (self.product(x, rows, *m) for m in ((False, False), (True, True), (False, True)))
        nest = self.nest(self.half)
        return self.angles(nest, nest.load(first, nest.i), nest.load(second, nest.i), self.load(nest, mixed, nest.i))

    def angles_of_symmetric(self, x: Any) -> Any:
        """Returns the angles that make the off-diagonal element of each pair 0."""
        nest = self.nest(self.half)
        k, other = nest.i[-1], self._mirrored(nest.i[-1], True)
        first, second, mixed = (self.load(nest, x, [*nest.i[:-1], *at]) for at in ((k, k), (other, other), (k, other)))
        return self.angles(nest, self.size(first), self.size(second), mixed)

    def _in_row(self, nest: Nest, mirror: bool) -> list[ir.IndexExpr]:
        return [*nest.i[:-1], nest.r[0], self._mirrored(nest.i[-1], mirror)]

    def _batch(self, nest: Nest) -> list[ir.IndexExpr]:
        return nest.i[: len(self.batch)]

    def _mirrored(self, k: ir.IndexExpr, mirror: bool) -> ir.IndexExpr:
        return self.even - 1 - k if mirror else k

    def _source(self, nest: Nest, k: ir.IndexExpr) -> Place:
        """Returns where the column that is at place k after the round comes from."""
        last = nest.index(k).eq(self.even - 1)
        before = nest.index(ir.mod(k + (self.even - 2), ir.IndexExpr(self.even - 1)))
        own = t.where(last, self.even - 1, before)
        other = self.even - 1 - own
        pair = t.minimum(own, other)
        return Place(own.as_index(), other.as_index(), pair.as_index(), own < self.half)

    def rotated(self, x: Any, rows: int, angles: Angles, both_sides: bool) -> Any:
        """Returns x after the round; `both_sides`: its rows are rotated like its columns."""
        nest = self.nest(rows, self.even)
        *batch, row, k = nest.i
        column = self._source(nest, k)

        def in_row(r: ir.IndexExpr) -> Any:
            own, other = (self.load(nest, x, [*batch, r, j]) for j in (column.own, column.other))
            return self.mixed(nest, angles, column, own, other, is_row=False)

        if both_sides:
            place = self._source(nest, row)
            value = self.mixed(nest, angles, place, in_row(place.own), in_row(place.other), is_row=True)
        else:
            value = in_row(row)
        return self.store(nest, value)

    def played(self, a: Any, symmetric: bool) -> Any:
        """Returns the columns after all rounds that started as the unit vectors: [.., n, n]."""
        rows = self.even if symmetric else static_int(a.sizes[-2].constant(), "a matrix's size")
        x, v = self.padded(a, rows), self.unit()
        for _ in range(rounds(self.even, TORCH_DTYPES[self.dtype])):
            angles = self.angles_of_symmetric(x) if symmetric else self.angles_of_columns(x, rows)
            x, v = self.rotated(x, rows, angles, symmetric), self.rotated(v, self.n, angles, False)
        return self.parts(v, lambda part: self.c.builder.slice(part, len(part.sizes) - 1, 0, self.n, 1))


class ComplexTournament(Tournament):
    """Rounds among the columns of complex matrices. For a Hermitian matrix, `mixed` is p^H A q, otherwise p^H q."""

    def parts(self, x: Complex, function: Callable[[ir.Value], ir.Value]) -> Complex:
        return x.map(function)

    def load(self, nest: Nest, x: Complex, at: list[ir.IndexExpr]) -> Z:
        return Z(*(nest.load(part, at) for part in x))

    def store(self, nest: Nest, element: Z) -> Complex:
        return Complex(*nest.store((element.re, self.dtype), (element.im, self.dtype)))

    def size(self, element: Z) -> Term:
        return element.re

    def unit(self) -> Complex:
        nest = self.nest(self.n, self.even)
        return Complex(super().unit(), nest.store((nest.constant(0.0, self.dtype), self.dtype))[0])

    def product(self, x: Complex, rows: int, mirror_a: bool, mirror_b: bool) -> Any:
        def part(real: bool) -> ir.Value:
            nest = self.nest(self.half, over=rows)
            a, b = (self.load(nest, x, self._in_row(nest, m)) for m in (mirror_a, mirror_b))
            made = a.conj() * b
            return nest.reduce("sum", [made.re if real else made.im], [self.dtype])[0]

        return part(True) if mirror_a == mirror_b else Complex(part(True), part(False))

    def angles(self, nest: Nest, first: Term, second: Term, mixed: Z) -> Any:
        size = z.abs_(mixed)
        cosine, sine = _rotation(first, second, size)
        known = t.where(size.eq(0.0), 1.0, size)
        phase = Z(mixed.re / known, mixed.im / known).times(sine)
        made = nest.store(*((part, self.dtype) for part in (cosine, phase.re, phase.im)))
        return made[0], Complex(made[1], made[2])

    def mixed(self, nest: Nest, angles: Angles, p: Place, own: Z, other: Z, is_row: bool) -> Z:
        at = [*self._batch(nest), p.pair]
        cosine, sine = nest.load(angles[0], at), self.load(nest, angles[1], at)
        # The second column of a pair takes `sine` times the first one, which takes -conj(sine) times the second one.
        sign = t.where(p.is_first, nest.constant(-1.0, self.dtype), 1.0)
        turned = Z(sine.re * sign, -sine.im if is_row else sine.im)
        return own.times(cosine) + turned * other


@lower("ocl.jacobi.default")
def jacobi(c: Context, a: ir.Value, symmetric: bool) -> ir.Value:
    n = static_int(a.sizes[-1].constant(), "a matrix's size")
    made: ir.Value = Tournament(c, a.sizes[:-2], n, a.dtype).played(a, symmetric)
    return made


@lower_complex("ocl.jacobi.default")
def complex_jacobi(c: Context, a: Complex, symmetric: bool) -> Complex:
    n = static_int(a.sizes[-1].constant(), "a matrix's size")
    made: Complex = ComplexTournament(c, a.sizes[:-2], n, a.dtype).played(a, symmetric)
    return made
