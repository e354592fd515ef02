# torch_ocl_compile/decompositions/nn.py: formulas of neural-network ops that PyTorch's tables leave whole.
"""Each function computes the formula of ATen's fused kernel. As in that kernel, float16 and bfloat16 are computed in
float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import _weight_norm_interface as torch_weight_norm
from torch._decomp.decompositions import binary_cross_entropy as torch_binary_cross_entropy
from torch._decomp.decompositions import multi_margin_loss as torch_multi_margin_loss
from torch._decomp.decompositions import native_group_norm_backward, pw_cast_for_opmath
from torch._prims_common import get_computation_dtype
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten


@decompose(aten.native_group_norm_backward.default, opmath=True)
def group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, batch: Any, channels: Any, plane: Any, groups: int,
    mask: list[bool],
) -> Any:  # fmt: skip
    """Computes PyTorch's formula, but returns zeros for an empty x, where PyTorch would divide by 0, the size of a
    group.
    """
    is_empty = statically_known_true(channels * plane == 0)
    wanted = [mask[0] and not is_empty, *mask[1:]]
    gx, *others = native_group_norm_backward(grad, x, mean, rstd, weight, batch, channels, plane, groups, wanted)
    return torch.zeros_like(x) if mask[0] and is_empty else gx, *others


def _gates(i: Tensor, h: Tensor, bias_i: Tensor | None, bias_h: Tensor | None) -> tuple[Tensor, Tensor]:
    return (i if bias_i is None else i + bias_i), (h if bias_h is None else h + bias_h)


@decompose(aten._thnn_fused_lstm_cell.default, opmath=True)
def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, bias_i: Tensor | None = None, bias_h: Tensor | None = None
) -> Any:
    """Returns (h, c, the four activated gates [n, 4 * hidden] in PyTorch's order: input, forget, cell, output)."""
    from_x, from_h = _gates(input_gates, hidden_gates, bias_i, bias_h)
    i, f, g, o = (from_x + from_h).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


@decompose(aten._thnn_fused_lstm_cell_backward_impl.default, opmath=True)
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> Any:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    squashed = cy.tanh()
    grad_c = torch.zeros_like(cy) if grad_cy is None else grad_cy
    grad_o = torch.zeros_like(o)
    if grad_hy is not None:
        grad_c = grad_c + grad_hy * o * (1 - squashed * squashed)
        grad_o = grad_hy * squashed * o * (1 - o)
    parts = [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g), grad_o]
    gates = torch.cat(parts, 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else None


@decompose(aten._thnn_fused_gru_cell.default, opmath=True)
def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, bias_i: Tensor | None = None, bias_h: Tensor | None = None
) -> Any:
    """Returns (h, workspace [n, 5 * hidden]).

    The workspace holds what the gradient needs: reset gate, update gate, new gate, previous h, and the part of the
    new gate that the previous h contributes.
    """
    from_x, from_h = _gates(input_gates, hidden_gates, bias_i, bias_h)
    (xr, xz, xn), (hr, hz, hn) = from_x.chunk(3, 1), from_h.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    # The sum in this order gives the result the strides of hx, as on the CPU.
    return (hx - n) * z + n, torch.cat([r, z, n, hx, hn], 1)


@decompose(aten._thnn_fused_gru_cell_backward.default, opmath=True)
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    r, z, n, hx, hn = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    grad_r = grad_n * hn * r * (1 - r)
    from_x, from_h = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (from_x.sum(0), from_h.sum(0)) if has_bias else (None, None)
    return from_x, from_h, grad_hy * z, *biases


@decompose(aten._weight_norm_interface.default)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """Returns (v * g / norms, norms), with norms over all dimensions but `dim`.

    PyTorch's own decomposition takes one norm of a vector, whose elements are rows of their own.
    """
    if v.dim() > 1:
        return torch_weight_norm(v, g, dim)
    norms = v.abs().to(torch.float32 if g.dtype == torch.bfloat16 else v.dtype)
    return v * (g / norms.to(g.dtype)), norms


