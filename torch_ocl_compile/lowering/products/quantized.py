# torch_ocl_compile/lowering/products/quantized.py: products of quantised matrices: scaled 8-bit floats, weights of 8 and 4 bits.
"""The operands are converted by pointwise nodes. A product with few rows is computed by loops, into which these nodes fuse, so that
the weight is read as it is stored (csrc/schedule/few_rows.h)."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Term, call
from torch_ocl_compile.lowering.products.contraction import product


@lower("aten._scaled_mm.default")
def scaled_mm(
    c: Context,
    a: ir.Value,
    b: ir.Value,
    scale_a: ir.Value,
    scale_b: ir.Value,
    bias: ir.Value | None = None,
    scale_result: ir.Value | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """Returns (a * scale_a) @ (b * scale_b) + bias. A scale is one number, or a number for each row of a, each column of b.

    bf16 holds every 8-bit float, so that the product may use tensor cores. It is summed in fp32.
    """
    rows, columns = a.sizes[0], b.sizes[1]
    scales = [_spread(c, scale_a, 0, rows), _spread(c, scale_b, 1, columns)]
    if None in scales or not (ir.is_f8(a.dtype) and ir.is_f8(b.dtype)):
        return NotImplemented  # Scales of blocks.
    wide = product(c, a, b, ir.DType.kF32, ir.DType.kBF16)

    def scaled(x: Any, row: Any, column: Any, *more: Any) -> Any:
        result = x * row * column
        return result + more[0] if more else result

    # The CPU's and CUDA's kernels ignore scale_result unless the result has 8 bits, where it is one factor more.
    bias_of = [] if bias is None else [bias]
    result = c.pointwise(scaled, wide, *scales, *bias_of, compute=ir.DType.kF32)
    if scale_result is not None and ir.is_f8(c.dtype):
        result = c.pointwise(lambda x, s: x * s, result, scale_result, compute=ir.DType.kF32)
    return result


def _spread(c: Context, scale: ir.Value, dim: int, size: ir.IndexExpr) -> ir.Value | None:
    """Returns the scale as a value that broadcasts with the result. None for scales of blocks."""
    if all(s.is_const(1) for s in scale.sizes):
        return c.builder.reshape(scale, [])
    other = scale.sizes[1 - dim] if len(scale.sizes) == 2 else None
    return scale if other is not None and other.is_const(1) and scale.sizes[dim] == size else None


# The fewest rows for which a product of int8 or unpacked int4 weights uses the matrix product kernels (csrc/schedule/few_rows.h).
MANY_ROWS = 9


def _has_few_rows(x: ir.Value) -> bool:
    return any(x.sizes[0].is_const(n) for n in range(1, MANY_ROWS))


def _transposed(c: Context, x: ir.Value) -> ir.Value:
    return c.builder.permute(x, [1, 0])


@lower("aten._weight_int8pack_mm.default")
def weight_int8pack_mm(c: Context, x: ir.Value, weight: ir.Value, scales: ir.Value) -> ir.Value:
    """Returns x @ weight.T * scales for x [m, k], weight int8 [n, k] and a scale for each column. x's dtypes hold every int8."""
    wide = product(c, x, _transposed(c, c.cast(weight, x.dtype)), ir.DType.kF32, x.dtype)
    return c.pointwise(lambda y, s: y * s, wide, scales, compute=ir.DType.kF32)


def _nibble(word: Term, place: Term) -> Term:
    """Returns four bits of a word."""
    return call("bitwise_and", call("shift_right", word, place * 4), 15)


def _unpacked(c: Context, x: ir.Value, packed: ir.Value, count: int, group: int, scales: ir.Value) -> ir.Value:
    """Returns x [m, k] times the transposed weight [n, k] whose element is (nibble - 8) * scale + zero, in x's dtype.

    packed: [n, k // count]; scales: [k // group, n, 2], with the scale and the zero. A word has `count` elements, from
    its lowest bits.
    """
    rows, depth = packed.sizes[0], x.sizes[1]
    dtype = ir.DType.kF32 if _has_few_rows(x) else x.dtype
    nest = c.nest([rows, depth])
    n, k = nest.i
    word, place = nest.load(packed, [n, k // count]), nest.index(k % count, ir.DType.kI32)
    scale, zero = (nest.load(scales, [k // group, n, part]).cast(ir.DType.kF32) for part in (0, 1))
    value = (_nibble(word.cast(ir.DType.kI32), place) - 8).cast(ir.DType.kF32)
    (weight,) = nest.store((value * scale + zero, dtype))
    return c.cast(product(c, x, _transposed(c, weight), ir.DType.kF32, dtype), c.dtype)


@lower("aten._convert_weight_to_int4pack.default")
def convert_weight_to_int4pack(c: Context, weight: ir.Value, inner_tiles: int) -> ir.Value:
    """Packs weight uint8 [n, k / 2], whose bytes have the even column in their upper half, into int32.

    The shape is that of CUDA's format. The words have the order of the rows, because the kernels here read rows: word j of row n has
    columns 8 j to 8 j + 7, four bits for each, from the lowest.
    """
    rows, words = weight.sizes[0], weight.sizes[1] // 4
    nest = c.nest([rows, words])
    n, j = nest.i
    value = nest.constant(0, ir.DType.kI32)
    for byte in range(4):
        both = nest.load(weight, [n, j * 4 + byte]).cast(ir.DType.kI32)
        for half, element in ((0, call("shift_right", both, 4)), (1, call("bitwise_and", both, 15))):
            value = call("bitwise_or", value, call("shift_left", element, 8 * byte + 4 * half))
    (packed,) = nest.store((value, ir.DType.kI32))
    return c.builder.reshape(packed, c.sizes)


@lower("aten._weight_int4pack_mm.default")
def weight_int4pack_mm(c: Context, x: ir.Value, packed: ir.Value, group: int, scales: ir.Value) -> ir.Value:
    words = c.builder.reshape(packed, [scales.sizes[1], x.sizes[1] // 8])
    return _unpacked(c, x, words, 8, group, scales)


@lower("aten._convert_weight_to_int4pack_for_cpu.default")
def convert_weight_to_int4pack_for_cpu(c: Context, weight: ir.Value, inner_tiles: int) -> ir.Value:
    """Packs weight int32 [n, k] into uint8 [n, k / 2], with the even column in the lower half of its byte."""
    nest = c.nest(c.sizes)
    n, j = nest.i
    even, odd = (nest.load(weight, [n, j * 2 + part]) for part in (0, 1))
    (packed,) = nest.store(
        (call("bitwise_or", call("bitwise_and", even, 15), call("shift_left", odd, 4)), ir.DType.kU8)
    )
    return packed


@lower("aten._weight_int4pack_mm_for_cpu.default")
def weight_int4pack_mm_for_cpu(c: Context, x: ir.Value, packed: ir.Value, group: int, scales: ir.Value) -> ir.Value:
    return _unpacked(c, x, packed, 2, group, scales)


@lower("aten._int_mm.default")
def int_mm(c: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    """Returns the int32 product of int8 matrices. The scheduler chooses how it is computed (csrc/schedule/byte_products.h)."""
    return product(c, a, b, ir.DType.kI32, ir.DType.kI8 if a.dtype == ir.DType.kI8 else None)
