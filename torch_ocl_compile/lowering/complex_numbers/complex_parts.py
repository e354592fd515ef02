# torch_ocl_compile/lowering/complex_numbers/complex_parts.py: ops that treat the real and the imaginary part alike, such as views and sums.
"""Such an op is applied to each part by its lowering for real numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.core.complex_value import Complex, is_complex, joined, real_dtype, split
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.core.registry import Lowering, find, lower_complex

# Overload: the positions of the arguments that have two parts. The parts of a real number there are the number and 0.
_FIRST = (
    "_reshape_alias.default _unsafe_index.Tensor _unsafe_view.default alias.default as_strided.default "
    "cat.default chunk.default clone.default col2im.default contiguous.default cumsum.default detach.default "
    "diagonal.default embedding.default embedding_dense_backward.default empty_like.default expand.default "
    "flip.default gather.default im2col.default index.Tensor index_select.default lift_fresh.default "
    "lift_fresh_copy.default masked_scatter_backward.default mean.default mean.dim permute.default "
    "reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default repeat.default "
    "replication_pad1d.default replication_pad2d.default replication_pad3d.default reshape.default "
    "resolve_conj.default resolve_neg.default scalar_tensor.default select.int slice.Tensor split.Tensor "
    "split_with_sizes.default squeeze.default squeeze.dim squeeze.dims stack.default sum.default sum.dim_IntList "
    "t.default transpose.int unbind.int unfold.default unsafe_split.Tensor unsqueeze.default view.default"
)
BY_PART: dict[str, tuple[int, ...]] = dict.fromkeys(_FIRST.split(), (0,))
BY_PART |= {
    "_unsafe_index_put.default": (0, 2),
    "as_strided_scatter.default": (0, 1),
    "constant_pad_nd.default": (0, 2),
    "copy.default": (0, 1),
    "diagonal_scatter.default": (0, 1),
    "fill.Scalar": (0, 1),
    "fill.Tensor": (0, 1),
    "full.default": (1,),
    "full_like.default": (0, 1),
    "index_put.default": (0, 2),
    "masked_scatter.default": (0, 2),
    "reflection_pad1d_backward.default": (0, 1),
    "reflection_pad2d_backward.default": (0, 1),
    "reflection_pad3d_backward.default": (0, 1),
    "replication_pad1d_backward.default": (0, 1),
    "replication_pad2d_backward.default": (0, 1),
    "replication_pad3d_backward.default": (0, 1),
    "scatter.src": (0, 3),
    "scatter.value": (0, 3),
    "scatter_add.default": (0, 3),
    "select_scatter.default": (0, 1),
    "slice_scatter.default": (0, 1),
}
PRIMS_BY_PART = ("prims.copy_strided.default", "prims.device_put.default", "prims.rev.default")
# Ops that create a tensor: the number, if any, is the real part.
_CREATED = (
    "_efficientzerotensor.default empty.memory_format empty_permuted.default empty_strided.default "
    "new_empty.default new_empty_strided.default new_ones.default new_zeros.default ones.default "
    "ones_like.default zeros.default zeros_like.default arange.default arange.start arange.start_step"
)


@contextmanager
def real_results(c: Context) -> Iterator[None]:
    """While it is entered, the node's result is a part of the complex result."""
    whole = c.val
    c.val = tree_map(_real, whole)
    try:
        yield
    finally:
        c.val = whole


def _real(fake: Any) -> Any:
    if not isinstance(fake, torch.Tensor) or not fake.dtype.is_complex:
        return fake
    mode = getattr(fake, "fake_mode", None)
    if mode is None:
        return torch.empty_strided(fake.shape, fake.stride(), dtype=real_dtype(fake.dtype), device="meta")
    with mode:
        return torch.empty_strided(fake.shape, fake.stride(), dtype=real_dtype(fake.dtype), device=fake.device)


def by_part(lowering: Lowering, data: tuple[int, ...]) -> Lowering:
    def both(c: Context, *args: Any, **kwargs: Any) -> Any:
        if not is_complex(c.val):  # Another dtype was asked for.
            if getattr(c.val, "dtype", None) is torch.bool:
                args = tuple(c.converted(x, torch.bool) if isinstance(x, Complex) else x for x in args)
            return lowering(c, *_part(c, args, data, 0), **kwargs)
        with real_results(c):
            made = [lowering(c, *_part(c, args, data, k), **kwargs) for k in (0, 1)]
        if any(part is NotImplemented for part in made):
            return NotImplemented
        if isinstance(made[0], (list, tuple)):
            return [Complex(*pair) for pair in zip(*made, strict=True)]
        return Complex(*made)

    return both


def _part(c: Context, args: tuple[Any, ...], data: tuple[int, ...], k: int) -> list[Any]:
    """Returns the arguments with part k (0 real, 1 imaginary) of those at the positions `data`."""

    def of(x: Any) -> Any:
        if isinstance(x, Complex):
            return x[k]
        if isinstance(x, (list, tuple)):
            return [of(item) for item in x]
        if isinstance(x, complex):
            return x.imag if k else x.real
        if k == 0 or x is None:
            return x
        return c.constant(0, x.dtype, x.sizes) if isinstance(x, ir.Value) else 0

    return [of(a) if i in data else a for i, a in enumerate(args)]


def _register() -> None:
    rows = {f"aten.{name}": data for name, data in BY_PART.items()} | dict.fromkeys(PRIMS_BY_PART, (0,))
    for name, data in rows.items():
        target = overload(name)
        lowering = find(target)
        if lowering is not None:
            lower_complex(name)(by_part(lowering, data))
    for name in _CREATED.split():
        lowering = find(overload(f"aten.{name}"))
        if lowering is not None:
            lower_complex(f"aten.{name}")(_created(lowering))


def _created(lowering: Lowering) -> Lowering:
    def create(c: Context, *args: Any, **kwargs: Any) -> Any:
        if not is_complex(c.val):
            return lowering(c, *args, **kwargs)
        with real_results(c):
            re = lowering(c, *args, **kwargs)
            return Complex(re, c.constant(0, c.dtype, c.sizes))

    return create


_register()


@lower_complex("aten.view_as_real.default")
def view_as_real(c: Context, x: Complex) -> ir.Value:
    whole = joined(c.builder, x)
    c.halves[whole.buffer] = (whole, x)
    return whole


@lower_complex("aten.view_as_complex.default")
def view_as_complex(c: Context, x: ir.Value) -> Complex:
    return c.halves_of(x) or split(c.builder, x)
