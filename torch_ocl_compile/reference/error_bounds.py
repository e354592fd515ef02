# torch_ocl_compile/reference/error_bounds.py: the scalar ops of the IR in fp64, each with a bound of the error that a kernel
# may have.
"""A kernel computes in fp32 (or fp64), so its result differs from the result in fp64. How much it may differ follows
from the ops: each op rounds its result, and passes on the errors of its operands. `apply` computes an op and its bound.
The bound is absolute. It is None where the result must be exact, and infinite where nothing is known, as for memory
that nobody wrote.

To pass on an operand's error, the op is evaluated again at the ends of the operand's interval. A comparison of nearly
equal numbers is therefore not decided, and where() of such a condition may take either branch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_ocl_compile._C.ir import OpErrorKind, TypeRule
from torch_ocl_compile.dtypes import NARROW
from torch_ocl_compile.reference.scalar_ops import OPS, converted_operands, operation

Tensor = torch.Tensor
Error = Tensor | None

# The largest relative error of one rounding, by the type in which a kernel computes. In fp64 the reference rounds too.
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-52}
SMALLEST = {torch.float32: 2.0**-126, torch.float64: 2.0**-1022}  # Below it, a device may round to 0.
# What a short function (op_short_NAME of kernels/base/maths.cl) may add: a part of the result, and a part of 1 for functions with
# zeros. Its value is rounded to 16 bits before it is used.
SHORT_RELATIVE, SHORT_ABSOLUTE = 2.0**-10, 2.0**-16
LARGEST = {torch.float32: torch.finfo(torch.float32).max, torch.float64: torch.finfo(torch.float64).max}


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which values of `dtype` are kept here."""
    return torch.float64 if dtype.is_floating_point else dtype


def to_wide(values: Tensor) -> Tensor:
    return values.to(wide_dtype(values.dtype))


def evaluated(name: str, dtype: torch.dtype, values: Sequence[Tensor]) -> Tensor:
    """Computes an op without its bound."""
    if OPS[name].error.kind == OpErrorKind.k_in_type and dtype in (torch.float32, torch.int32):
        values = [v.float() if v.is_floating_point() else v for v in values]
        return operation(name)(*converted_operands(name, values)).to(wide_dtype(dtype))
    operands = [v.double() if v.is_floating_point() else v for v in converted_operands(name, values)]
    return operation(name)(*operands).to(wide_dtype(dtype))


def apply(name: str, dtype: torch.dtype, values: Sequence[Tensor], errors: Sequence[Error]) -> tuple[Tensor, Error]:
    """Returns the result of an op of ops.def with the result type `dtype`, and its bound."""
    result = evaluated(name, dtype, values)
    if name == "where":
        return result, _where(values, errors)
    rule = OPS[name].rule
    if rule == TypeRule.k_bool:
        return result, _undecided(values, errors)
    passed = _logic(errors) if rule == TypeRule.k_logical else _passed(name, dtype, values, errors, result)
    if not dtype.is_floating_point:
        return result, passed
    return rounded(result, passed, _rounding(name, dtype, values, result, passed), dtype)


def rounded(result: Tensor, passed: Error, rounding: Error, dtype: torch.dtype) -> tuple[Tensor, Error]:
    """Adds the error of rounding, and turns numbers that `dtype` cannot hold into infinity."""
    error = added(passed, rounding)
    if dtype is torch.float32:
        beyond = result.abs() > LARGEST[dtype]
        if beyond.any():
            near = result.abs() - (0 if error is None else error) <= LARGEST[dtype]
            error = torch.where(beyond, unknown_where(near), 0.0 if error is None else error)
            result = torch.where(beyond, torch.copysign(torch.tensor(math.inf, dtype=result.dtype), result), result)
    return result, normalized_bound(error)


def unknown_where(condition: Tensor, otherwise: Error = None) -> Tensor:
    """Returns a bound that is infinite where the condition holds, and `otherwise` elsewhere. It is fp64, also if both
    are Python numbers.
    """
    return torch.where(condition, math.inf, torch.zeros((), dtype=torch.float64) if otherwise is None else otherwise)


def normalized_bound(error: Error) -> Error:
    """Returns a bound in its normal form: None if it is zero everywhere, and infinity instead of NaN."""
    if error is None:
        return None
    error = error.nan_to_num(nan=math.inf, posinf=math.inf)
    return error if bool(error.any()) else None


def added(*errors: Error) -> Error:
    total: Error = None
    for error in errors:
        if error is not None:
            total = error if total is None else total + error
    return total


def finite(x: Tensor) -> Tensor:
    """Returns |x|, with 0 for elements that are not finite: inf and NaN have no rounding error."""
    return torch.where(torch.isfinite(x), x.abs(), 0.0)


