# torch_ocl_compile/lowering/elementwise/factory.py: ops that create tensors: full, empty, zeros, ones, iota, arange.
"""Constants and index ramps need no memory until they are stored."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower

aten = torch.ops.aten
prims = torch.ops.prims


@lower(aten.full.default)
def full(c: Context, size: Any, value: Any, **_: Any) -> ir.Value:
    return c.number(value, c.dtype, c.sizes)


@lower(aten.full_like.default, "aten.fill.Scalar")
def full_like(c: Context, x: ir.Value, value: Any, **_: Any) -> ir.Value:
    return c.number(value, c.dtype, c.sizes)


@lower("aten.fill.Tensor")
def fill(c: Context, x: ir.Value, value: ir.Value) -> ir.Value:
    return c.builder.expand(c.cast(value, c.dtype), c.sizes)


@lower(aten.scalar_tensor.default)
def scalar_tensor(c: Context, value: Any, **_: Any) -> ir.Value:
    return c.number(value, c.dtype)


@lower(
    aten.empty.memory_format,
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten.empty_like.default",
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    "aten._efficientzerotensor.default",
)
def empty(c: Context, *_: Any, **__: Any) -> ir.Value:
    """Returns zeros: the contents of empty memory are unspecified, and a constant costs nothing."""
    return c.number(0, c.dtype, c.sizes)


@lower("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(c: Context, *_: Any, **__: Any) -> ir.Value:
    return c.number(1, c.dtype, c.sizes)


@lower(prims.iota.default)
def iota(c: Context, length: Any, *, start: Any, step: Any, **_: Any) -> ir.Value:
    return c.builder.iota(c.sizes, c.size(start) + ir.IndexExpr.loop(0) * c.size(step), c.dtype)


@lower(aten.arange.start_step, "aten.arange.start", "aten.arange.default")
def arange(c: Context, *args: Any, **_: Any) -> ir.Value:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if all(isinstance(v, (int, torch.SymInt)) for v in (start, step)):
        return c.builder.iota(c.sizes, c.size(start) + ir.IndexExpr.loop(0) * c.size(step), c.dtype)
    ramp = c.builder.iota(c.sizes, ir.IndexExpr.loop(0), ir.compute_type(c.dtype))
    return c.pointwise(lambda i: i * float(step) + float(start), ramp)
