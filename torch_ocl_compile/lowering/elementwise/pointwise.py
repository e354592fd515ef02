# torch_ocl_compile/lowering/elementwise/pointwise.py: elementwise ops: arithmetic, comparisons, rounding, casts.
"""Lowerings of ops that are one scalar op of the IR. Formulas of several scalar ops are in activation.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import add_row, lower
from torch_ocl_compile.lowering.core.term import Operand, Term

aten = torch.ops.aten
prims = torch.ops.prims

# Ops of the same name; of two tensors, or of a tensor and a number.
_SAME = (
    "abs acos acosh asin asinh atan atan2 atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 "
    "floor fmax fmin frac gcd hypot lgamma log log10 log1p log2 logaddexp maximum minimum neg nextafter "
    "reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_WITH_NUMBERS = "bitwise_and bitwise_or bitwise_xor copysign div fmod mul remainder"
# Ops that are computed in the result's dtype, to which PyTorch promotes the operands (integers become float for sin, exp
# and the like).
ARITHMETIC: dict[str, str] = {
    "aten.__lshift__.Scalar": "shift_left",
    "aten.__lshift__.Tensor": "shift_left",
    "aten.__rshift__.Scalar": "shift_right",
    "aten.__rshift__.Tensor": "shift_right",
    "aten._neg_view.default": "neg",
    "aten.bitwise_left_shift.Tensor": "shift_left",
    "aten.bitwise_left_shift.Tensor_Scalar": "shift_left",
    "aten.bitwise_right_shift.Tensor": "shift_right",
    "aten.bitwise_right_shift.Tensor_Scalar": "shift_right",
    "aten.clamp_max.Tensor": "minimum",
    "aten.clamp_max.default": "minimum",
    "aten.clamp_min.Tensor": "maximum",
    "aten.clamp_min.default": "maximum",
    "aten.fix.default": "trunc",
    "aten.pow.Scalar": "pow",
    "aten.pow.Tensor_Tensor": "pow",
    "aten.remainder.Scalar_Tensor": "remainder",
    "aten.sgn.default": "sign",
}
ARITHMETIC |= {f"aten.{name}.default": name for name in _SAME.split()}
ARITHMETIC |= {f"aten.{name}.{which}": name for name in _WITH_NUMBERS.split() for which in ("Scalar", "Tensor")}

# Ops that are computed in the operands' common dtype. The result is bool.
COMPARISONS: dict[str, str] = {
    f"aten.{name}.{which}": name for name in ("eq", "ne", "lt", "le", "gt", "ge") for which in ("Tensor", "Scalar")
}
TESTS: dict[str, str] = {f"aten.{name}.default": name for name in ("isnan", "isinf", "signbit")}
LOGICAL: dict[str, str] = {f"aten.logical_{name}.default": f"logical_{name}" for name in ("and", "or", "xor", "not")}

# The logical op that each arithmetic op on bool means in PyTorch.
ON_BOOL: dict[str, str] = {
    "add": "logical_or",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
IDENTITY_ON_INTEGERS = {"ceil", "floor", "round", "trunc"}

F = TypeVar("F", bound=Callable[..., Any])


def apply(c: Context, name: str, *args: Any, dtype: ir.DType | None = None) -> ir.Value:
    """Applies the scalar op `name` in the result's dtype, with PyTorch's meaning for bool and integers."""
    dtype = dtype or c.dtype
    if dtype == ir.DType.kBool:
        name = ON_BOOL.get(name, name)
        args = tuple(a if isinstance(a, ir.Value) else bool(a) for a in args)
    elif name in IDENTITY_ON_INTEGERS and not ir.is_floating(dtype):
        return c.cast(args[0], dtype)

    def formula(*operands: Operand) -> Term:
        numbers = [o for o in operands if not isinstance(o, Term)]
        if not numbers:
            return t.call(name, *operands)
        nest = next(o.nest for o in operands if isinstance(o, Term))
        return t.call(name, *(o if isinstance(o, Term) else nest.constant(o, dtype) for o in operands))

    return c.pointwise(formula, *args, dtype=dtype)


def compare(c: Context, name: str, *args: Any) -> ir.Value:
    compute = c.common_dtype(args)
    return c.pointwise(lambda *o: t.call(name, *o), *args, dtype=ir.DType.kBool, compute=compute)


def _arithmetic_row(name: str) -> Callable[..., ir.Value]:
    return lambda c, *args: apply(c, name, *args)


def _comparison_row(name: str) -> Callable[..., ir.Value]:
    return lambda c, *args: compare(c, name, *args)


def _logical_row(name: str) -> Callable[..., ir.Value]:
    return lambda c, *args: c.pointwise(
        lambda *o: t.call(name, *o), *args, dtype=ir.DType.kBool, compute=ir.DType.kBool
    )


def _test_row(name: str) -> Callable[..., ir.Value]:
    def test(c: Context, x: ir.Value) -> ir.Value:
        if not ir.is_floating(x.dtype) and name == "signbit":
            return compare(c, "lt", x, 0)
        if not ir.is_floating(x.dtype):
            return c.constant(False, ir.DType.kBool, x.sizes)
        return c.pointwise(lambda v: t.call(name, v), x, dtype=ir.DType.kBool, compute=x.dtype)

    return test


for rows, make in (
    (ARITHMETIC, _arithmetic_row),
    (COMPARISONS, _comparison_row),
    (LOGICAL, _logical_row),
    (TESTS, _test_row),
):
    for target, name in rows.items():
        found = overload(target)
        if found is not None:
            add_row(found, make(name))


def formula(*targets: Any, raw: Sequence[int] = ()) -> Callable[[F], F]:
    """Registers a function of terms as a lowering. Operands are cast to the result's dtype, except at positions `raw`."""

    def register(function: F) -> F:
        lower(*targets)(lambda c, *args, **kwargs: c.pointwise(function, *args, raw=raw, **kwargs))
        return function

    return register


