# torch_ocl_compile/lowering/layers/embedding.py: gradients of embedding tables; embedding bags, forward and backward.
"""The gradient of a table sums the gradients of equal indices in a fixed order (see scatter.py).

Bag b holds the indices from offsets[b] up to the next offset. Its vectors are added, averaged, or reduced to their
elementwise maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term
from torch_ocl_compile.lowering.movement import sort
from torch_ocl_compile.lowering.movement.accumulate import ScatterSpec, accumulated
from torch_ocl_compile.lowering.movement.indexing import inside

aten = torch.ops.aten
I64 = ir.DType.kI64
SUM, MEAN, MAX = range(3)
NO_INDEX = 2**62


def _empty(*sizes: Sequence[ir.IndexExpr]) -> bool:
    return any(s.is_const(0) for shape in sizes for s in shape)


def _place(indices: ir.Value, padding: Any) -> Callable[[Nest, Any, ir.IndexExpr], Term]:
    def place(nest: Nest, row: Any, source: ir.IndexExpr) -> Term:
        index = nest.load(indices, [source]).cast(I64)
        return t.where(index.eq(padding), -1, index) if isinstance(padding, int) and padding >= 0 else index

    return place


@lower(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    c: Context, grad: ir.Value, indices: ir.Value, num_weights: Any, padding_idx: Any, scale_grad_by_freq: bool
) -> Any:
    if _empty(grad.sizes, indices.sizes):
        return c.constant(0, c.dtype, c.sizes)
    count, width = c.numel(indices.sizes), grad.sizes[-1]
    rows = c.builder.reshape(grad, [count, width])
    place = _place(c.builder.reshape(indices, [count]), padding_idx)
    p = ScatterSpec([], count, c.size(num_weights), [width], place, lambda nest, _, s, at: nest.load(rows, [s, *at]))
    return _by_frequency(c, _sums(c, p, scale_grad_by_freq))


def _sums(c: Context, p: ScatterSpec, with_count: bool) -> list[ir.Value]:
    """Returns the gradients of the places, and their counts if `with_count`. Sums that are divided by them stay wide."""
    wide = ir.compute_type(c.dtype)
    return accumulated(c, p, "sum", wide, with_count, wide if with_count else c.dtype)


def _by_frequency(c: Context, tables: Sequence[ir.Value]) -> ir.Value:
    """Returns the sums `tables[0]`, divided by the counts `tables[1]` if there are any (`scale_grad_by_freq`)."""
    if len(tables) == 1:
        return c.cast(tables[0], c.dtype)
    nest = c.nest(c.val.shape)
    count = t.maximum(nest.load(tables[1], [nest.i[0]]), 1)
    total = nest.load(tables[0], nest.i)
    return nest.store((total / count.cast(total.dtype), c.dtype))[0]


def _bags(c: Context, indices: ir.Value, offsets: ir.Value, dtype: ir.DType) -> ir.Value:
    """Returns the bag of each index: the number of bags that begin at or before it, minus 1."""
    nest = Nest(c.builder, indices.sizes)
    count, here = offsets.sizes[0], nest.index(nest.i[0])
    table = c.builder.realize(offsets)
    begun = sort.search(nest, table, [], ir.IndexExpr(0), count, count, lambda k: k.cast(I64) <= here)
    return nest.store((begun - 1, dtype))[0]


@lower(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    c: Context,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Returns (output, the bag of each index, the sizes of the bags, the index that each maximum comes from).

    In sum mode the sizes stay 0, as on the CPU, because no gradient divides by them.
    """
    output, bag_of, size_of, from_index = (c.shape(v.shape) for v in c.val)
    wide, dtype = ir.compute_type(weight.dtype), ir_dtype(c.val[1].dtype)
    if _empty(indices.sizes, output):
        return NotImplemented
    count, bags, width = indices.sizes[0], output[0], output[1]
    bag = _bags(c, indices, offsets, dtype)

    def place(nest: Nest, _: Any, s: ir.IndexExpr) -> Term:
        at = nest.load(bag, [s]).cast(I64)
        return at if padding_idx < 0 else t.where(nest.load(indices, [s]).eq(padding_idx), -1, at)

    def vector(nest: Nest, s: ir.IndexExpr, at: Any) -> Term:
        row = inside(nest.load(indices, [s]).cast(I64), weight.sizes[0])
        value = nest.load(weight, [row.as_index(), *at])
        return value if per_sample_weights is None else value * nest.load(per_sample_weights, [s])

    p = ScatterSpec([], count, bags, [width], place, lambda nest, _, s, at: vector(nest, s, at))
    total, sizes = accumulated(c, p, "max" if mode == MAX else "sum", wide, True)
    nest = Nest(c.builder, [bags, width])
    value, n = nest.load(total, nest.i), nest.load(sizes, [nest.i[0]])
    if mode == MEAN:
        value = value / t.maximum(n, 1).cast(wide)
    result = nest.store((t.where(n > 0, value, 0.0), weight.dtype))[0]
    largest = c.constant(0, dtype, from_index)
    if mode == MAX:
        largest = _largest(c, p, total, indices, vector, from_index, dtype)
    if mode == SUM:
        bag_size = c.constant(0, dtype, size_of)
    else:
        nest = Nest(c.builder, size_of)
        mask = nest.index(nest.i[0]) < nest.index(bags)
        bag_size = nest.store((nest.load(sizes, [ir.min(nest.i[0], bags - 1)], mask), dtype))[0]
    return result, bag if bag_of == indices.sizes else c.constant(0, dtype, bag_of), bag_size, largest