def _rounding(name: str, dtype: torch.dtype, values: Sequence[Tensor], result: Tensor, passed: Error) -> Error:
    """Returns the error that the op itself adds."""
    row = OPS[name].error
    if row.kind in (OpErrorKind.k_exact, OpErrorKind.k_in_type):
        return None
    unit, size = UNIT[dtype], finite(result)
    error = (size * row.relative + row.absolute) * unit
    if row.kind == OpErrorKind.k_rounded:
        single = result.to(dtype).double()
        exact = single == result if passed is None else (single == result) & (passed == 0)
        error = torch.where(exact, 0.0, error)
    if row.of_operand:
        error = error + finite(values[0].double()) * (row.of_operand * unit)
    if row.kind == OpErrorKind.k_recurrence:
        x, n = (finite(v.double()) for v in values)
        error = error + 64 * unit * (1 + n) ** 2 * (1 + size) * (1 + x)
    small = (size < 2.0**24 * SMALLEST[dtype]) & (result != 0)
    return torch.where(small, error + SMALLEST[dtype], error)


def _passed(name: str, dtype: torch.dtype, values: Sequence[Tensor], errors: Sequence[Error], result: Tensor) -> Error:
    """Returns the error in the result that comes from the errors of the operands."""
    total: Error = None
    for k, error in enumerate(errors):
        if error is None:
            continue
        change: Error = None
        if name in ("add", "sub", "neg", "abs"):
            change = error
        elif name == "mul":
            other = values[1 - k].double().abs()
            own = errors[1 - k]
            change = error * other if own is None else error * (other + own)
        else:
            for end in moved(values[k], error):
                there = evaluated(name, dtype, [*values[:k], end, *values[k + 1 :]])
                change = _larger(change, distance(there, result))
        assert change is not None
        total = added(total, torch.where(torch.isinf(error), math.inf, change))
    return total


def moved(values: Tensor, error: Tensor) -> list[Tensor]:
    """Returns the ends of the interval around `values`."""
    if values.dtype is torch.bool:
        return [values ^ (error > 0)]
    if values.is_floating_point():
        return [values + error, values - error]
    step = error.clamp(max=2.0**31).to(values.dtype)
    return [values + step, values - step]


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Returns |a - b|; 0 for equal infinities and for two NaN, infinite for one NaN."""
    a, b = a.double(), b.double()
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf))


def _larger(a: Error, b: Tensor) -> Tensor:
    return b if a is None else torch.maximum(a, b)


def _undecided(values: Sequence[Tensor], errors: Sequence[Error]) -> Error:
    """Returns an error of 1 where a comparison may give either result."""
    error = added(*errors)
    if error is None:
        return None
    a, b = (v.double() for v in values)
    near = ((a - b).abs() <= error) | torch.isinf(error)
    return normalized_bound((near & (error > 0)).double())


def _logic(errors: Sequence[Error]) -> Error:
    error = added(*errors)
    return None if error is None else normalized_bound((error > 0).double())


def _where(values: Sequence[Tensor], errors: Sequence[Error]) -> Error:
    condition, then, otherwise = values
    zero = torch.zeros((), dtype=torch.float64)
    first, second = (zero if e is None else e for e in errors[1:])
    error = torch.where(condition.bool(), first, second)
    if errors[0] is not None:
        either = distance(then, otherwise) + first + second
        error = torch.where(errors[0] > 0, either, error)
    return normalized_bound(error)


def cast(value: Tensor, error: Error, dtype: torch.dtype, source: torch.dtype) -> tuple[Tensor, Error]:
    """Converts a value of type `source` to `dtype`, as a kCast does."""

    def converted(x: Tensor) -> Tensor:
        if dtype.is_floating_point:
            return x.to(dtype).double() if dtype is not torch.float64 else x.double()
        if x.is_floating_point() and dtype is not torch.bool:
            return torch.where(torch.isfinite(x), x, 0.0).to(torch.int64).to(dtype)
        return x.to(dtype)

    if dtype.is_floating_point and source in (dtype, torch.float32 if dtype is torch.float64 else dtype):
        return value.double(), error
    if dtype is torch.float32 and source in NARROW:
        return value.double(), error
    if dtype is torch.float32 and source is torch.float64 and error is None:
        return value.to(dtype).double(), None
    result = converted(value)
    passed: Error = None
    if error is not None:
        for end in moved(value, error):
            passed = _larger(passed, distance(converted(end), result))
        assert passed is not None
        passed = torch.where(torch.isinf(error), math.inf, passed)
    if value.is_floating_point() and not dtype.is_floating_point and dtype is not torch.bool:
        # Numbers that an integer type cannot hold have no defined conversion.
        info = torch.iinfo(dtype)
        outside = ~((value >= info.min) & (value <= info.max))
        if outside.any():
            passed = unknown_where(outside, passed)
    return result, normalized_bound(passed)
