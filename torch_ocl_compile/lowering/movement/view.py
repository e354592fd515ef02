# torch_ocl_compile/lowering/movement/view.py: views (reshape, slice, expand, ...) as index maps, and the ops that copy.
"""Views compose coordinate expressions in the builder and move nothing. The traced result provides every size, so that
-1 needs no handling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.results import first_element

aten = torch.ops.aten
prims = torch.ops.prims


@lower(
    *(aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default, "aten.lift_fresh.default"),
    *("aten.resolve_conj.default", "aten.resolve_neg.default", "aten._conj_physical.default", "aten._conj.default"),
)
def alias(c: Context, x: ir.Value) -> ir.Value:
    return x


@lower(aten.clone.default, "aten.contiguous.default", "prims.copy_strided.default")
def clone(c: Context, x: ir.Value, layout: Any = None, memory_format: Any = None) -> ir.Value:
    """Returns x. The scheduler chooses layouts within a graph, and an output that must not share memory is copied at
    the end.
    """
    return x


@lower(aten.view.default, aten._unsafe_view.default, aten.reshape.default, "aten._reshape_alias.default")
def view(c: Context, x: ir.Value, *_: Any) -> ir.Value:
    return c.builder.reshape(x, c.sizes)


@lower(aten.permute.default)
def permute(c: Context, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    return c.builder.permute(x, [d % len(dims) for d in dims])


@lower(aten.transpose.int)
def transpose(c: Context, x: ir.Value, dim0: int, dim1: int) -> ir.Value:
    dims = list(range(len(x.sizes)))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return c.builder.permute(x, dims)


@lower(aten.t.default)
def t_(c: Context, x: ir.Value) -> ir.Value:
    return c.builder.permute(x, list(reversed(range(len(x.sizes)))))


@lower(aten.expand.default)
def expand(c: Context, x: ir.Value, sizes: Sequence[Any], implicit: bool = False) -> ir.Value:
    return c.builder.expand(x, c.sizes)


@lower(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(c: Context, x: ir.Value, dim: Any = None) -> ir.Value:
    rank = len(x.sizes)
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    chosen = sorted({d % rank for d in dims if x.sizes[d % rank].is_const(1)}) if rank else []
    if rank - len(chosen) != len(c.val.shape):
        raise UnsupportedError("squeeze of a dimension whose size is not known to be 1")
    return c.builder.squeeze(x, chosen)


@lower(aten.unsqueeze.default)
def unsqueeze(c: Context, x: ir.Value, dim: int) -> ir.Value:
    return c.builder.unsqueeze(x, dim % (len(x.sizes) + 1))


@lower(aten.slice.Tensor)
def slice_(c: Context, x: ir.Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> ir.Value:
    dim %= len(x.sizes)
    begin = c.size(0) if start is None else _clamped(c, start, x.sizes[dim])
    length = c.sizes[dim]
    return c.builder.slice(x, dim, begin, begin + length * c.size(step), c.size(step))


def _clamped(c: Context, at: Any, size: ir.IndexExpr) -> ir.IndexExpr:
    """Returns a slice bound as Python defines it: a negative bound counts from the end, and the bound is clamped to [0,
    size].
    """
    negative = at < 0 if isinstance(at, int) else guard_or_false(at < 0)
    expr = c.size(at) + size if negative else c.size(at)
    if expr.is_const(0):
        return expr
    if negative and not (expr.is_const() and expr.constant() >= 0):
        expr = ir.max(expr, ir.IndexExpr(0))
    return (
        expr if isinstance(at, int) and size.is_const() and expr.constant() <= size.constant() else ir.min(expr, size)
    )


@lower(aten.select.int)
def select(c: Context, x: ir.Value, dim: int, index: Any) -> ir.Value:
    dim %= len(x.sizes)
    halves = c.halves_of(x) if dim == len(x.sizes) - 1 and isinstance(index, int) else None
    return halves[index] if halves else c.builder.select(x, dim, _wrapped(c, index, x.sizes[dim]))


def _wrapped(c: Context, index: Any, size: ir.IndexExpr) -> ir.IndexExpr:
    negative = index < 0 if isinstance(index, int) else statically_known_true(index < 0)
    return c.size(index) + size if negative else c.size(index)


@lower(
    aten.split.Tensor, aten.split_with_sizes.default, "aten.unsafe_split.Tensor", aten.unbind.int, "aten.chunk.default"
)
def split(c: Context, x: ir.Value, *args: Any) -> list[ir.Value]:
    """Lowers split, chunk and unbind. The traced results say where to cut."""
    pieces = c.val
    if not pieces:
        return []
    is_unbind = pieces[0].dim() < len(x.sizes)
    dim = (args[0] if args else 0) if is_unbind else (args[1] if len(args) > 1 else 0)
    dim %= len(x.sizes)
    if is_unbind:
        return [c.builder.select(x, dim, ir.IndexExpr(i)) for i in range(len(pieces))]
    result, start = [], ir.IndexExpr(0)
    for piece in pieces:
        end = start + c.size(piece.shape[dim])
        result.append(c.builder.slice(x, dim, start, end, ir.IndexExpr(1)))
        start = end
    return result


@lower(aten.flip.default, "prims.rev.default")
def flip(c: Context, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    return c.builder.flip(x, [d % len(x.sizes) for d in dims] if x.sizes else [])


@lower(aten.diagonal.default)
def diagonal(c: Context, x: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ir.Value:
    rank = len(x.sizes)
    return c.builder.diagonal(x, offset, dim1 % rank, dim2 % rank)


def _is_layout(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any]) -> bool:
    pairs = [*zip(x.shape, size, strict=False), *zip(x.stride(), stride, strict=False)]
    return x.dim() == len(size) and all(statically_known_true(a == b) for a, b in pairs)


@lower(aten.as_strided.default)
def as_strided(
    c: Context, x: ir.Value, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> ir.Value:
    """Returns a strided window of the memory of x.

    The dimensions of x are first permuted into the order in which PyTorch stores them. UnsupportedError if the
    window leaves x, or if x has gaps and is not the window itself.
    """
    assert c.node is not None
    source = c.node.args[0]
    assert isinstance(source, torch.fx.Node)
    fake = source.meta["val"]
    offset = 0 if storage_offset is None else storage_offset - first_element(source)
    if statically_known_true(offset == 0) and _is_layout(fake, size, stride):
        return x
    if _leaves(fake.numel(), size, stride, offset):
        raise UnsupportedError("as_strided of memory around its tensor")
    if not fake.is_contiguous():
        order = sorted(range(fake.dim()), key=lambda d: (-_hint(fake.stride(d)), d))
        if not fake.permute(order).is_contiguous():
            raise UnsupportedError(f"as_strided of a tensor with strides {tuple(fake.stride())}")
        x = c.builder.permute(x, order)
    return c.builder.as_strided(x, c.shape(size), c.shape(stride), c.size(offset))


def _leaves(count: Any, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> bool:
    """Returns whether some element of a window lies outside `count` elements of memory. False if symbols decide."""
    if not all(isinstance(x, int) for x in (count, offset, *sizes, *strides)) or 0 in sizes:
        return False
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    return bool(offset < 0 or last >= count)


def _hint(x: Any) -> int:
    return x if isinstance(x, int) else int(x.node.hint)


@lower(aten.unfold.default)
def unfold(c: Context, x: ir.Value, dim: int, size: int, step: int) -> ir.Value:
    """Returns the windows of `size` elements every `step` elements as a new last dimension. They overlap, so they are
    copied."""
    dim %= max(len(x.sizes), 1)
    nest = c.nest(c.val.shape)
    at: list[Any] = nest.i[:-1]
    if x.sizes:
        at = [i * c.size(step) + nest.i[-1] if d == dim else i for d, i in enumerate(at)]
    return nest.store((nest.load(x, at), x.dtype))[0]


@lower(aten.cat.default)
def cat(c: Context, xs: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    """Concatenates `xs`. Pieces of shape [0] are ignored, as in PyTorch. A piece that is repeated becomes a view."""
    rank = c.val.dim()
    dim %= rank
    kept = [x for x in xs if not (len(x.sizes) == 1 and rank > 1)]
    kept = [x for x in kept if not x.sizes[dim].is_const(0)] or kept[:1]
    first = c.cast(kept[0], c.dtype)
    if len(kept) == 1:
        return first
    if all(x is kept[0] for x in kept):
        return c.builder.reshape(_repeated(c, first, dim, len(kept)), c.sizes)
    return _joined(c, [first, *(c.cast(x, c.dtype) for x in kept[1:])], dim)


# Most parts of small integers that one loop nest joins, as many as an int32 has of four bits.
MOST_UNPACKED = 8


def _joined(c: Context, xs: Sequence[ir.Value], dim: int) -> ir.Value:
    """Returns the concatenation of the values along `dim`.

    If shifts and masks made all values, such as the two int4 of a byte, or if the values are the swapped halves of a tensor, one loop
    nest computes the result, and fuses into the nodes that read it. Otherwise the values are stored one by one.
    """
    whole = xs[0].sizes
    assert c.node is not None
    parts = c.node.args[0]
    unpacked = isinstance(parts, (list, tuple)) and all(isinstance(n, torch.fx.Node) and _takes_bits(n) for n in parts)
    alike = all(x.sizes == whole for x in xs) and whole[dim].is_const()
    if not ((unpacked or _is_rotation(c.node)) and alike and 1 < len(xs) <= MOST_UNPACKED):
        return c.builder.concat(list(xs), dim)
    nest = c.nest([*whole[:dim], whole[dim] * len(xs), *whole[dim + 1 :]])
    part, place = nest.i[dim] // whole[dim], nest.i[dim] % whole[dim]
    at = [*nest.i[:dim], place, *nest.i[dim + 1 :]]
    loaded = [nest.load(x, at) for x in xs]
    value, which = loaded[-1], nest.index(part)
    for k in range(len(xs) - 2, -1, -1):
        value = t.where(which.eq(k), loaded[k], value)
    return nest.store((value, c.dtype))[0]


def _is_rotation(cat: torch.fx.Node) -> bool:
    """Returns whether the node swaps the halves of a tensor and negates one, and only products read it: rotary embeddings."""
    parts = [n.all_input_nodes[0] if n.target is aten.neg.default else n for n in cat.all_input_nodes]
    return (
        len(parts) == 2
        and all(n.target is aten.slice.Tensor for n in parts)
        and parts[0].args[0] is parts[1].args[0]
        and all(user.target is aten.mul.Tensor for user in cat.users)
    )


def _takes_bits(node: torch.fx.Node, depth: int = 4) -> bool:
    """Returns whether a mask or a shift made the node's value, and at most `depth` - 1 ops after it."""
    name = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
    if name in ("bitwise_and", "bitwise_right_shift", "__rshift__", "__and__"):
        return True
    sources = node.all_input_nodes
    return depth > 1 and len(sources) == 1 and _takes_bits(sources[0], depth - 1)


