# torch_ocl_compile/fx/attention_ops.py: ocl::attention and its gradient as PyTorch ops: schema, eager form, fake results, autograd.
"""compile/attention_pattern.py puts these ops in place of spelled-out attention, and lowering/elementwise/random.py in place of any
attention with dropout. When compiled, each becomes one kernel (lowering/products/attention.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.ops import reserve
from torch_ocl_compile.fx.own_op import LIBRARY, own_op
from torch_ocl_compile.reference.attention import attention as defined
from torch_ocl_compile.reference.attention import attention_score_gradient

Tensor = torch.Tensor

# Attention of any rank. Returns (out, sums, state); sums is described in csrc/ir/graph.h. A mask is bool (false: masked) or
# added to the scores. If dropout is on and `state` is missing, the op draws a state, which is its third result. blocks: what
# the mask hides of blocks of block_size x block_size scores; csrc/ir/graph.h. It is a hint. The gradient takes the largest
# scores for constants: what is computed of the sums must not depend on them, as a logsumexp does not.
SETTINGS = "float p=0.0, bool causal=False, bool nan_rows=False, float? scale=None, float cap=0.0, int block_size=16"


@dataclass(frozen=True)
class Settings:
    """The keyword arguments of both ops."""

    p: float = 0.0  # Of dropout.
    causal: bool = False
    nan_rows: bool = False  # A query whose keys are all masked gives nan, as in a spelled-out softmax, instead of 0.
    scale: float | None = None  # None: 1 / sqrt(head size).
    cap: float = 0.0  # Above 0, scores become cap * tanh(score / cap) before the mask.
    block_size: int = ir.MASK_BLOCK

    def for_heads(self, size: int) -> Settings:
        """Returns the settings with their scale."""
        return replace(self, scale=1 / math.sqrt(size)) if self.scale is None else self

    def attributes(self, kind: ir.AttentionKind, masked: bool, blocks: bool = False) -> ir.AttentionAttrs:
        """Returns the attributes of a node of the IR."""
        assert self.scale is not None
        attrs = ir.AttentionAttrs()
        attrs.kind, attrs.masked, attrs.blocks = kind, masked, self.block_size if blocks else 0
        attrs.scale, attrs.cap, attrs.dropout = self.scale, self.cap, self.p
        attrs.causal, attrs.nan_rows = self.causal, self.nan_rows
        return attrs


def _four(x: Tensor) -> Tensor:
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x.flatten(0, x.dim() - 4)


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
    blocks: Tensor | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes attention on the CPU by its definition. It runs only where nothing is compiled."""
    given = Settings(**settings).for_heads(q.shape[-1])
    if state is None:
        state = reserve(q.device, 1) if given.p > 0 else torch.zeros(2, dtype=torch.int64, device=q.device)
    operands, masks = _on_host(q, k, v, mask)
    attrs = given.attributes(ir.AttentionKind.kForward, mask is not None)
    out, sums = defined(attrs, [*operands, *masks, *([state.cpu()] if given.p > 0 else [])])
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
    out: Tensor,
    sums: Tensor,
    mask: Tensor | None,
    state: Tensor | None,
    blocks: Tensor | None = None,
    grad_sums: Tensor | None = None,
    *,
    wanted: Sequence[bool],
    **settings: Any,
) -> tuple[Any, ...]:
    given = Settings(**settings).for_heads(q.shape[-1])
    operands, masks = _on_host(q, k, v, mask)
    g, o = (_four(x.cpu().to(operands[0].dtype)) for x in (grad, out))
    rows = sums.cpu().reshape(2, *operands[0].shape[:3]).to(g)
    delta = (g * o).sum(-1)
    if grad_sums is not None:
        delta = delta - torch.where(rows[1] == 0, 0.0, rows[1] * grad_sums.cpu().reshape(rows.shape)[1].to(g))
    tensors = [*operands, g, rows, delta, *masks, *([] if state is None else [state.cpu()])]
    of_query, of_keys = (
        given.attributes(kind, mask is not None) for kind in (ir.AttentionKind.kQuery, ir.AttentionKind.kKeyValue)
    )
    made: list[Any] = [
        m.reshape(x.shape).to(x.device, x.dtype)
        for m, x in zip([*defined(of_query, tensors), *defined(of_keys, tensors)], (q, k, v), strict=True)
    ]
    gm = None
    if wanted[3] and mask is not None:
        scores = attention_score_gradient(of_query, tensors).reshape(*q.shape[:-1], k.shape[-2])
        gm = scores.sum_to_size(mask.shape).to(mask.device, mask.dtype)
    return *(m if w else None for m, w in zip(made, wanted, strict=False)), gm


def fake_attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor, Tensor]:
    out = q.new_empty([*q.shape[:-1], v.shape[-1]])
    return out, q.new_empty([2, *q.shape[:-1]], dtype=statistics_dtype(q)), q.new_empty([2], dtype=torch.int64)


def fake_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, mask: Any, *_: Any, wanted: Any, **__: Any
) -> tuple[Any, ...]:
    return tuple(
        x.new_empty(x.shape) if w and x is not None else None for x, w in zip((q, k, v, mask), wanted, strict=True)
    )


def _save(ctx: Any, inputs: Any, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    q, k, v, mask, _, blocks = inputs
    out, sums, state = output
    ctx.save_for_backward(q, k, v, out, sums, mask, state if keyword_only_inputs["p"] > 0 else None, blocks)
    ctx.settings = keyword_only_inputs
    ctx.mark_non_differentiable(state)
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Any, grad_sums: Any, *_: Any) -> tuple[Any, ...]:
    if grad is None and grad_sums is None:
        return (None,) * 6
    wanted = [bool(w) for w in ctx.needs_input_grad[:4]]
    grad = torch.zeros_like(ctx.saved_tensors[3]) if grad is None else grad
    made = torch.ops.ocl.attention_backward(grad, *ctx.saved_tensors, grad_sums, wanted=wanted, **ctx.settings)
    return *made, None, None


own_op(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? state, Tensor? blocks=None, *, "
    f"{SETTINGS}) -> (Tensor, Tensor, Tensor)",
    attention,
    fake_attention,
)
own_op(
    "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums, Tensor? mask, Tensor? state,"
    f" Tensor? blocks=None, Tensor? grad_sums=None, *, bool[4] wanted, {SETTINGS})"
    " -> (Tensor?, Tensor?, Tensor?, Tensor?)",
    attention_backward,
    fake_attention_backward,
)
torch.library.register_autograd("ocl::attention", _gradient, setup_context=_save, lib=LIBRARY)
