# torch_ocl_compile/decompositions/result_layouts.py: makes decompositions return the strides of eager results.
"""Inside a graph the scheduler chooses layouts. The results of graphs and of eager ops must have the strides that the
op gives on the CPU."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from torch_ocl_compile.fx.overloads import overload

aten = torch.ops.aten
# A layout takes a result and the op's first tensor, and returns the result with the right strides.
Layout = Callable[[Tensor, Tensor], Tensor]


def plain(result: Tensor, x: Tensor) -> Tensor:
    return result.contiguous()


def in_format(result: Tensor, x: Tensor) -> Tensor:
    """Returns the result channels-last if x is channels-last, else contiguous."""
    return result.contiguous(memory_format=suggest_memory_format(x))


def like_first(result: Tensor, x: Tensor) -> Tensor:
    """Returns the result with the strides that torch.empty_like(x) gives."""
    made: Tensor = aten.copy(torch.empty_like(x), result)
    return made


def in_place_of_first(result: Tensor, x: Tensor) -> Tensor:
    """Returns the result with the strides of x, gaps and the memory in front of it included."""
    made: Tensor = aten.copy(x, result)
    return made


def by_columns(result: Tensor, x: Tensor) -> Tensor:
    """Returns the result with column-major matrices, as LAPACK leaves them."""
    return result.mT.contiguous().mT if result.dim() > 1 else result


# The layout of each result of an op, in order. None keeps the strides that the decomposition gives.
_BY_COLUMNS = (
    "_cholesky_solve_helper _linalg_svd cholesky_inverse cholesky_solve geqrf linalg_cholesky_ex linalg_inv_ex linalg_ldl_factor_ex "
    "linalg_ldl_solve linalg_lu_factor_ex linalg_solve_triangular"
)
_KEEPS_FORMAT = (
    "channel_shuffle max_unpool2d native_channel_shuffle pixel_shuffle pixel_unshuffle _upsample_bicubic2d_aa "
    "_upsample_bilinear2d_aa"
)
LAYOUTS: dict[str, tuple[Layout | None, ...]] = {
    **{f"aten.{name}.default": (by_columns,) for name in _BY_COLUMNS.split()},
    **{f"aten.{name}.default": (in_format,) for name in _KEEPS_FORMAT.split()},
    "aten._linalg_eigh.default": (None, by_columns),
    "aten._linalg_solve_ex.default": (by_columns, by_columns),
    "aten.as_strided_copy.default": (plain,),
    "aten.as_strided_scatter.default": (in_place_of_first,),
    "aten.float_power.Scalar": (plain,),
    "aten.index_fill.int_Scalar": (like_first,),
    "aten.index_fill.int_Tensor": (like_first,),
    "aten.linalg_qr.default": (by_columns, by_columns),
    "aten.put.default": (like_first,),
    "aten.rrelu_with_noise_functional.default": (plain, plain),
    "aten.upsample_nearest1d.default": (plain,),
    "aten._upsample_nearest_exact1d.default": (plain,),
    "aten.view_copy.default": (plain,),
}

# Ops that are not decomposed. On the CPU their results are contiguous, or channels-last where the first tensor is.
# Traced results would keep other orders of dimensions too.
IN_FORMAT = (
    "aten._batch_norm_no_update.default",
    "aten._batch_norm_with_update_functional.default",
    "aten._native_batch_norm_legit.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten.nll_loss2d_forward.default",
)

# New tensors like another one. The decompositions keep the format of its strides, but not the strides of dimensions of one
# element.
LIKE = (
    "aten.full_like.default",
    "aten.ones_like.default",
    "aten.rand_like.default",
    "aten.randint_like.default",
    "aten.randint_like.low_dtype",
    "aten.randn_like.default",
    "aten.zeros_like.default",
)

# Elementwise ops. On the CPU all operands together decide the strides; the decompositions give other strides.
POINTWISE = (
    "aten.heaviside.default",
    "aten.logaddexp2.default",
    "aten.logit_backward.default",
    "aten.special_xlog1py.default",
    "aten.xlogy.Tensor",
)

# Ops that are not decomposed and that read their last operand in row-major order.
OF_CONTIGUOUS_LAST = ("aten.log_sigmoid_forward.default", "aten.pow.Scalar")


def with_eager_strides(table: dict[Any, Callable[..., Any]]) -> None:
    """Wraps the ops of `table`, and ops that are not decomposed, so that their results have the strides of eager
    results."""
    for name, layouts in LAYOUTS.items():
        target = overload(name)
        if target in table:
            table[target] = _laid_out(table[target], layouts)
    for group, wrapped in ((POINTWISE, _as_operands), (LIKE, _like)):
        for name in group:
            target = overload(name)
            if target in table:
                table[target] = wrapped(table[target])
    for names, rule in ((IN_FORMAT, _of_contiguous), (OF_CONTIGUOUS_LAST, _of_contiguous_last)):
        for name in names:
            target = overload(name)
            if target is not None and target not in table:
                table[target] = functools.partial(rule, target)
    table[aten.ldexp.Tensor] = _ldexp


def elementwise_strides(*operands: Tensor) -> tuple[int, ...]:
    """Returns the strides of the result of an elementwise op on these operands."""
    return tuple(compute_elementwise_output_strides(*torch.broadcast_tensors(*operands)))


def _with_strides(made: Tensor, strides: tuple[int, ...]) -> Any:
    if made.stride() == strides:
        return made
    return aten.copy(torch.empty_strided(made.shape, strides, dtype=made.dtype, device=made.device), made)


def _as_operands(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = decomposition(*args, **kwargs)
        operands = [x for x in args if isinstance(x, Tensor)]
        if made is NotImplemented or all(x.is_contiguous() for x in operands):
            return made
        return _with_strides(made, elementwise_strides(*operands))

    return run


def _like(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def run(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        made = decomposition(x, *args, **kwargs)
        kept = kwargs.get("memory_format") in (None, torch.preserve_format)
        if made is NotImplemented or not kept or x.is_contiguous():
            return made
        return _with_strides(made, torch.empty_like(x).stride())

    return run


def _of_contiguous_last(target: Callable[..., Any], *args: Any) -> Any:
    *others, x = args
    return NotImplemented if x.is_contiguous() else target(*others, x.contiguous())


def _ldexp(x: Tensor, exponent: Tensor) -> Any:
    if not _ldexp_is_row_major(x.dtype, exponent.dtype):
        return NotImplemented
    return _of_contiguous_last(aten.ldexp.Tensor, x, exponent)


@functools.cache
def _ldexp_is_row_major(x: torch.dtype, exponent: torch.dtype) -> bool:
    """Returns whether ldexp on the CPU reads the exponents in row-major order. This depends on the dtypes and on the
    version of torch, so it is tried out."""
    with _disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.ldexp(torch.ones(2, 1, dtype=x), torch.ones(2, 2, dtype=exponent).t())
    return result.stride() == (2, 1)


def _of_contiguous(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs the op on row-major copies of its operands if any is neither contiguous nor channels-last."""

    def is_other(x: Any) -> bool:
        return isinstance(x, Tensor) and not x.is_contiguous() and suggest_memory_format(x) == torch.contiguous_format

    if not any(map(is_other, args)):
        return NotImplemented
    return target(*(x.contiguous() if is_other(x) else x for x in args), **kwargs)


def _laid_out(decomposition: Callable[..., Any], layouts: Sequence[Layout | None]) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = decomposition(*args, **kwargs)
        if made is NotImplemented:
            return made
        x = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        results = [
            layout(result, x) if layout is not None and isinstance(result, Tensor) else result
            for result, layout in zip_longest(made if isinstance(made, tuple) else (made,), layouts)
        ]
        return tuple(results) if isinstance(made, tuple) else results[0]

    return run
