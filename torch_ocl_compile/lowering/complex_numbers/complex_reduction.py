# torch_ocl_compile/lowering/complex_numbers/complex_reduction.py: products, norms, variances, tests of complex numbers over dimensions.
"""Sums and means are those of the parts, see complex_parts.py."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import TORCH_DTYPES
from torch_ocl_compile.lowering.complex_numbers import complex_term as z
from torch_ocl_compile.lowering.complex_numbers.complex_pointwise import is_true, pointwise
from torch_ocl_compile.lowering.core.complex_value import Complex, real_dtype
from torch_ocl_compile.lowering.core.context import Context, dims_of, ir_dtype
from torch_ocl_compile.lowering.core.registry import find, lower_complex
from torch_ocl_compile.lowering.core.term import Nest
from torch_ocl_compile.lowering.reductions.reduction import variance
from torch_ocl_compile.lowering.reductions.scan import Row, along


def _of_real(c: Context, x: ir.Value, *args: Any, **kwargs: Any) -> Any:
    """Lowers the node's op with a real value in place of the complex one."""
    lowering = find(None if c.node is None else c.node.target)
    assert lowering is not None
    return lowering(c, x, *args, **kwargs)


@lower_complex("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def truth(c: Context, x: Complex, *args: Any, **kwargs: Any) -> Any:
    return _of_real(c, pointwise(c, is_true, x, dtype=torch.bool), *args, **kwargs)


def _size(c: Context, x: Complex) -> ir.Value:
    size: ir.Value = pointwise(c, z.abs_, x, dtype=TORCH_DTYPES[x.dtype])
    return size


@lower_complex("aten.linalg_vector_norm.default")
def linalg_vector_norm(c: Context, x: Complex, *args: Any, **kwargs: Any) -> Any:
    return _of_real(c, _size(c, x), *args, **kwargs)


@lower_complex("aten.var.correction", "aten.std.correction")
def spread(c: Context, x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The variance is the sum of the variances of the parts."""
    wide = ir.compute_type(ir_dtype(c.val.dtype))
    parts = [variance(c, part, dim, correction, keepdim, wide)[0] for part in x]
    is_root = c.node is not None and "std" in str(c.node.target)
    return c.pointwise(lambda a, b: (a + b).nest.op("sqrt", a + b) if is_root else a + b, *parts)


@lower_complex("aten.var_mean.correction")
def var_mean(c: Context, x: Complex, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dtype = ir_dtype(real_dtype(c.val[1].dtype))
    (v, re), (w, im) = (variance(c, part, dim, correction, keepdim, dtype) for part in x)
    return c.pointwise(lambda a, b: a + b, v, w, dtype=dtype), Complex(re, im)


@lower_complex("aten.prod.default", "aten.prod.dim_int")
def prod(c: Context, x: Complex, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Complex:
    parts = ir_dtype(real_dtype(c.val.dtype))
    if not x.sizes:
        return x.map(lambda part: c.cast(part, parts))
    reduced = dims_of(dim, len(x.sizes))
    nest = Nest(
        c.builder,
        [s for d, s in enumerate(x.sizes) if d not in reduced],
        [s for d, s in enumerate(x.sizes) if d in reduced],
    )
    outer, inner = iter(nest.i), iter(nest.r)
    at = [next(inner) if d in reduced else next(outer) for d in range(len(x.sizes))]
    wide = ir.compute_type(parts)
    made = nest.reduce("complex_prod", [nest.load(part, at).cast(wide) for part in x], [parts, parts])
    return Complex(*(c.builder.reshape(part, c.sizes) for part in made))


@lower_complex("aten.cumprod.default")
def cumprod(c: Context, x: Complex, dim: int, *, dtype: Any = None) -> Complex:
    parts = ir_dtype(real_dtype(c.val.dtype))
    if not x.sizes:
        return x.map(lambda part: c.cast(part, parts))
    wide = ir.compute_type(parts)

    def merge(a: Any, b: Any) -> Any:
        made = z.Z(*a) * z.Z(*b)
        return made.re, made.im

    def terms(nest: Nest, at: list[ir.IndexExpr]) -> Any:
        return tuple(nest.load(part, at).cast(wide) for part in x)

    return Complex(*along(c, Row("complex_prod", (wide, wide), merge), x[0], dim, [parts, parts], terms))
