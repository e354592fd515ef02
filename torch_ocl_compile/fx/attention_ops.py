# torch_ocl_compile/fx/attention_ops.py: ocl::attention and its gradient as PyTorch ops: eager form, fake results, autograd.
"""compile/attention_pattern.py puts these ops in place of spelled-out attention, and lowering/random.py in place of any
attention with dropout. When compiled, each becomes one kernel (lowering/attention.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.ops import LIBRARY, reserve
from torch_ocl_compile.reference.attention import attention as defined
from torch_ocl_compile.reference.attention import attention_score_gradient

Tensor = torch.Tensor


def _four(x: Tensor) -> Tensor:
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x.flatten(0, x.dim() - 4)


def _settings(
    q: Tensor, mask: Any, p: float, causal: bool, nan_rows: bool, scale: float | None, cap: float
) -> ir.AttentionAttrs:
    attrs = ir.AttentionAttrs()
    attrs.scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    attrs.cap = cap
    attrs.dropout, attrs.causal, attrs.nan_rows, attrs.masked = p, causal, nan_rows, mask is not None
    return attrs


def statistics_dtype(q: Tensor) -> torch.dtype:
    """Returns the dtype of the row sums: the gradient of float64 attention needs them in float64."""
    return torch.promote_types(q.dtype, torch.float32)


def _on_host(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the operands with four dimensions on the CPU in at least fp32, and a list with the mask, if there is one."""
    wide = statistics_dtype(q)
    operands = [_four(x.cpu().to(wide)) for x in (q, k, v)]
    if mask is None:
        return operands, []
    host = mask.cpu()
    return operands, [_four((host if host.dtype is torch.bool else host.to(wide)).expand(*q.shape[:-1], k.shape[-2]))]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    state: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes attention on the CPU by its definition. It runs only where nothing is compiled."""
    p, causal, nan_rows, scale, cap = *settings[:4], settings[5] if len(settings) > 5 else 0.0
    if state is None:
        state = reserve(q.device, 1) if p > 0 else torch.zeros(2, dtype=torch.int64, device=q.device)
    attrs = _settings(q, mask, p, causal, nan_rows, scale, cap)
    operands, masks = _on_host(q, k, v, mask)
    out, sums = defined(attrs, [*operands, *masks, *([state.cpu()] if p > 0 else [])])
    shape = [*q.shape[:-1], v.shape[-1]]
    return (
        out.reshape(shape).to(q.device, q.dtype),
        sums.reshape(2, *q.shape[:-1]).to(q.device, statistics_dtype(q)),
        state.clone(),
    )


def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    sums: Tensor,
    state: Tensor | None,
    p: float,
    causal: bool,
    nan_rows: bool,
    scale: float | None,
    wanted: Sequence[bool],
    grad_sums: Tensor | None = None,
    blocks: Tensor | None = None,
    cap: float = 0.0,
) -> tuple[Any, ...]:
    attrs = _settings(q, mask, p, causal, nan_rows, scale, cap)
    operands, masks = _on_host(q, k, v, mask)
    g, o = (_four(x.cpu().to(operands[0].dtype)) for x in (grad, out))
    rows = sums.cpu().reshape(2, *operands[0].shape[:3]).to(g)
    delta = (g * o).sum(-1)
    if grad_sums is not None:
        delta = delta - torch.where(rows[1] == 0, 0.0, rows[1] * grad_sums.cpu().reshape(rows.shape)[1].to(g))
    statistics = [rows, delta]
    given = [*operands, g, *statistics, *masks, *([] if state is None else [state.cpu()])]
    attrs.kind = ir.AttentionKind.kQuery
    (gq,) = defined(attrs, given)
    attrs.kind = ir.AttentionKind.kKeyValue
    gk, gv = defined(attrs, given)
    made: list[Any] = [m.reshape(x.shape).to(x.device, x.dtype) for m, x in zip((gq, gk, gv), (q, k, v), strict=True)]
    gm = None
    if wanted[3] and mask is not None:
        scores = attention_score_gradient(attrs, given).reshape(*q.shape[:-1], k.shape[-2])
        gm = scores.sum_to_size(mask.shape).to(mask.device, mask.dtype)
    return *(m if w else None for m, w in zip(made, wanted, strict=False)), gm


def fake_attention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    out = q.new_empty([*q.shape[:-1], v.shape[-1]])
    return out, q.new_empty([2, *q.shape[:-1]], dtype=statistics_dtype(q)), q.new_empty([2], dtype=torch.int64)


def fake_attention_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Any, *rest: Any) -> tuple[Any, ...]:
    wanted = rest[7]
    return tuple(
        x.new_empty(x.shape) if w and x is not None else None for x, w in zip((q, k, v, mask), wanted, strict=True)
    )


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, mask, _, p, causal, nan_rows, scale, *more = inputs
    blocks, cap = more[0] if more else None, more[1] if len(more) > 1 else 0.0
    out, sums, state = output
    ctx.save_for_backward(q, k, v, mask, out, sums, state if p > 0 else None, blocks)
    ctx.settings, ctx.cap = (p, causal, nan_rows, scale), cap
    ctx.mark_non_differentiable(state)
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Any, grad_sums: Any, *_: Any) -> tuple[Any, ...]:
    if grad is None and grad_sums is None:
        return (None,) * 11
    wanted = [bool(w) for w in ctx.needs_input_grad[:4]]
    *saved, blocks = ctx.saved_tensors
    grad = torch.zeros_like(saved[4]) if grad is None else grad
    made = torch.ops.ocl.attention_backward(grad, *saved, *ctx.settings, wanted, grad_sums, blocks, ctx.cap)
    return *made, *(None,) * 7


for _name, _eager, _fake in (
    ("attention", attention, fake_attention),
    ("attention_backward", attention_backward, fake_attention_backward),
):
    LIBRARY.impl(_name, _eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ocl::{_name}", _fake, lib=LIBRARY)
torch.library.register_autograd("ocl::attention", _gradient, setup_context=_save, lib=LIBRARY)
