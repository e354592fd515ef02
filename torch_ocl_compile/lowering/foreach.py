# torch_ocl_compile/lowering/foreach.py: _foreach_* ops as one pointwise node per list element.
"""The scheduler batches these nodes into few launches.

Each row of the tables below names the overload that is applied to every element. Arguments that are lists contribute
their elements; all other arguments are the same for every element.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.context import Context, ir_dtype
from torch_ocl_compile.lowering.reduction import vector_norm
from torch_ocl_compile.lowering.registry import Lowering, find, lower

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


def each(c: Context, lowering: Lowering, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Applies `lowering` to every element of the list arguments and returns the results as a list."""
    results, fakes = [], c.val

    def element(a: Any, i: int) -> Any:
        return a[i] if isinstance(a, (list, tuple)) else a

    for i, fake in enumerate(fakes):
        c.val = fake
        results.append(lowering(c, *(element(a, i) for a in args), **{k: element(v, i) for k, v in kwargs.items()}))
    c.val = fakes
    return results


def _row(target: str) -> Lowering | None:
    found = overload(target)
    lowering = find(found) if found is not None else None
    return None if lowering is None else lambda c, *args, **kwargs: each(c, lowering, args, kwargs)


def _register() -> None:
    for name, targets in BINARY.items():
        for which, column in OVERLOADS.items():
            row = _row(targets[column])
            if row is not None and not (name in ("addcmul", "addcdiv") and which == "Tensor"):
                lower(f"aten._foreach_{name}.{which}")(row)
    for name in UNARY.split():
        row = _row(f"aten.{name}.default")
        if row is not None:
            lower(f"aten._foreach_{name}.default")(row)


_register()


@lower("aten._foreach_pow.ScalarAndTensor")
def pow_scalar_and_tensor(c: Context, base: Any, exponents: list[ir.Value]) -> list[Any]:
    lowering = find(aten.pow.Scalar)
    assert lowering is not None
    return each(c, lowering, (base, exponents), {})


@lower("aten._foreach_norm.Scalar")
def norm(c: Context, xs: list[ir.Value], order: Any = 2, dtype: Any = None) -> list[ir.Value]:
    return [vector_norm(c, x, order, ir_dtype(fake.dtype)) for x, fake in zip(xs, c.val, strict=True)]


@lower("aten._foreach_max.default")
def maximum(c: Context, xs: list[ir.Value]) -> list[Any]:
    lowering = find(aten.max.default)
    assert lowering is not None
    return each(c, lowering, (xs,), {})


@lower("aten._foreach_copy.default")
def copy(c: Context, targets: list[ir.Value], sources: list[ir.Value], non_blocking: bool = False) -> list[ir.Value]:
    return [c.builder.expand(c.cast(s, x.dtype), x.sizes) for x, s in zip(targets, sources, strict=True)]


@lower("aten._foreach_zero.default")
def zero(c: Context, xs: list[ir.Value]) -> list[ir.Value]:
    return [c.constant(0, x.dtype, x.sizes) for x in xs]
