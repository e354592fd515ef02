# torch_ocl_compile/lowering/complex_numbers/fft.py: aten's Fourier transforms over some dimensions, by transforms along each.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.complex_numbers.fourier import LONGEST, Fourier, Parts, compute_pairs, of_real, to_real
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.complex_value import Complex, real_dtype, split
from torch_ocl_compile.lowering.core.context import Context, ir_dtype, static_int
from torch_ocl_compile.lowering.core.registry import lower_complex
from torch_ocl_compile.lowering.core.term import Nest, Term


def _lines(c: Context, x: ir.Value, dim: int) -> ir.Value:
    """Returns a view [o, n, q] of a value with n along `dim`."""
    return c.builder.reshape(x, [ir.product(x.sizes[:dim]), x.sizes[dim], ir.product(x.sizes[dim + 1 :])])


def _parts(c: Context, x: Complex, dim: int) -> Parts:
    return Parts(x.re, x.im).map(lambda v: _lines(c, v, dim))


def _complex(c: Context, pairs: ir.Value, like: Complex | ir.Value, dim: int) -> Complex:
    """Returns pairs [o, n, q, 2] as complex numbers with the dimensions that `like` has, and n along `dim`."""
    sizes = [*like.sizes[:dim], pairs.sizes[1], *like.sizes[dim + 1 :]]
    return split(c.builder, c.builder.reshape(pairs, [*sizes, ir.IndexExpr(2)]))


def _length(size: ir.IndexExpr) -> int:
    """UnsupportedError if the size is symbolic: the steps of a transform depend on it."""
    if not size.is_const():
        raise UnsupportedError(f"a Fourier transform along a dimension of size {size}, which is not a known number")
    return size.constant()


def _scale(normalization: int, lengths: Sequence[int]) -> float:
    """normalization: 0 none, 1 by the root of the number of elements, 2 by the number of elements."""
    count = math.prod(lengths)
    return (1.0, 1 / math.sqrt(count) if count else 1.0, 1 / count if count else 1.0)[normalization]


def _is_empty(x: Any) -> bool:
    return any(size.is_const(0) for size in x.sizes)


def _check(c: Context) -> None:
    if ir_dtype(real_dtype(c.val.dtype)) not in LONGEST:
        raise UnsupportedError(f"a Fourier transform to {c.val.dtype}")


def _along(c: Context, x: Complex, dims: Sequence[int], inverse: bool, scale: float) -> Complex:
    """Transforms along some dimensions, the last of them first."""
    fourier = Fourier(c, x.dtype, inverse)
    for position, dim in enumerate(reversed(dims)):
        factor = scale if position == len(dims) - 1 else 1.0
        made = fourier.lines(_parts(c, x, dim), _length(x.sizes[dim]), factor)
        x = _complex(c, made, x, dim)
    return x


@lower_complex("aten._fft_c2c.default")
def fft_c2c(c: Context, x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    _check(c)
    if _is_empty(x) or not dim:
        return x.map(c.builder.copy)
    dims = sorted(d % len(x.sizes) for d in dim)
    return _along(c, x, dims, not forward, _scale(normalization, [_length(x.sizes[d]) for d in dims]))


@lower_complex("aten._fft_r2c.default")
def fft_r2c(c: Context, x: ir.Value, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """The last dimension of `dim` is that of the real transform. Of its results, one half is computed."""
    _check(c)
    if _is_empty(x):
        zero = c.constant(0, x.dtype, c.sizes)
        return Complex(zero, zero)
    *others, last = (d % len(x.sizes) for d in dim)
    n = _length(x.sizes[last])
    scale = _scale(normalization, [n, *(_length(x.sizes[d]) for d in others)])
    pairs = of_real(c, _lines(c, x, last), n, 1.0 if others else scale, False)
    half = _complex(c, pairs, x, last)
    if others:
        half = _along(c, half, sorted(others), False, scale)
    return half if onesided else _mirrored(c, half, sorted(others), last, n)


def _mirrored(c: Context, half: Complex, others: Sequence[int], last: int, n: int) -> Complex:
    """Adds the results above n / 2 along `last`, which are conjugates of those at the opposite place in all dimensions."""
    sizes = list(half.sizes)
    sizes[last] = ir.IndexExpr(n)

    def formula(nest: Nest) -> tuple[Term, Term]:
        given = nest.index(nest.i[last]) <= n // 2
        at = list(nest.i)
        at[last] = ir.min(nest.i[last], n - nest.i[last])
        for d in others:
            opposite = ir.mod(half.sizes[d] - nest.i[d], half.sizes[d])
            at[d] = t.where(given, nest.index(nest.i[d]), nest.index(opposite)).as_index()
        re, im = nest.load(half.re, at), nest.load(half.im, at)
        return re, t.where(given, im, -im)

    return split(c.builder, compute_pairs(c.builder, sizes, half.dtype, formula))


@lower_complex("aten._fft_c2r.default")
def fft_c2r(c: Context, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: Any) -> ir.Value:
    """The last dimension of `dim` is that of the real transform."""
    _check(c)
    if _is_empty(x):
        return c.constant(0, c.dtype, c.sizes)
    *others, last = (d % len(x.sizes) for d in dim)
    n = static_int(last_dim_size, "the length of a Fourier transform")
    scale = _scale(normalization, [n, *(_length(x.sizes[d]) for d in others)])
    x = _along(c, x, sorted(others), True, 1.0)
    made = to_real(c, _parts(c, x, last), n, scale, True)
    return c.builder.reshape(made, [*x.sizes[:last], ir.IndexExpr(n), *x.sizes[last + 1 :]])
