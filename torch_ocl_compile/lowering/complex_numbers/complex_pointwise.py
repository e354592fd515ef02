# torch_ocl_compile/lowering/complex_numbers/complex_pointwise.py: elementwise ops of complex numbers, one row each.
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.complex_numbers import complex_term as z
from torch_ocl_compile.lowering.complex_numbers.complex_term import Z
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.complex_value import Complex, real_dtype
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower_complex

aten = torch.ops.aten

# The operands of these formulas are `Z`. A result that is a term is a real (or bool) tensor.
UNARY: dict[str, Callable[[Z], Any]] = {
    "_conj": Z.conj,
    "_conj_physical": Z.conj,
    "abs": z.abs_,
    "acos": z.acos,
    "acosh": z.acosh,
    "angle": z.angle,
    "asin": z.asin,
    "asinh": z.asinh,
    "atan": z.atan,
    "atanh": z.atanh,
    "conj": Z.conj,
    "conj_physical": Z.conj,
    "cos": z.cos,
    "cosh": z.cosh,
    "exp": z.exp,
    "exp2": lambda x: z.exp(x.times(math.log(2))),
    "expm1": z.expm1,
    "imag": lambda x: x.im,
    "isinf": z.is_infinite,
    "isnan": lambda x: z.is_nan(x.re) | z.is_nan(x.im),
    "log": z.log,
    "log10": z.scaled_log(10),
    "log1p": z.log1p,
    "log2": z.scaled_log(2),
    "logical_not": lambda x: x.re.eq(0.0) & x.im.eq(0.0),
    "_neg_view": Z.__neg__,
    "neg": Z.__neg__,
    "real": lambda x: x.re,
    "reciprocal": z.reciprocal,
    "rsqrt": lambda x: z.reciprocal(z.sqrt(x)),
    "sgn": z.sgn,
    "sigmoid": z.sigmoid,
    "silu": lambda x: x * z.sigmoid(x),
    "sin": z.sin,
    "sinc": lambda x: z.where(x.eq(x.literal(0)), x.literal(1), z.sin(x.times(math.pi)) / x.times(math.pi)),
    "sinh": z.sinh,
    "sqrt": z.sqrt,
    "square": lambda x: x * x,
    "tan": z.tan,
    "tanh": z.tanh,
}
BINARY: dict[str, Callable[[Z, Z], Any]] = {
    "div.Scalar": Z.__truediv__,
    "div.Tensor": Z.__truediv__,
    "eq.Scalar": Z.eq,
    "eq.Tensor": Z.eq,
    "mul.Scalar": Z.__mul__,
    "mul.Tensor": Z.__mul__,
    "ne.Scalar": lambda x, y: ~x.eq(y),
    "ne.Tensor": lambda x, y: ~x.eq(y),
    "pow.Scalar": z.power,
    "pow.Tensor_Tensor": z.power,
    "xlogy.Tensor": lambda x, y: z.where(x.eq(x.literal(0)), x.literal(0), x * z.log(y)),
    "ldexp.Tensor": lambda x, y: x * z.polar(t.call("exp2", y.re), y.im * math.log(2)),
    "logaddexp.default": z.logaddexp,
    "logical_and.default": lambda x, y: is_true(x) & is_true(y),
    "logical_or.default": lambda x, y: is_true(x) | is_true(y),
    "logical_xor.default": lambda x, y: is_true(x).ne(is_true(y)),
    # The gradients of these two use the conjugate of the derivative, as all gradients of complex functions in PyTorch do.
    "sigmoid_backward.default": lambda grad, y: grad * (y * (y.literal(1) - y)).conj(),
    "tanh_backward.default": lambda grad, y: grad * (y.literal(1) - y * y).conj(),
}
# Powers by a number that are exact, or cheaper, in another form. PyTorch has the same ones.
POWERS: dict[complex, Callable[[Z], Z]] = {
    0: lambda x: x.literal(1),
    0.5: z.sqrt,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -0.5: lambda x: z.reciprocal(z.sqrt(x)),
    -1: z.reciprocal,
    -2: lambda x: z.reciprocal(x * x),
}


def is_true(x: Z) -> t.Term:
    return x.re.ne(0.0) | x.im.ne(0.0)


