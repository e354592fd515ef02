# torch_ocl_compile/lowering/movement/indexing.py: gathers, that is loads at coordinates that are themselves loaded.
"""Scatters are in scatter.py. An index outside its dimension reads some element inside, so no load leaves its buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Nest, Term

aten = torch.ops.aten


def wrap(index: Term, size: ir.IndexExpr) -> Term:
    """Returns the index with negative values counted from the end. Of one outside the dimension, returns some valid one."""
    return inside(from_end(narrowed(index, size), size), size)


def narrowed(index: Term, size: ir.IndexExpr) -> Term:
    """Returns the index in 32 bits where these hold all valid ones, because few devices compute with 64 bits."""
    is_short = size.is_const() and size.constant() < 2**31
    return index.cast(ir.DType.kI32 if is_short else ir.DType.kI64)


def from_end(index: Term, size: ir.IndexExpr) -> Term:
    """Returns the index with negative values counted from the end."""
    return t.where(index < 0, index + index.nest.index(size).cast(index.dtype), index)


def inside(index: Term, size: ir.IndexExpr) -> Term:
    """Returns the nearest index that lies inside the dimension."""
    return t.maximum(t.minimum(index, index.nest.index(size - 1).cast(index.dtype)), 0)


def is_expanded(x: ir.Value, dim: int) -> bool:
    """True if x has the same elements everywhere along a dimension of another size than 1, by its coordinates."""
    used = [x.index] if x.kind == ir.ValueKind.kIndex else x.coords
    return not x.sizes[dim].is_const(1) and not any(e.uses(f"i{dim}") for e in used)


@lower(aten.embedding.default)
def embedding(c: Context, weight: ir.Value, indices: ir.Value, *_: Any) -> ir.Value:
    nest = c.nest(c.val.shape)
    row = inside(narrowed(nest.load(indices, nest.i[:-1]), weight.sizes[0]), weight.sizes[0])
    return nest.store((nest.load(weight, [row.as_index(), nest.i[-1]]), c.dtype))[0]


@lower(aten.index_select.default)
def index_select(c: Context, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    if not x.sizes:
        return x
    nest = c.nest(c.val.shape)
    dim %= len(x.sizes)
    at: list[Any] = list(nest.i)
    chosen = narrowed(nest.load(index, [nest.i[dim]] if index.sizes else []), x.sizes[dim])
    at[dim] = inside(chosen, x.sizes[dim]).as_index()
    return nest.store((nest.load(x, at), c.dtype))[0]


@lower(aten.gather.default)
def gather(c: Context, x: ir.Value, dim: int, index: ir.Value, sparse_grad: bool = False) -> ir.Value:
    if not x.sizes:
        return c.builder.expand(x, c.sizes)
    nest = c.nest(c.val.shape)
    at: list[Any] = list(nest.i)
    at[dim % len(x.sizes)] = wrap(nest.load(index, nest.i), x.sizes[dim % len(x.sizes)]).as_index()
    return nest.store((nest.load(x, at[: len(x.sizes)]), c.dtype))[0]


@lower(aten.index.Tensor, "aten._unsafe_index.Tensor")
def index(c: Context, x: ir.Value, indices: Sequence[ir.Value | None]) -> Any:
    """Returns x[i0, i1, ...] for integer index tensors.

    Boolean ones give a size that depends on the data; they fall back to eager.
    """
    if any(i is not None and i.dtype in (ir.DType.kBool, ir.DType.kU8) for i in indices):
        return NotImplemented
    nest = c.nest(c.val.shape)
    at = advanced_coords(c, nest, x, indices)
    return nest.store((nest.load(x, at), c.dtype))[0]


def advanced_coords(c: Context, nest: Nest, x: ir.Value, indices: Sequence[ir.Value | None]) -> list[Any]:
    """Returns the coordinates in x of the nest's point.

    The indexed dimensions are replaced by one block of the broadcast index shape: at the position of the first of
    them if they are adjacent, else in front.
    """
    places = [d for d, i in enumerate(indices) if i is not None]
    shape = c.broadcast([i for i in indices if i is not None])
    adjacent = places == list(range(places[0], places[-1] + 1))
    first = places[0] if adjacent else 0
    block = nest.i[first : first + len(shape)]
    others = iter([*nest.i[:first], *nest.i[first + len(shape) :]])
    at: list[Any] = []
    for d, size in enumerate(x.sizes):
        chosen = indices[d] if d < len(indices) else None
        if chosen is None:
            at.append(next(others))
        else:
            at.append(wrap(nest.load_broadcast(chosen, shape, block), size).as_index())
    return at
