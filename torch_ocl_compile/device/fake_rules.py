# torch_ocl_compile/device/fake_rules.py: rules for results of traced ops, where torch's rules for private devices are wrong for ocl.
"""A rule computes the shape, type and strides of an op's results from those of its operands, without data (torch calls
it a fake or meta function). Where the rules for ocl differ:

- Convolutions: torch assumes contiguous results for every private device. On ocl, results have the layout that they
  have on the CPU, for example channels-last, so that no kernel has to scatter its stores.
- Attention: results have the strides that they have on the CPU. Its gradients have no rule in some versions of
  torch; without a rule, torch runs the op on zeros whenever it is traced.
- Batch norm in evaluation saves no statistics, as on the CPU.
- Some pointwise ops are traced by a decomposition, which gives the strides of its last
  step. On ocl, results have the strides that they have on the CPU.
- Scatter: before torch 2.13, torch's rule gives a result with overlapping elements if the tensor has overlapping
  elements. On ocl, the result has memory for each element.
- New tensors like another one, and `fill`: torch's rule gives dimensions of one element other strides than the eager op.
  A later op may then take the tensor for channels-last. On ocl, they have the strides of the other tensor.
- Histograms, least squares, the loss of CTC, and most numbers drawn by rejection have no rule in torch.
- Norms: in torch 2.11, torch's rule keeps dimensions of size 1 that are counted from the end. On ocl, they are removed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import _prims_common
from torch._prims_common import suggest_memory_format

from torch_ocl_compile.decompositions import ctc, draws, histogram, least_squares
from torch_ocl_compile.decompositions.registry import DECOMPOSITIONS
from torch_ocl_compile.decompositions.result_layouts import elementwise_strides

aten = torch.ops.aten
# Some versions of torch have the second name.
_DENSE = ("is_non_overlapping_and_dense_or_false", "is_non_overlapping_and_dense")
is_dense: Any = next(getattr(_prims_common, name) for name in _DENSE if hasattr(_prims_common, name))
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
BATCH_NORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
)
POINTWISE = (
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
    aten.logaddexp.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
)
LIKE = (
    aten.empty_like.default,
    aten.fill.Scalar,
    aten.fill.Tensor,
    aten.full_like.default,
    aten.ones_like.default,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.zeros_like.default,
)
SCATTERS = (aten.select_scatter.default, aten.slice_scatter.default, aten.diagonal_scatter.default)
ATTENTION = (aten._scaled_dot_product_fused_attention_overrideable.default,)
ATTENTION_BACKWARD = (aten._scaled_dot_product_fused_attention_overrideable_backward.default,)


def register(fake_impls: ModuleType) -> None:
    """Registers the rules. `fake_impls` is torch._subclasses.fake_impls, which asks its rules in order until one
    answers."""
    batch_norms_save_nothing_in_evaluation()
    for op in SCATTERS:
        traced_as(fake_impls, op, functools.partial(scatter, op))
    for op in LIKE:
        traced_as(fake_impls, op, functools.partial(like, op))
    traced = {module.__name__ for module in (ctc, draws, histogram, least_squares)}
    for op, formula in DECOMPOSITIONS.items():
        # The caller of _ctc_loss.default makes a tensor of its lengths, which has no data when it is traced.
        if formula.__module__ in traced and op is not aten._ctc_loss.default:
            traced_as(fake_impls, op, formula)
    traced_as(fake_impls, aten.linalg_vector_norm.default, vector_norm)
    traced_as(fake_impls, aten.ldexp.Tensor, ldexp)
    traced_as(fake_impls, aten.pow.Tensor_Scalar, power)
    rule = fake_impls.op_implementations_dict[aten.convolution.default]

    def convolution(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = by_name(func, args, kwargs)
        x, w = given["input"], given["weight"]
        if x.device.type != "ocl":
            return NotImplemented
        results = rule(mode, func, *args, **kwargs)
        with mode:
            if func is aten.convolution.default:
                return in_layout_of(results, x, w)
            gx, gw, gb = results
            return in_layout_of(gx, x, w), in_layout_of(gw, w), gb

    def attention(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Gives results the strides that they have on the CPU. The CPU's fast path keeps the strides of the queries; its
        other path multiplies matrices.
        """
        given = by_name(func, args, kwargs)
        operands = [given[name] for name in ("query", "key", "value")]
        is_fast = given.get("dropout_p", 0.0) == 0 and all(x.stride(-1) == 1 for x in operands)
        if is_fast or operands[0].is_contiguous():
            return NotImplemented
        with mode:
            return func(**{**given, "query": operands[0].contiguous()})

    def attention_backward(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = by_name(func, args, kwargs)
        operands = (given[name] for name in ("query", "key", "value", "attn_bias"))
        with mode:
            return tuple(None if x is None else torch.empty_like(x) for x in operands)

    def pointwise(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        operands = [x for x in args if isinstance(x, torch.Tensor)]
        if all(x.device.type != "ocl" or x.is_contiguous() for x in operands):
            return NotImplemented
        with mode:
            made = func(*(x.contiguous() if isinstance(x, torch.Tensor) else x for x in args), **kwargs)
            strides = elementwise_strides(*operands)
            return torch.empty_strided(made.shape, strides, dtype=made.dtype, device=made.device)

    fake_impls.op_implementations_checks.insert(0, (POINTWISE.__contains__, pointwise))
    fake_impls.op_implementations_checks.insert(0, (CONVOLUTIONS.__contains__, convolution))
    fake_impls.op_implementations_checks.insert(0, (ATTENTION.__contains__, attention))
    fake_impls.op_implementations_checks.insert(0, (ATTENTION_BACKWARD.__contains__, attention_backward))


def batch_norms_save_nothing_in_evaluation() -> None:
    """Keeps batch norm in evaluation from saving statistics on ocl. Fake tensors use the decompositions of these ops
    before any rule; the decompositions return statistics on every device but the CPU.
    """
    from torch._decomp import decomposition_table

    def wrapped(op: Any, original: Any) -> Any:
        @functools.wraps(original)
        def decomposition(*args: Any, **kwargs: Any) -> Any:
            given, results = by_name(op, args, kwargs), original(*args, **kwargs)
            if given["input"].device.type != "ocl" or given.get("training"):
                return results
            y, mean, invstd, *running = results
            return (y, mean.new_empty((0,)), invstd.new_empty((0,)), *running)

        return decomposition

    for op in BATCH_NORMS:
        decomposition_table[op] = wrapped(op, decomposition_table[op])


def traced_as(fake_impls: ModuleType, op: Any, formula: Callable[..., Any]) -> None:
    """Makes `op` on the device be traced as `formula`, unless that returns NotImplemented. If a size is symbolic, torch
    traces an op by its decomposition before it asks any rule, so the decomposition is replaced too.
    """
    from torch._decomp import decomposition_table

    def rule(mode: Any, func: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return formula(x, *args, **kwargs) if x.device.type == "ocl" else NotImplemented

    fake_impls.op_implementations_checks.insert(0, ({op}.__contains__, rule))
    original = decomposition_table.get(op)
    if original is None:
        return

    @functools.wraps(original)
    def decomposition(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        made = formula(x, *args, **kwargs) if x.device.type == "ocl" else NotImplemented
        return original(x, *args, **kwargs) if made is NotImplemented else made

    decomposition_table[op] = decomposition


def scatter(op: Any, x: torch.Tensor, *others: Any) -> Any:
    """Scatters into a copy of x, as the eager op does. The copy's strides differ from the strides of x if elements of x
    share memory by a stride of 0.
    """
    return op(x.clone(), *others) if torch._debug_has_internal_overlap(x) == 1 else NotImplemented


def like(op: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Makes the new tensor with the strides of x, if x is dense and not contiguous and some of its dimensions have one
    element."""
    # Imports sympy, which a process that only runs stored plans does not need.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

    # Whether sizes that data decide give a dense tensor is not known.
    if kwargs.get("memory_format") not in (None, torch.preserve_format) or free_unbacked_symbols(x):
        return NotImplemented
    single = any(statically_known_true(n == 1) for n in x.shape)
    if not single or x.is_contiguous() or not is_dense(x):
        return NotImplemented
    made = op(x.contiguous(), *args, **kwargs)
    return aten.copy(torch.empty_strided(x.shape, x.stride(), dtype=made.dtype, device=made.device), made)


def vector_norm(x: torch.Tensor, ord: Any = 2, dim: Any = None, *others: Any, **kwargs: Any) -> Any:
    """Computes the norm with dimensions that are counted from the front."""
    dims = [dim] if isinstance(dim, int) else dim
    if not dims or not all(-x.dim() <= d for d in dims) or all(d >= 0 for d in dims):
        return NotImplemented
    return aten.linalg_vector_norm.default(x, ord, [d % x.dim() for d in dims], *others, **kwargs)


def ldexp(x: torch.Tensor, exponent: torch.Tensor) -> Any:
    """Computes x * 2 ** exponent. 2 ** exponent has the exponent's type, if that is floating point."""
    return x * torch.pow(2.0, exponent) if exponent.is_floating_point() else NotImplemented


def power(x: torch.Tensor, exponent: Any) -> Any:
    """Computes bool to the power of bool as bool. torch traces it as int64."""
    return x | (not exponent) if x.dtype is torch.bool and isinstance(exponent, bool) else NotImplemented


def by_name(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}


def in_layout_of(result: torch.Tensor | None, *operands: torch.Tensor) -> torch.Tensor | None:
    """Returns `result` in channels-last layout if an operand has that layout, otherwise unchanged. torch's own rule
    (suggest_memory_format) decides from an operand's strides. On the CPU, a 1-D convolution treats a line as an image
    with one row."""
    if result is not None and result.dim() == 3:
        x, *weights = operands
        image = in_layout_of(result.unsqueeze(2), x.contiguous().unsqueeze(2), *(w.unsqueeze(2) for w in weights))
        return None if image is None else image.squeeze(2)
    for operand in operands:
        layout = suggest_memory_format(operand)
        if result is not None and layout != torch.contiguous_format:
            return result.to(memory_format=layout)
    return result