@decompose(aten._weight_norm_interface_backward.default, opmath=True)
def weight_norm_backward(grad_w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    """Computes the gradients of v and g for w = v * g / norm(v). The norm is over all dimensions but `dim`."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = grad_w * v / norms if v.dim() == 1 else (grad_w * v).sum(others, keepdim=True) / norms
    return g / norms * (grad_w - v * (along / norms)), along


@decompose(aten.multilabel_margin_loss_forward.default, before_autograd=True)
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> Any:
    """Returns (loss, mask of the target classes). The labels of a row end at its first -1.

    PyTorch's own decomposition counts the labels behind the -1 as if they were 0.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    kept = (labels == -1).cumsum(1) == 0
    at_labels = rows.gather(1, torch.where(kept, labels, 0))
    classes = torch.arange(rows.shape[1], device=x.device)
    is_target = ((labels[:, :, None] == classes) & kept[:, :, None]).any(1)
    margins = (1 - at_labels[:, :, None] + rows[:, None, :]).clamp_min(0)
    loss = torch.where(kept[:, :, None] & ~is_target[:, None, :], margins, 0).sum((1, 2)) / rows.shape[1]
    reduced = {0: lambda: loss.reshape(x.shape[:-1]), 1: loss.mean, 2: loss.sum}[reduction]()
    return reduced, is_target.to(x.dtype).reshape(target.shape)


@decompose(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    rows, labels, targets = _rows(x), torch.atleast_2d(target), torch.atleast_2d(is_target) != 0
    kept = (labels == -1).cumsum(1) == 0
    places = torch.where(kept, labels, 0)
    counts = (1 - rows.gather(1, places)[:, :, None] + rows[:, None, :]) > 0
    pairs = (counts & kept[:, :, None] & ~targets[:, None, :]).to(rows.dtype) / rows.shape[1]
    return _of_loss(grad, pairs.sum(1).scatter_add(1, places, -pairs.sum(2)), reduction, x)


@decompose(aten.multi_margin_loss.default, before_autograd=True)
def multi_margin_loss(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """PyTorch's own decomposition gives a loss of one row a dimension."""
    loss: Tensor = torch_multi_margin_loss(x, target, p, margin, weight, reduction)
    return loss if reduction else loss.reshape(x.shape[:-1])


@decompose(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    rows, labels = _rows(x), torch.atleast_1d(target)[:, None]
    distance = margin - rows.gather(1, labels) + rows
    is_label = torch.arange(rows.shape[1], device=x.device) == labels
    slope = torch.where((distance > 0) & ~is_label, 1.0 if p == 1 else 2 * distance, 0.0) / rows.shape[1]
    slope = slope if weight is None else slope * weight[labels]
    return _of_loss(grad, torch.where(is_label, -slope.sum(1, keepdim=True), slope), reduction, x)


def _rows(x: Tensor) -> Tensor:
    rows: Tensor = torch.atleast_2d(x)
    return rows.to(get_computation_dtype(x.dtype))


def _of_loss(grad: Tensor, slope: Tensor, reduction: int, x: Tensor) -> Tensor:
    """Returns the gradient of x from that of the loss and the derivative of each row's loss."""
    scaled: Tensor = slope * grad.reshape(-1, 1) / (slope.shape[0] if reduction == 1 else 1)
    return scaled.to(x.dtype).reshape(x.shape)


def _like_input(name: str, loss_of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a loss function whose result has the dtype of x, whatever the dtype of the target, as ATen's kernels do.

    `loss_of` computes the loss of each element, without reduction.
    """

    def loss_like_input(x: Tensor, target: Tensor, reduction: int = 1, *settings: float) -> Tensor:
        wide = torch.promote_types(x.dtype, target.dtype)
        torch._check(
            torch.can_cast(wide, x.dtype), lambda: f"{name}: {wide} can't be cast to the input's type {x.dtype}"
        )
        loss = loss_of(x, target, *settings).to(x.dtype)
        return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss

    return loss_like_input


def _huber_loss(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    loss: Tensor = torch._refs.nn.functional.huber_loss(x, target, "none", delta)
    return loss


def _soft_margin_loss(x: Tensor, target: Tensor) -> Tensor:
    return torch.log1p(torch.exp(-x * target))


@decompose(aten.binary_cross_entropy.default, opmath=True)
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    wrong = ~((x >= 0) & (x <= 1))
    x = torch.ops.ocl.checked(x, wrong.to(torch.int32), "binary_cross_entropy expects inputs in [0, 1]")
    loss: Tensor = torch_binary_cross_entropy(x, target, weight, reduction)
    return loss


@decompose(aten.smooth_l1_loss_backward.default, opmath=True)
def smooth_l1_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """Returns the gradient of x. PyTorch's own decomposition gives 0 for a difference of NaN, where ATen's kernels give
    NaN.
    """
    far = x - target
    scaled = grad / x.numel() if reduction == 1 else grad
    return torch.where(far.abs() >= beta, scaled * far.sign(), scaled * far / beta)


@decompose(aten.hardshrink_backward.default, aten.softshrink_backward.default, opmath=True)
def shrink_backward(grad: Tensor, x: Tensor, limit: Any) -> Tensor:
    return torch.where(x.abs() <= limit, 0.0, grad)


decompose(aten.huber_loss.default)(_like_input("huber_loss", _huber_loss))
decompose(aten.soft_margin_loss.default)(_like_input("soft_margin_loss", pw_cast_for_opmath(_soft_margin_loss)))