@lower(aten.add.Tensor, aten.add.Scalar)
def add(c: Context, x: Any, y: Any, alpha: Any = 1) -> ir.Value:
    """Returns x + alpha * y."""
    if isinstance(alpha, (int, float)) and alpha == 1:
        return apply(c, "add", x, y)
    # Bool addition is a logical or; a false alpha removes y.
    if c.dtype == ir.DType.kBool:
        return apply(c, "add", x, apply(c, "mul", y, bool(alpha)))
    return c.pointwise(lambda a, b, s: a + b * s, x, y, alpha)


@lower(aten.sub.Tensor, aten.sub.Scalar)
def sub(c: Context, x: Any, y: Any, alpha: Any = 1) -> ir.Value:
    """Returns x - alpha * y."""
    return c.pointwise(lambda a, b, s: a - b if _is_one(s) else a - b * s, x, y, alpha)


@lower(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(c: Context, x: Any, y: Any, alpha: Any = 1) -> ir.Value:
    """Returns y - alpha * x."""
    return c.pointwise(lambda a, b, s: b - a if _is_one(s) else b - a * s, x, y, alpha)


def _is_one(x: Operand) -> bool:
    return not isinstance(x, Term) and x == 1


@lower(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(c: Context, x: Any, y: Any, rounding_mode: str | None = None) -> ir.Value:
    name = {None: "div", "floor": "floordiv", "trunc": "truncdiv"}[rounding_mode]
    return apply(c, name, x, y)


@lower(aten.floor_divide.default, "aten.floor_divide.Scalar")
def floor_divide(c: Context, x: Any, y: Any) -> ir.Value:
    return apply(c, "floordiv", x, y)


@lower(aten.pow.Tensor_Scalar)
def pow_scalar(c: Context, x: ir.Value, exponent: Any) -> ir.Value:
    """Computes small powers as products, which are cheap, and exact where `pow` rounds."""
    forms: dict[float, Callable[[Term], Term]] = {
        0.5: t.sqrt,
        1: lambda v: v,
        2: lambda v: v * v,
        3: lambda v: v * v * v,
        -1: lambda v: t.call("reciprocal", v),
        -0.5: t.rsqrt,
    }
    # PyTorch gives a bool for a bool to the power of a bool.
    if c.dtype == ir.DType.kBool:
        return apply(c, "logical_or", x, not exponent)
    if isinstance(exponent, (int, float)) and exponent in forms:
        return c.pointwise(forms[exponent], x)
    return apply(c, "pow", x, exponent)


@lower(aten.where.self)
def where(c: Context, condition: ir.Value, x: Any, y: Any) -> ir.Value:
    def choose(p: Term, a: Operand, b: Operand) -> Term:
        return t.where(p.cast(ir.DType.kBool), a, b)

    return c.pointwise(choose, condition, x, y, raw=(0,))


@lower(aten.clamp.default, aten.clamp.Tensor)
def clamp(c: Context, x: ir.Value, low: Any = None, high: Any = None) -> ir.Value:
    """Returns min(max(x, low), high). NaN stays NaN."""

    def bounded(v: Term, *bounds: Operand) -> Term:
        left = list(bounds)
        if low is not None:
            v = t.maximum(v, _in_dtype(left.pop(0), v))
        return t.minimum(v, _in_dtype(left.pop(0), v)) if high is not None else v

    return c.pointwise(bounded, x, *(b for b in (low, high) if b is not None))


def _in_dtype(x: Operand, beside: Term) -> Operand:
    return x if isinstance(x, Term) else beside.nest.constant(x, beside.dtype)


@lower(aten.round.decimals)
def round_decimals(c: Context, x: ir.Value, decimals: int = 0) -> ir.Value:
    scale = 10.0 ** abs(decimals)

    def rounded(v: Term) -> Term:
        return t.call("round", v * scale) / scale if decimals >= 0 else t.call("round", v / scale) * scale

    return c.pointwise(rounded, x)


@lower("aten.square.default")
def square(c: Context, x: ir.Value) -> ir.Value:
    return c.pointwise(lambda v: v * v, x)


@lower(prims.convert_element_type.default)
def convert_element_type(c: Context, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    return c.cast(x, ir_dtype(dtype))


@lower(aten._to_copy.default)
def to_copy(c: Context, x: ir.Value, **_: Any) -> ir.Value:
    """Casts to the result's dtype. Layout and memory format do not change values."""
    return c.cast(x, c.dtype)


@lower(prims.device_put.default)
def device_put(c: Context, x: ir.Value, device: torch.device, non_blocking: bool = False) -> ir.Value:
    """Returns x: within the device's part of a graph nothing moves. Transfers from and to the host belong to other
    parts."""
    return x


@lower("prims.fma.default")
def fma(c: Context, x: Any, y: Any, z: Any) -> ir.Value:
    return c.pointwise(lambda a, b, d: t.call("fma", a, b, d), x, y, z)
