# torch_ocl_compile/lowering/complex_numbers/fourier.py: Fourier transforms of any length as Fft nodes.
"""A node transforms a line whose length has no large prime factor, in one launch, so the line must be short. Others are
composed:

    a long line [n1 * n2]     transforms along n1, with factors exp(-2 pi i k j / n), then along n2 (the four-step method)
    another length            a convolution with a chirp, exp(i pi k^2 / n), by transforms of a length of at least 2 n (Bluestein)
    real numbers              a line of n / 2 pairs, then one formula for each pair of results

A kernel of work-groups does the second and the third for short lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.complex_value import split
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.term import Nest, Term

# A line of this many numbers fits into 32 KiB of local memory, which every device has.
LONGEST = {ir.DType.kF32: 4096, ir.DType.kF64: 2048}
# A strided line: several neighbouring lines share the local memory, so that memory is read in pieces of 64 bytes.
LONGEST_STRIDED = {ir.DType.kF32: 1024, ir.DType.kF64: 512}
# As many lines each compute the roots of unity that they use; more lines share a table. On a GPU, the launch that makes a table takes
# longer than the arithmetic.
FEW_LINES = 4
MOST_NUMBERS = 1 << 27  # Kernels count the turns of a root in 32 bits, in eighths of a number.


Formula = Callable[[Nest], tuple[Term, Term]]


class Parts(NamedTuple):
    """Complex numbers. Without `im`, they are real."""

    re: ir.Value
    im: ir.Value | None

    def map(self, function: Callable[[ir.Value], ir.Value]) -> Parts:
        return Parts(function(self.re), None if self.im is None else function(self.im))


def is_smooth(n: int) -> bool:
    """Returns whether a kernel transforms lines of this length, if they are short enough."""
    for prime in range(2, ir.LARGEST_FFT_PRIME + 1):
        while n % prime == 0:
            n //= prime
    return n == 1


def balanced(n: int) -> int:
    """Returns the divisor of n that is closest to its root from below."""
    return max(d for d in range(1, math.isqrt(n) + 1) if n % d == 0)


class Fourier:
    """Transforms in one direction. Values [o, n, q] are transformed along n; results are pairs [o, n, q, 2]."""

    def __init__(self, c: Context, dtype: ir.DType, inverse: bool) -> None:
        self.context, self.builder, self.dtype, self.inverse = c, c.builder, dtype, inverse

    def lines(self, x: Parts, n: int, scale: float = 1.0) -> ir.Value:
        if n > MOST_NUMBERS:
            raise UnsupportedError(f"a Fourier transform of {n} numbers; the largest has {MOST_NUMBERS}")
        outer, _, inner = x.re.sizes
        longest = (LONGEST if inner.is_const(1) else LONGEST_STRIDED)[self.dtype]
        smooth = is_smooth(n)
        if not smooth and not (self.context.group_kernels and ir.chirp_length(n) <= longest):
            return self.bluestein(x, n, scale)
        if not smooth or n <= longest:
            whole = self.node(x.map(lambda v: self.builder.unsqueeze(v, 2)), scale)
            return self.builder.reshape(whole, [outer, ir.IndexExpr(n), inner, ir.IndexExpr(2)])
        return self.long_lines(x, n, scale)

    def long_lines(self, x: Parts, n: int, scale: float) -> ir.Value:
        """The four-step method. Number j1 * n2 + j2 becomes result k1 + n1 * k2."""
        b, (outer, _, inner) = self.builder, x.re.sizes
        n1, two = balanced(n), ir.IndexExpr(2)
        n2 = n // n1
        grid = [outer, ir.IndexExpr(n1), ir.IndexExpr(n2), inner]
        first = self.node(x.map(lambda v: b.reshape(v, grid)), 1.0, root=n)
        if n2 <= LONGEST[self.dtype]:
            whole = self.node(halves(b, first).map(lambda v: b.permute(v, [0, 2, 1, 3])), scale)
        else:
            rows = halves(b, b.reshape(first, [ir.product([outer, grid[1]]), grid[2], inner, two]))
            made = b.reshape(self.lines(rows, n2, scale), [*grid, two])
            whole = b.copy(b.permute(made, [0, 2, 1, 3, 4]))
        return b.reshape(whole, [outer, ir.IndexExpr(n), inner, two])

    def bluestein(self, x: Parts, n: int, scale: float) -> ir.Value:
        """j k = (j^2 + k^2 - (k - j)^2) / 2, so that the transform is a convolution of x[j] w^(j^2) with w^-(k - j)^2, where
        w = exp(-pi i / n)."""
        outer, _, inner = x.re.sizes
        m = ir.chirp_length(n)
        forward, back = Fourier(self.context, self.dtype, False), Fourier(self.context, self.dtype, True)

        def response(nest: Nest) -> tuple[Term, Term]:
            j = nest.i[1]
            distance = ir.min(j, m - j)
            c, s = load_pair(nest, table, [ir.min(distance, n - 1)])
            used = nest.index(distance) < n
            return t.where(used, c, 0.0), t.where(used, -s, 0.0)

        sizes, one = [outer, ir.IndexExpr(m), inner], ir.IndexExpr(1)
        table = self.pairs([ir.IndexExpr(n)], lambda nest: self.chirp(nest, nest.i[0], n))
        spectrum = forward.lines(halves(self.builder, self.pairs([one, ir.IndexExpr(m), one], response)), m)
        given = forward.lines(halves(self.builder, self.padded(x, table, n, m)), m)

        def multiplied(nest: Nest) -> tuple[Term, Term]:
            re, im = load_pair(nest, given, nest.i)
            return product(re, im, *load_pair(nest, spectrum, [0, nest.i[1], 0]))

        convolved = back.lines(halves(self.builder, self.pairs(sizes, multiplied)), m, scale / m)

        def result(nest: Nest) -> tuple[Term, Term]:
            return product(*load_pair(nest, convolved, nest.i), *load_pair(nest, table, [nest.i[1]]))

        return self.pairs([outer, ir.IndexExpr(n), inner], result)

    def padded(self, x: Parts, table: ir.Value, n: int, m: int) -> ir.Value:
        """Returns x [o, n, q] times the table [n], with zeros up to m, as pairs."""
        outer, _, inner = x.re.sizes
        pairs = self.builder.buffer(self.dtype, [outer, ir.IndexExpr(m), inner, ir.IndexExpr(2)])
        for first, end in ((0, n), (n, m)):
            nest = Nest(self.builder, [outer, ir.IndexExpr(end - first), inner])
            o, j, q = nest.i
            values = (nest.constant(0.0, self.dtype),) * 2
            if first == 0:
                re, im = nest.load(x.re, nest.i), None if x.im is None else nest.load(x.im, nest.i)
                values = product(re, im, *load_pair(nest, table, [j]))
            for k, value in enumerate(values):
                nest.add_store(pairs, [o, j + first, q, k], value)
            nest.end()
        return pairs

    def chirp(self, nest: Nest, k: ir.IndexExpr, n: int) -> tuple[Term, Term]:
        """Returns exp(-pi i k^2 / n), or its conjugate for the inverse transform."""
        j = nest.index(k)
        turns = t.call("remainder", j * j, 2 * n).as_index()
        c, s = unit_root(nest, turns, 2 * n, self.dtype)
        return c, s if self.inverse else -s

    def node(self, x: Parts, scale: float, root: int = 0) -> ir.Value:
        return self.builder.fft(x.re, x.im, ir.FftAttrs(self.inverse, scale, root))

    def pairs(self, sizes: list[ir.IndexExpr], formula: Formula) -> ir.Value:
        return compute_pairs(self.builder, sizes, self.dtype, formula)


def halves(builder: ir.Builder, pairs: ir.Value) -> Parts:
    """Returns the parts of pairs [..., 2]."""
    return Parts(*split(builder, pairs))


def load_pair(nest: Nest, pairs: ir.Value, at: Sequence[ir.IndexExpr | int]) -> tuple[Term, Term]:
    return nest.load(pairs, [*at, 0]), nest.load(pairs, [*at, 1])


def product(re: Term, im: Term | None, c: Term, s: Term) -> tuple[Term, Term]:
    """Returns (re + i im) (c + i s)."""
    if im is None:
        return re * c, re * s
    return t.call("fma", -im, s, re * c), t.call("fma", re, s, im * c)


def unit_root(nest: Nest, turns: ir.IndexExpr, n: int, dtype: ir.DType) -> tuple[Term, Term]:
    """Returns cos and sin of 2 pi turns / n for 0 <= turns < n <= 2^28, with an error of about one unit in the last place.

    The angle is the nearest multiple of a quarter of a turn, and a rest, which is exact.
    """
    at = ir.floordiv(turns * 8 + n, 2 * n)
    quarter, rest = nest.index(at), nest.index(turns * 4 - at * n).cast(dtype)
    f = rest / float(n)
    lost = t.call("fma", -f, nest.constant(float(n), dtype), rest) * (math.pi / 2 / n)
    c, s = t.call("cos", f * (math.pi / 2)), t.call("sin", f * (math.pi / 2))
    c, s = c - lost * s, s + lost * c
    turned, half = t.call("bitwise_and", quarter, 1).ne(0), t.call("bitwise_and", quarter, 2).ne(0)
    c, s = t.where(turned, -s, c), t.where(turned, c, s)
    return t.where(half, -c, c), t.where(half, -s, s)


def compute_pairs(builder: ir.Builder, sizes: list[ir.IndexExpr], dtype: ir.DType, formula: Formula) -> ir.Value:
    """Computes complex numbers by a formula and stores them as pairs [*sizes, 2]."""
    pairs = builder.buffer(dtype, [*sizes, ir.IndexExpr(2)])
    nest = Nest(builder, sizes)
    for k, value in enumerate(formula(nest)):
        nest.add_store(pairs, [*nest.i, k], value)
    nest.end()
    return pairs


class Roots:
    """exp(2 pi i k / n) for k < count. A table is computed first if many lines use it."""

    def __init__(self, c: Context, n: int, count: int, lines: ir.Value) -> None:
        self.n, self.dtype, self.table = n, lines.dtype, None
        users = ir.product([size for d, size in enumerate(lines.sizes) if d != 1])
        few = c.group_kernels or (users.is_const() and users.constant() < FEW_LINES)
        if count and not few:
            self.table = compute_pairs(
                c.builder, [ir.IndexExpr(count)], self.dtype, lambda nest: unit_root(nest, nest.i[0], n, self.dtype)
            )

    def load(self, nest: Nest, k: ir.IndexExpr) -> tuple[Term, Term]:
        return unit_root(nest, k, self.n, self.dtype) if self.table is None else load_pair(nest, self.table, [k])


def is_whole(c: Context, x: ir.Value, n: int) -> bool:
    """Returns whether one kernel transforms real lines [o, n, q], or transforms to them."""
    short = n % 2 == 0 and n // 2 <= LONGEST[x.dtype] and is_smooth(n // 2)
    return c.group_kernels and short and x.sizes[2].is_const(1)


def of_real(c: Context, x: ir.Value, n: int, scale: float, inverse: bool) -> ir.Value:
    """Transforms real x [o, n, q]. Returns the first n / 2 + 1 results as pairs [o, n / 2 + 1, q, 2]; the others are conjugates of
    these.

    For an even n, z[k] = x[2 k] + i x[2 k + 1] has the transform Z. Twice the transforms of even and of odd numbers are
    E = Z[k] + conj Z[-k] and O = -i (Z[k] - conj Z[-k]), and the result is (E + w^k O) / 2, w = exp(-2 pi i / n).
    """
    builder, (outer, _, inner) = c.builder, x.sizes
    half, count = n // 2, ir.IndexExpr(n // 2 + 1)
    if n % 2:
        whole = Fourier(c, x.dtype, inverse).lines(Parts(x, None), n, scale)
        return builder.slice(whole, 1, ir.IndexExpr(0), count, ir.IndexExpr(1))
    neighbours = builder.reshape(x, [outer, ir.IndexExpr(half), ir.IndexExpr(2), inner])
    even, odd = (builder.select(neighbours, 2, ir.IndexExpr(k)) for k in (0, 1))
    if is_whole(c, x, n):
        attrs = ir.FftAttrs(inverse, scale, form=ir.FftForm.kFromReal)
        made = builder.fft(builder.unsqueeze(even, 2), builder.unsqueeze(odd, 2), attrs)
        return builder.reshape(made, [outer, count, inner, ir.IndexExpr(2)])
    z = Fourier(c, x.dtype, False).lines(Parts(even, odd), half, scale / 2)
    roots = Roots(c, n, half, x)

    def result(nest: Nest, k: ir.IndexExpr, at: ir.IndexExpr, opposite: ir.IndexExpr) -> tuple[Term, Term]:
        """Result k of numbers k and n / 2 - k of z, which are at these places."""
        o, _, q = nest.i
        (a, b), (u, v) = load_pair(nest, z, [o, at, q]), load_pair(nest, z, [o, opposite, q])
        cosine, sine = roots.load(nest, k)
        re, im = product(b + v, u - a, cosine, -sine)
        re, im = re + (a + u), im + (b - v)
        return re, -im if inverse else im

    def of_any(nest: Nest) -> tuple[Term, Term]:
        k, rest = nest.i[1], ir.mod(nest.i[1], half)
        re, im = result(nest, k, rest, ir.mod(half - k, half))
        return re, t.where(nest.index(rest).eq(0), 0.0, im)

    if c.group_kernels:  # A launch for the two ends would take longer than the divisions.
        return compute_pairs(builder, [outer, count, inner], x.dtype, of_any)
    pairs = builder.buffer(x.dtype, [outer, count, inner, ir.IndexExpr(2)])

    def inside(nest: Nest) -> None:
        """Results 1 to n / 2 - 1."""
        o, i, q = nest.i
        for part, value in enumerate(result(nest, i + 1, i + 1, half - (i + 1))):
            nest.add_store(pairs, [o, i + 1, q, part], value)

    def ends(nest: Nest) -> None:
        """Results 0 and n / 2."""
        o, q = nest.i
        a, b = load_pair(nest, z, [o, 0, q])
        for k, value in ((0, a + b), (half, a - b)):
            nest.add_store(pairs, [o, k, q, 0], value * 2.0)
            nest.add_store(pairs, [o, k, q, 1], nest.constant(0.0, x.dtype))

    for sizes, body in (([outer, ir.IndexExpr(half - 1), inner], inside), ([outer, inner], ends)):
        nest = Nest(builder, sizes)
        body(nest)
        nest.end()
    return pairs


def to_real(c: Context, x: Parts, n: int, scale: float, inverse: bool) -> ir.Value:
    """Returns the real [o, n, q] whose transform in the other direction begins with x [o, n / 2 + 1, q]. The imaginary parts of
    numbers 0 and n / 2 are not used.

    For an even n, this undoes of_real: Z[k] = X[k] + conj X[n / 2 - k] + i w^-k (X[k] - conj X[n / 2 - k]).
    """
    builder, (outer, _, inner) = c.builder, x.re.sizes
    dtype, half = x.re.dtype, n // 2
    if x.im is not None and is_whole(c, x.re, n):
        attrs = ir.FftAttrs(inverse, scale, form=ir.FftForm.kToReal)
        made = builder.fft(builder.unsqueeze(x.re, 2), builder.unsqueeze(x.im, 2), attrs)
        return builder.reshape(made, [outer, ir.IndexExpr(n), inner])
    transform = Fourier(c, dtype, True)

    def loaded(nest: Nest, k: ir.IndexExpr) -> tuple[Term, Term]:
        o, _, q = nest.i
        j = nest.index(k)
        re, im = (nest.constant(0.0, dtype) if part is None else nest.load(part, [o, k, q]) for part in x)
        im = t.where(j.eq(0) | (j * 2).eq(n), 0.0, im)
        return re, im if inverse else -im

    def mirrored(nest: Nest) -> tuple[Term, Term]:
        k = nest.i[1]
        re, im = loaded(nest, ir.min(k, n - k))
        return re, t.where(nest.index(k) <= half, im, -im)

    roots = Roots(c, n, 0 if n % 2 else half, x.re)

    def folded(nest: Nest) -> tuple[Term, Term]:
        k = nest.i[1]
        (a, b), (u, v) = loaded(nest, k), loaded(nest, half - k)
        re, im = product(a - u, b + v, *roots.load(nest, k))
        return (a + u) - im, (b - v) + re

    length = n if n % 2 else half
    pairs = compute_pairs(builder, [outer, ir.IndexExpr(length), inner], dtype, mirrored if n % 2 else folded)
    made = transform.lines(halves(builder, pairs), length, scale)
    if n % 2:
        return halves(builder, made).re
    return builder.reshape(builder.permute(made, [0, 1, 3, 2]), [outer, ir.IndexExpr(n), inner])
