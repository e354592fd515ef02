# torch_ocl_compile/decompositions/table.py: which aten ops are decomposed before lowering, and which are kept whole.
"""The table starts as a copy of Inductor's. An op that one kernel computes is kept whole: that halves the number of
graph nodes, and no pattern has to be recognised again later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import statically_known_true

import torch_ocl_compile.fx.ops  # noqa: F401  (it defines torch.ops.ocl)
from torch_ocl_compile.decompositions.registry import DECOMPOSITIONS, decompose
from torch_ocl_compile.decompositions.result_layouts import with_eager_strides

# isort: off
from torch_ocl_compile.decompositions import (  # noqa: F401  (they register decompositions)
    chunked_loss, composite, ctc, draws, fake_quantize, fractional, histogram, jagged, ldl, least_squares, linalg, matrix_exp, nn,
    random, resampling, segments, spectral,
)  # fmt: skip
# isort: on

aten = torch.ops.aten
prims = torch.ops.prims

# Every overload of these ops is kept whole.
_WHOLE = (
    "_native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training "
    "native_batch_norm_backward _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
    "_safe_softmax im2col col2im nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward gelu "
    "gelu_backward silu silu_backward hardtanh hardtanh_backward leaky_relu leaky_relu_backward threshold "
    "threshold_backward elu elu_backward hardswish hardswish_backward hardsigmoid hardsigmoid_backward softplus "
    "softplus_backward mish mish_backward sigmoid_backward tanh_backward log_sigmoid_forward log_sigmoid_backward "
    "_prelu_kernel _prelu_kernel_backward native_dropout_backward addmm mm bmm baddbmm clamp nan_to_num "
    "linalg_vector_norm index_select embedding_dense_backward index_reduce var std std_mean cat masked_scatter "
    "lerp _foreach_lerp fmax fmin frac logaddexp special_log_ndtr"
)
WHOLE = [
    *_WHOLE.split(),
    *(f"avg_pool{d}d{b}" for d in (2, 3) for b in ("", "_backward")),
    *(f"_adaptive_avg_pool{d}d{b}" for d in (2, 3) for b in ("", "_backward")),
    *(f"adaptive_max_pool{d}d{b}" for d in (2, 3) for b in ("", "_backward")),
    *(f"{kind}_pad{d}d{b}" for kind in ("reflection", "replication") for d in (1, 2, 3) for b in ("", "_backward")),
]

# Overloads of the ops above that are decomposed nevertheless: the lowering handles the overload with `correction` only.
STILL_DECOMPOSED = {
    *("aten.std_mean.correction", "aten.std_mean.dim", "aten.std_mean.default", "aten.var.default", "aten.var.dim"),
    *("aten.std.default", "aten.std.dim", "aten.clamp.Tensor"),
}

# Every overload of these ops is kept whole where there are complex numbers among its arguments.
WHOLE_IF_COMPLEX = ("add", "angle", "conj_physical", "sgn", "sinc")

# Ops that Inductor lowers itself, some for certain types only; here PyTorch's own decompositions are used.
PYTORCH_DECOMPOSITIONS = ("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "index_add")

# The largest number of elements of a pooling window whose positions fit in the int8 that low-memory pooling keeps.
MAX_WINDOW = 127


@decompose(aten.convolution_backward.default)
def split_bias_grad(grad: Any, x: Any, w: Any, bias_sizes: Any, *rest: Any) -> Any:
    """Returns the gradients of a convolution. The gradient of the bias is computed as a sum, which fuses with its
    neighbours.

    The convolution kernels compute the other two gradients.
    """
    *settings, mask = rest
    if not mask[2]:
        return NotImplemented
    # For an input without channels, PyTorch's convolution gives an output without channels, whatever the filter is.
    is_empty = statically_known_true(x.shape[1] == 0)
    gb = grad.new_zeros(bias_sizes) if is_empty else aten.sum(grad, [0, *range(2, grad.dim())])
    gx, gw, _ = aten.convolution_backward(grad, x, w, bias_sizes, *settings, [mask[0], mask[1], False])
    return gx, gw, gb


def _pool_by_offsets(spatial: int) -> Callable[..., Any]:
    def max_pool_with_indices(
        x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        """Computes max pooling. It keeps the position within the window as int8; the int64 index is recomputed where it
        is used.
        """

        def each(v: Any) -> list[int]:
            listed = [v] if isinstance(v, int) else list(v)
            return listed * spatial if len(listed) == 1 else listed

        kernel, padding, dilation = each(kernel_size), each(padding), each(dilation)
        stride = each(stride) if stride else kernel
        if math.prod(kernel) > MAX_WINDOW or not x.dtype.is_floating_point:
            return NotImplemented
        out, offsets = prims._low_memory_max_pool_with_offsets(x, kernel, stride, padding, dilation, ceil_mode)
        plane = x.shape[-spatial:]
        indices = prims._low_memory_max_pool_offsets_to_indices(offsets, kernel, plane, stride, padding, dilation)
        return out, indices

    return max_pool_with_indices


decompose(aten.max_pool2d_with_indices.default)(_pool_by_offsets(2))
decompose(aten.max_pool3d_with_indices.default)(_pool_by_offsets(3))


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Callable[..., Any]] = dict(select_decomp_table())
    for target in list(table):
        is_whole = isinstance(target, OpOverload) and target.namespace == "aten" and target._opname in WHOLE
        if is_whole and str(target) not in STILL_DECOMPOSED:
            del table[target]
    for pool in (aten.max_pool2d_with_indices_backward, aten.max_pool3d_with_indices_backward):
        table.pop(pool.default, None)
    for name in PYTORCH_DECOMPOSITIONS:
        target = getattr(aten, name).default
        table[target] = torch._decomp.decomposition_table[target]
    table.update(DECOMPOSITIONS)
    with_eager_strides(table)
    for target, decomposition in table.items():
        if isinstance(target, OpOverload) and target.namespace == "aten" and target._opname in WHOLE_IF_COMPLEX:
            table[target] = _unless_complex(decomposition)
    return table


def _unless_complex(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(decomposition)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(a, complex) or (isinstance(a, torch.Tensor) and a.is_complex()) for a in args):
            return NotImplemented
        return decomposition(*args, **kwargs)

    return decomposed


class LateTable(Mapping[Any, Callable[..., Any]]):
    """The decomposition table as a mapping that is built when it is first read.

    Building takes about a second, and a graph from the cache does not need it.
    """

    def __getitem__(self, op: Any) -> Callable[..., Any]:
        return _table()[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(_table())

    def __len__(self) -> int:
        return len(_table())

    def __bool__(self) -> bool:
        return True


def ocl_decomp_table() -> dict[Any, Callable[..., Any]]:
    """Returns a fresh copy of the table, because AOTAutograd's callers may change it."""
    return dict(_table())
