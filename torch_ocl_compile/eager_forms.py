# torch_ocl_compile/eager_forms.py: how eager ops are written for tracing, where the op itself is not what to trace.
"""torch sends some ops to a private device under names or schemas of their own; others have no functional form. A form
takes the op's arguments in the schema's order and may write into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

FORMS: dict[str, Callable[..., Any]] = {}


def form(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FORMS[name] = function
        return function

    return register


def form_of(op: Any) -> Callable[..., Any]:
    """What to trace for an overload: its form, or itself."""
    import torch_ocl_compile.optimizer_forms
    import torch_ocl_compile.random_forms  # noqa: F401  (have forms too)

    found: Callable[..., Any] = FORMS.get(str(op), op)
    return found


@form("aten.convolution_overrideable.default")
def convolution(*args: Any) -> Any:
    return aten.convolution(*args)


@form("aten.convolution_backward_overrideable.default")
def convolution_backward(
    grad: Any, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int,
    mask: Any,
) -> Any:  # fmt: skip
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    return aten.convolution_backward(
        grad, x, weight, [outputs], stride, padding, dilation, transposed, extra, groups, mask
    )


@form("aten.native_batch_norm.default")
def batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if running_mean is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, training, momentum, eps)
    return aten._native_batch_norm_legit(x, weight, bias, running_mean, running_var, training, momentum, eps)


# The cells' workspaces are ours: what backward needs, along the last dimension (csrc/torch/nn_ops.cpp has the same).


@form("aten._thnn_fused_lstm_cell.default")
def lstm_cell(input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


@form("aten._thnn_fused_lstm_cell_backward_impl.default")
def lstm_cell_backward(grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> Any:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    tanh_c = cy.tanh()
    gh = torch.zeros_like(tanh_c) if grad_hy is None else grad_hy
    gc = gh * o * (1 - tanh_c * tanh_c)
    if grad_cy is not None:
        gc = gc + grad_cy
    grads = [gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), gh * tanh_c * o * (1 - o)]
    gates = torch.cat(grads, 1)
    return gates, gc * f, gates.sum(0) if has_bias else None


@form("aten._thnn_fused_gru_cell.default")
def gru_cell(input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    (ir, iz, ih), (hr, hz, hn) = input_gates.chunk(3, 1), hidden_gates.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (ih + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


@form("aten._thnn_fused_gru_cell_backward.default")
def gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> Any:
    r, z, n, h, hn = workspace.chunk(5, 1)
    gn, gz = grad * (1 - z) * (1 - n * n), grad * (h - n) * z * (1 - z)
    gr = gn * hn * r * (1 - r)
    gi, gh = torch.cat([gr, gz, gn], 1), torch.cat([gr, gz, gn * r], 1)
    return gi, gh, grad * z, gi.sum(0) if has_bias else None, gh.sum(0) if has_bias else None
