# torch_ocl_compile/device/fake_rules.py: what traced ops give on the device, where torch's own rule for private devices is not ours.
"""torch takes the convolutions of every private device to give contiguous results. Ours keep channels-last: the results have
the layout that they have on the CPU, and no kernel scatters its stores. Attention has the strides that it has there too. Its
gradients have no rule in every torch: without one, the op would run, on zeros, whenever it is traced. A batch norm in
evaluation saves no statistics, as on the CPU. Some ops that go element by element have decompositions for rules, which give the
strides of the last step."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from torch_ocl_compile.decompositions.result_layouts import elementwise_strides

aten = torch.ops.aten
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
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
)
ATTENTION = (aten._scaled_dot_product_fused_attention_overrideable.default,)
ATTENTION_BACKWARD = (aten._scaled_dot_product_fused_attention_overrideable_backward.default,)


def register(fake_impls: ModuleType) -> None:
    """`fake_impls`: torch._subclasses.fake_impls, whose rules are asked in order until one answers."""
    batch_norms_save_nothing_in_evaluation()
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
        """The CPU's fast path gives the queries' strides; the other one multiplies matrices."""
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
    """Fake tensors take the decompositions of these ops before any rule, and those give every device but the CPU statistics."""
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


def by_name(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}


def in_layout_of(result: torch.Tensor | None, *operands: torch.Tensor) -> torch.Tensor | None:
    """Channels-last if an operand is, as torch tells it from strides. On the CPU, a line is an image of one row."""
    if result is not None and result.dim() == 3:
        x, *weights = operands
        image = in_layout_of(result.unsqueeze(2), x.contiguous().unsqueeze(2), *(w.unsqueeze(2) for w in weights))
        return None if image is None else image.squeeze(2)
    for operand in operands:
        layout = suggest_memory_format(operand)
        if result is not None and layout != torch.contiguous_format:
            return result.to(memory_format=layout)
    return result