def pointwise(
    c: Context, formula: Callable[..., Any], *args: Any, dtype: torch.dtype | None = None, raw: Sequence[int] = ()
) -> Any:
    """Builds one loop nest that computes `formula` of the broadcast arguments. They become `Z`, except values at the positions
    `raw`, which become terms. The result is complex if the formula returns a `Z`. `dtype`: of the result; by default that of
    the node's."""
    dtype = dtype or c.val.dtype
    stored = ir_dtype(real_dtype(dtype))
    # A test of numbers is computed in the type to which they are promoted.
    parts = stored if stored != ir.DType.kBool else _common_parts(c, args)
    compute = ir.compute_type(parts)
    sizes = c.broadcast(args)
    nest = t.Nest(c.builder, sizes)

    def load(value: ir.Value) -> t.Term:
        return nest.load_broadcast(value, sizes, nest.i)

    def number(x: Any) -> t.Term:
        if isinstance(x, torch.SymFloat):
            return nest.load(c.from_sizes(x.node.expr), []).cast(compute)
        if isinstance(x, torch.SymInt):
            return nest.index(c.size(x.node.expr)).cast(compute)
        return nest.constant(x, compute)

    def operand(x: Any, keep: bool) -> Any:
        if isinstance(x, Complex):
            return Z(load(x.re).cast(compute), load(x.im).cast(compute))
        if isinstance(x, ir.Value):
            return load(x) if keep else Z(load(x).cast(compute), number(0.0))
        if isinstance(x, complex):
            return Z(number(x.real), number(x.imag))
        return Z(number(x), number(0.0))

    made = formula(*(operand(x, position in raw) for position, x in enumerate(args)))
    results = (made.re, made.im) if isinstance(made, Z) else (made,)
    values = nest.store(*((term, stored) for term in results))
    return Complex(*values) if isinstance(made, Z) else values[0]


def _common_parts(c: Context, args: tuple[Any, ...]) -> ir.DType:
    found = [x.dtype for x in args if isinstance(x, Complex)]
    return ir.DType.kF64 if ir.DType.kF64 in found else found[0] if found else ir.DType.kF32


def _row(formula: Callable[..., Any]) -> Callable[..., Any]:
    return lambda c, *args: pointwise(c, formula, *args)


for name, unary in UNARY.items():
    lower_complex(f"aten.{name}.default")(_row(unary))
for name, binary in BINARY.items():
    lower_complex(f"aten.{name}")(_row(binary))


@lower_complex("aten.add.Tensor", "aten.add.Scalar")
def add(c: Context, x: Any, y: Any, alpha: Any = 1) -> Any:
    return pointwise(c, lambda a, b, s=None: a + b if s is None else a + b * s, x, y, *scale(alpha))


@lower_complex("aten.sub.Tensor", "aten.sub.Scalar")
def sub(c: Context, x: Any, y: Any, alpha: Any = 1) -> Any:
    return pointwise(c, lambda a, b, s=None: a - b if s is None else a - b * s, x, y, *scale(alpha))


@lower_complex("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(c: Context, x: Any, y: Any, alpha: Any = 1) -> Any:
    return sub(c, y, x, alpha)


def scale(alpha: Any) -> list[Any]:
    """Returns the factor, if it is one: inf * 1 is NaN where a factor is multiplied as a complex number."""
    return [] if isinstance(alpha, (int, float, complex)) and alpha == 1 else [alpha]


@lower_complex("aten.pow.Tensor_Scalar")
def pow_scalar(c: Context, x: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, float, complex)) and exponent in POWERS:
        return pointwise(c, POWERS[exponent], x)
    return pointwise(c, z.power, x, exponent)


@lower_complex("aten.where.self")
def where(c: Context, condition: ir.Value, x: Any, y: Any) -> Any:
    return pointwise(c, z.where, c.cast(condition, ir.DType.kBool), x, y, raw=(0,))


@lower_complex("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(c: Context, x: Any, y: Any, weight: Any) -> Any:
    """x + weight (y - x), and y - (y - x)(1 - weight) for a large weight, which then is exact at y."""

    def formula(a: Z, b: Z, w: Z) -> Z:
        gap, one = b - a, w.literal(1)
        return z.where(z.abs_(w) < 0.5, a + w * gap, b - gap * (one - w))

    return pointwise(c, formula, x, y, weight)


@lower_complex("aten.addcmul.default")
def addcmul(c: Context, x: Any, y: Any, other: Any, *, value: Any = 1) -> Any:
    return pointwise(c, lambda a, b, d, s=None: a + (b * d if s is None else s * b * d), x, y, other, *scale(value))


@lower_complex("aten.addcdiv.default")
def addcdiv(c: Context, x: Any, y: Any, other: Any, *, value: Any = 1) -> Any:
    return pointwise(c, lambda a, b, d, s=None: a + (b if s is None else s * b) / d, x, y, other, *scale(value))


@lower_complex("aten.complex.default")
def complex_(c: Context, re: Any, im: Any) -> Complex:
    sizes = c.sizes
    return Complex(*(c.builder.expand(c.cast(x, ir_dtype(real_dtype(c.val.dtype))), sizes) for x in (re, im)))


@lower_complex("aten.polar.default")
def polar(c: Context, size: Any, angle: Any) -> Any:
    return pointwise(c, lambda r, a: z.polar(r.re, a.re), size, angle)


@lower_complex("prims.convert_element_type.default", "aten._to_copy.default")
def to_copy(c: Context, x: Any, *_: Any, **__: Any) -> Any:
    return c.converted(x, c.val.dtype)
