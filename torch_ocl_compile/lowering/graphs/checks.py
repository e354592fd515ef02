# torch_ocl_compile/lowering/graphs/checks.py: finds argument errors that PyTorch raises in its kernels but not while tracing.
"""Most shape and dtype errors are raised while tracing, with PyTorch's own messages.

A few ops check their arguments in their kernels only. A graph with such arguments is not compiled: it runs eagerly,
and so raises what eager PyTorch raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl_compile.fx.overloads import overload

aten = torch.ops.aten
Tensor = torch.Tensor
Check = Callable[..., "bool | torch.SymBool"]


class BadArguments(Exception):
    """Means that eager PyTorch raises an error for the arguments of `node`."""

    def __init__(self, node: torch.fx.Node) -> None:
        super().__init__(f"{node.target} refuses its arguments")
        self.node = node


CHECKS: dict[Any, Check] = {}


def check(*names: str) -> Callable[[Check], Check]:
    """Registers a function that returns True if eager PyTorch would refuse the arguments. Tensors are passed as fakes."""

    def register(function: Check) -> Check:
        CHECKS.update({found: function for name in names if (found := overload(name)) is not None})
        return function

    return register


def refuse_bad_arguments(node: torch.fx.Node) -> None:
    """Raises BadArguments if eager PyTorch would raise an error for the arguments of the node."""
    wrong = CHECKS.get(node.target)
    if wrong is None:
        return
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    if statically_known_true(wrong(*args, **kwargs)):
        raise BadArguments(node)


@check("aten._softmax.default", "aten._log_softmax.default")
def softmax(x: Tensor, dim: int, *_: Any) -> bool:
    rank = max(x.dim(), 1)
    return not -rank <= dim < rank or not x.dtype.is_floating_point


@check("aten.embedding.default")
def embedding(weight: Tensor, indices: Tensor, *_: Any) -> bool:
    return weight.dim() != 2 or indices.dtype not in (torch.int32, torch.int64) or _into_nothing(weight, 0, indices)


@check("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(x: Tensor, target: Tensor, *_: Any) -> bool:
    return _into_nothing(x, 1 if x.dim() > 1 else 0, target)


@check("aten.sort.default", "aten.sort.stable", "aten.argsort.default", "aten.argsort.stable")
def sort(x: Tensor, dim: int = -1, *_: Any, **settings: Any) -> bool:
    rank = max(x.dim(), 1)
    return not -rank <= settings.get("dim", dim) < rank


@check("aten.index.Tensor")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> bool:
    """Returns whether a dimension without elements has indices. Masks have as many as they have true elements."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        return False
    found = torch.broadcast_shapes(*(i.shape for _, i in given))
    return any(statically_known_true(x.shape[d] == 0) for d, _ in given) and not _has_zero(found)


@check("aten.index_put.default")
def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> bool:
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return False
    if index(x, indices):
        return True
    target = aten.index.Tensor(x, indices).shape
    pairs = zip(reversed(values.shape), reversed(target), strict=False)
    fits = all(not statically_known_true(a != b) or statically_known_true(a == 1) for a, b in pairs)
    return x.dtype != values.dtype or not fits


@check("aten.index_select.default")
def index_select(x: Tensor, dim: int, index: Tensor) -> bool:
    return index.dim() > 1 or index.dtype not in (torch.int32, torch.int64) or _into_nothing(x, dim, index)


@check(
    *(
        "aten.gather.default",
        "aten.scatter.src",
        "aten.scatter.value",
        "aten.scatter.reduce",
        "aten.scatter.value_reduce",
    ),
    *("aten.scatter_add.default", "aten.scatter_reduce.two", "aten.index_copy.default"),
)
def along_dim(x: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> bool:
    return _into_nothing(x, dim, index)


@check("aten.put.default")
def put(x: Tensor, index: Tensor, *_: Any) -> bool:
    return _has_zero(x.shape) and not _has_zero(index.shape)


@check("aten.select_scatter.default")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: Any) -> Any:
    size = x.shape[dim]
    dim %= x.dim()
    return _other(source.shape, (*x.shape[:dim], *x.shape[dim + 1 :])) or index >= size or index < -size


@check("aten.slice_scatter.default")
def slice_scatter(x: Tensor, source: Tensor, *window: Any) -> bool:
    return _other(source.shape, aten.slice.Tensor(x, *window).shape)


@check("aten.mm.default", "aten.bmm.default")
def contract(a: Tensor, b: Tensor, *_: Any) -> bool:
    return a.dtype != b.dtype


@check("aten.addmm.default", "aten.baddbmm.default")
def contract_and_add(x: Tensor, a: Tensor, b: Tensor, **_: Any) -> bool:
    return a.dtype != b.dtype or x.dtype != a.dtype


@check("aten.convolution.default")
def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> bool:
    limit = max((*stride, *dilation))
    return x.dtype != w.dtype or (transposed and any(p >= limit for p in output_padding))


@check("aten.max.default", "aten.min.default", "aten.argmax.default", "aten.argmin.default")
def extreme(x: Tensor, dim: int | None = None, *_: Any) -> Any:
    return dim is None and x.numel() == 0


@check("aten.max.dim", "aten.min.dim")
def extreme_along(x: Tensor, dim: int, *_: Any) -> bool:
    return x.dim() > 0 and statically_known_true(x.shape[dim] == 0)


@check("aten.pow.Tensor_Scalar")
def power(x: Tensor, exponent: Any) -> bool:
    integer = not x.dtype.is_floating_point and not x.dtype.is_complex and x.dtype is not torch.bool
    return integer and isinstance(exponent, int) and exponent < 0


@check("aten._scaled_dot_product_fused_attention_overrideable.default")
def attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> bool:
    sizes = _other((query.shape[-1], key.shape[-2]), (key.shape[-1], value.shape[-2]))
    return sizes or len({query.dtype, key.dtype, value.dtype}) > 1


@check("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(x: Any, edges: Tensor, **_: Any) -> bool:
    return edges.dim() != 1


@check("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_average(x: Tensor, size: Sequence[int]) -> bool:
    return any(statically_known_true(n == 0) for n in x.shape[-len(size) :])


@check("aten.native_dropout.default")
def dropout(x: Tensor, p: float, train: bool | None) -> bool:
    return not 0 <= p <= 1


def _into_nothing(x: Tensor, dim: int, index: Tensor) -> bool:
    """Returns whether a dimension without elements has indices."""
    return x.dim() > 0 and statically_known_true(x.shape[dim] == 0) and not _has_zero(index.shape)


def _has_zero(shape: Sequence[Any]) -> bool:
    return any(statically_known_true(size == 0) for size in shape)


def _other(have: Sequence[Any], want: Sequence[Any]) -> bool:
    return len(have) != len(want) or any(statically_known_true(a != b) for a, b in zip(have, want, strict=True))
