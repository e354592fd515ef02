# torch_ocl_compile/lowering/elementwise/foreach.py: _foreach_* ops as one pointwise node per list element.
"""The scheduler batches these nodes into few launches.

Each row of the tables below names the overload that is applied to every element. Arguments that are lists contribute
their elements; all other arguments are the same for every element.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.core.complex_value import is_complex
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import find, lower, lower_complex
from torch_ocl_compile.lowering.reductions.reduction import vector_norm

aten = torch.ops.aten

# _foreach op -> (overload for a tensor operand, overload for a number).
BINARY = {
    "add": ("aten.add.Tensor", "aten.add.Tensor"),
    "sub": ("aten.sub.Tensor", "aten.sub.Tensor"),
    "mul": ("aten.mul.Tensor", "aten.mul.Tensor"),
    "div": ("aten.div.Tensor", "aten.div.Tensor"),
    "maximum": ("aten.maximum.default", "aten.clamp_min.default"),
    "minimum": ("aten.minimum.default", "aten.clamp_max.default"),
    "clamp_min": ("aten.clamp_min.Tensor", "aten.clamp_min.default"),
    "clamp_max": ("aten.clamp_max.Tensor", "aten.clamp_max.default"),
    "pow": ("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar"),
    "lerp": ("aten.lerp.Tensor", "aten.lerp.Scalar"),
    "addcmul": ("aten.addcmul.default", "aten.addcmul.default"),
    "addcdiv": ("aten.addcdiv.default", "aten.addcdiv.default"),
}
OVERLOADS = {"List": 0, "Tensor": 0, "Scalar": 1, "ScalarList": 1}
UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round"
    " rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)


def each(c: Context, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Applies the lowering of `target` to every element of the list arguments and returns the results as a list."""
    results, fakes = [], c.val

    def element(a: Any, i: int) -> Any:
        return a[i] if isinstance(a, list) else a

    for i, fake in enumerate(fakes):
        c.val = fake
        given, named = [element(a, i) for a in args], {k: element(v, i) for k, v in kwargs.items()}
        lowering = find(target, is_complex(given, named, fake))
        results.append(NotImplemented if lowering is None else lowering(c, *given, **named))
    c.val = fakes
    return NotImplemented if any(result is NotImplemented for result in results) else results


def _add_row(name: str, target: str) -> None:
    found = overload(target)
    if find(found) is not None:
        lower(name)(lambda c, *args, **kwargs: each(c, found, args, kwargs))
        lower_complex(name)(lambda c, *args, **kwargs: each(c, found, args, kwargs))


def _register() -> None:
    for name, targets in BINARY.items():
        for which, column in OVERLOADS.items():
            if not (name in ("addcmul", "addcdiv") and which == "Tensor"):
                _add_row(f"aten._foreach_{name}.{which}", targets[column])
    for name in UNARY.split():
        _add_row(f"aten._foreach_{name}.default", f"aten.{name}.default")


_register()


@lower("aten._foreach_pow.ScalarAndTensor")
def pow_scalar_and_tensor(c: Context, base: Any, exponents: list[ir.Value]) -> Any:
    return each(c, aten.pow.Scalar, (base, exponents), {})


@lower("aten._foreach_norm.Scalar")
def norm(c: Context, xs: list[ir.Value], order: Any = 2, dtype: Any = None) -> list[ir.Value]:
    return [vector_norm(c, x, order, ir_dtype(fake.dtype)) for x, fake in zip(xs, c.val, strict=True)]


@lower("aten._foreach_max.default")
def maximum(c: Context, xs: list[ir.Value]) -> Any:
    return each(c, aten.max.default, (xs,), {})


@lower("aten._foreach_copy.default")
@lower_complex("aten._foreach_copy.default")
def copy(c: Context, targets: list[Any], sources: list[Any], non_blocking: bool = False) -> Any:
    return each(c, aten.copy.default, (targets, sources), {})


@lower("aten._foreach_zero.default")
@lower_complex("aten._foreach_zero.default")
def zero(c: Context, xs: list[Any]) -> Any:
    return each(c, aten.zeros_like.default, (xs,), {})