def _repeated(c: Context, x: ir.Value, dim: int, times: int) -> ir.Value:
    """Returns x repeated `times` times along a new dimension before `dim`."""
    sizes = list(x.sizes)
    return c.builder.expand(c.builder.unsqueeze(x, dim), [*sizes[:dim], ir.IndexExpr(times), *sizes[dim:]])


@lower("aten.stack.default")
def stack(c: Context, xs: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    dim %= c.val.dim()
    return _joined(c, [c.builder.unsqueeze(c.cast(x, c.dtype), dim) for x in xs], dim)


@lower(aten.repeat.default)
def repeat(c: Context, x: ir.Value, repeats: Sequence[Any]) -> ir.Value:
    """Returns x repeated. Each dimension n gets a dimension r of stride 0 before it, and [r, n] is reshaped to r * n."""
    b = c.builder
    lead = len(repeats) - len(x.sizes)
    sizes = [ir.IndexExpr(1)] * lead + list(x.sizes)
    x = b.reshape(x, [s for n in sizes for s in (ir.IndexExpr(1), n)])
    x = b.expand(x, [s for r, n in zip(repeats, sizes, strict=True) for s in (c.size(r), n)])
    return b.reshape(x, c.sizes)


@lower(aten.constant_pad_nd.default)
def constant_pad_nd(c: Context, x: ir.Value, pad: Sequence[Any], value: Any = 0) -> ir.Value:
    """Pads with a constant. `pad` lists (before, after) from the last dimension on; negative numbers crop."""
    nest = c.nest(c.val.shape)
    rank = len(x.sizes)
    before = [pad[2 * (rank - 1 - d)] if rank - 1 - d < len(pad) // 2 else 0 for d in range(rank)]
    at = [i - c.size(p) for i, p in zip(nest.i, before, strict=True)]
    mask: t.Term | None = None
    for d in range(rank):
        if rank - 1 - d < len(pad) // 2:
            inside = nest.inside(at[d], x.sizes[d])
            mask = inside if mask is None else mask & inside
    if mask is None:
        return x
    return nest.store((t.where(mask, nest.load(x, at, mask), value), c.dtype))[0]


@lower(aten.copy.default)
def copy(c: Context, target: ir.Value, source: ir.Value, non_blocking: bool = False) -> ir.Value:
    return c.builder.expand(c.cast(source, c.dtype), c.sizes)


@lower(aten.select_scatter.default)
def select_scatter(c: Context, x: ir.Value, source: ir.Value, dim: int, index: Any) -> ir.Value:
    dim %= len(x.sizes)
    return _replace(c, x, c.builder.unsqueeze(source, dim), dim, _wrapped(c, index, x.sizes[dim]), ir.IndexExpr(1))


@lower(aten.slice_scatter.default)
def slice_scatter(
    c: Context, x: ir.Value, source: ir.Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> ir.Value:
    dim %= len(x.sizes)
    begin = c.size(0) if start is None else _clamped(c, start, x.sizes[dim])
    return _replace(c, x, source, dim, begin, c.size(step))


def _replace(c: Context, x: ir.Value, source: ir.Value, dim: int, start: ir.IndexExpr, step: ir.IndexExpr) -> ir.Value:
    """Returns x with `source` at the positions start, start + step, ... of `dim`."""
    length = source.sizes[dim]
    if c.in_place:
        return _store(c, x, c.builder.slice(x, dim, start, start + length * step, step), source)
    nest = c.nest(c.val.shape)
    distance = nest.i[dim] - start
    where = ir.floordiv(distance, step)
    mask = nest.inside(where, length)
    if not step.is_const(1):
        mask = mask & nest.index(ir.mod(distance, step)).eq(0)
    inner = nest.load(source, [where if d == dim else i for d, i in enumerate(nest.i)], mask)
    outer = nest.load(x, nest.i)
    return nest.store((t.where(mask, inner.cast(outer.dtype), outer), c.dtype))[0]


def _store(c: Context, x: ir.Value, window: ir.Value, source: ir.Value) -> ir.Value:
    """Stores `source` into `window`, a view of x, and returns x."""
    source = c.builder.expand(c.cast(source, x.dtype), window.sizes)
    is_there = source.kind == ir.ValueKind.kView and source.buffer == x.buffer and source.coords == window.coords
    if not is_there:
        c.builder.copy_into(window, source)
    return x


@lower(aten.diagonal_scatter.default)
def diagonal_scatter(
    c: Context, x: ir.Value, source: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    rank = len(x.sizes)
    dim1, dim2 = dim1 % rank, dim2 % rank
    if c.in_place:
        return _store(c, x, c.builder.diagonal(x, offset, dim1, dim2), source)
    nest = c.nest(c.val.shape)
    along = nest.i[dim1] if offset >= 0 else nest.i[dim1] + c.size(offset)
    mask = nest.index(nest.i[dim2] - nest.i[dim1]).eq(offset)
    rest = [i for d, i in enumerate(nest.i) if d not in (dim1, dim2)]
    inner, outer = nest.load(source, [*rest, along], mask), nest.load(x, nest.i)
    return nest.store((t.where(mask, inner.cast(outer.dtype), outer), c.dtype))[0]