def _largest(
    c: Context, p: ScatterSpec, total: ir.Value, indices: ir.Value, vector: Any, sizes: Any, dtype: ir.DType
) -> ir.Value:
    """Returns, for each bag and vector element, the index whose vector has the maximum there, or -1 for an empty bag.

    Of equal elements the first counts.
    """

    def candidate(nest: Nest, row: Any, s: ir.IndexExpr, at: Any) -> Term:
        bag = inside(p.place(nest, row, s), p.places)
        equal = vector(nest, s, at).eq(nest.load(total, [bag.as_index(), *at]))
        return t.where(equal, nest.index(s), NO_INDEX)

    q = ScatterSpec([], p.count, p.places, p.inner, p.place, candidate)
    first = accumulated(c, q, "min", I64, False)[0]
    nest = Nest(c.builder, sizes)
    source = nest.load(first, nest.i)
    found = source < NO_INDEX
    index = nest.load(indices, [t.where(found, source, 0).as_index()]).cast(I64)
    return nest.store((t.where(found, index, -1), dtype))[0]


@lower(aten._embedding_bag_dense_backward.default)
def embedding_bag_dense_backward(
    c: Context,
    grad: ir.Value,
    indices: ir.Value,
    offset2bag: ir.Value,
    bag_size: ir.Value,
    maximum_indices: ir.Value,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: ir.Value | None,
    padding_idx: int = -1,
) -> Any:
    if _empty(grad.sizes, indices.sizes):
        return c.constant(0, c.dtype, c.sizes)
    width = grad.sizes[-1]
    if mode == MAX:
        p = ScatterSpec(
            [width],
            grad.sizes[0],
            c.size(num_weights),
            [],
            lambda nest, row, s: nest.load(maximum_indices, [s, *row]).cast(I64),
            lambda nest, row, s, _: nest.load(grad, [s, *row]),
        )
        return c.builder.permute(_sums(c, p, False)[0], [1, 0])

    def source(nest: Nest, _: Any, s: ir.IndexExpr, at: Any) -> Term:
        bag = inside(nest.load(offset2bag, [s]).cast(I64), grad.sizes[0]).as_index()
        value = nest.load(grad, [bag, *at])
        if mode == MEAN:
            value = value / t.maximum(nest.load(bag_size, [bag]), 1).cast(value.dtype)
        return value if per_sample_weights is None else value * nest.load(per_sample_weights, [s])

    place = _place(indices, padding_idx)
    p = ScatterSpec([], indices.sizes[0], c.size(num_weights), [width], place, source)
    return _by_frequency(c, _sums(c, p, scale_grad_by_freq))


@lower(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    c: Context, grad: ir.Value, indices: ir.Value, offsets: ir.Value, offset2bag: ir.Value, *rest: Any
) -> Any:
    *settings, sparse, weights, padding_idx = rest if len(rest) == 8 else (*rest, -1)
    if sparse:
        return NotImplemented
    # The forward pass did not save the bag of each index.
    if offset2bag.sizes != indices.sizes and not _empty(indices.sizes):
        offset2bag = _bags(c, indices, offsets, I64)
    dense: Any = embedding_bag_dense_backward
    return dense(c, grad, indices, offset2bag, *settings, weights, padding_idx)


@lower(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(
    c: Context,
    grad: ir.Value,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    """Returns, for each index, the dot product of its bag's gradient and its vector."""
    if _empty(grad.sizes, indices.sizes):
        return c.constant(0, c.dtype, c.sizes)
    if offset2bag.sizes != indices.sizes:
        offset2bag = _bags(c, indices, offsets, I64)
    nest = Nest(c.builder, [indices.sizes[0]], [grad.sizes[-1]])
    index = nest.load(indices, nest.i).cast(I64)
    bag = inside(nest.load(offset2bag, nest.i).cast(I64), grad.sizes[0])
    row = inside(index, weight.sizes[0])
    value = nest.load(grad, [bag.as_index(), nest.r[0]]) * nest.load(weight, [row.as_index(), nest.r[0]])
    if padding_idx >= 0:
        value = t.where(index.eq(padding_idx), 0.0, value)
    return nest.reduce("sum", [value], [c.dtype])[0]
