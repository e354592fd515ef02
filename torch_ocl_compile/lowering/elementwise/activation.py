# torch_ocl_compile/lowering/elementwise/activation.py: activations, their gradients, and other formulas of several scalar ops.
"""These ops stay whole through AOTAutograd. Each becomes one node, whose arithmetic ends up in some fused kernel."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.core.term import Operand, Term
from torch_ocl_compile.lowering.elementwise.pointwise import formula

aten = torch.ops.aten


@formula(aten.gelu.default)
def gelu(x: Term, approximate: str = "none") -> Term:
    """Returns x * Phi(x), where Phi is the normal distribution function; "tanh": the approximation of Hendrycks and
    Gimpel."""
    return t.call("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


@formula(aten.gelu_backward.default)
def gelu_backward(grad: Term, x: Term, approximate: str = "none") -> Term:
    return grad * t.call("gelu_tanh_slope" if approximate == "tanh" else "gelu_erf_slope", x)


@formula(aten.silu.default)
def silu(x: Term) -> Term:
    return t.call("silu", x)


@formula(aten.silu_backward.default)
def silu_backward(grad: Term, x: Term) -> Term:
    s = t.sigmoid(x)
    return grad * s * (x * (1.0 - s) + 1.0)


@formula(aten.sigmoid_backward.default)
def sigmoid_backward(grad: Term, y: Term) -> Term:
    return grad * (1.0 - y) * y


@formula(aten.tanh_backward.default)
def tanh_backward(grad: Term, y: Term) -> Term:
    return grad * (1.0 - y * y)


@formula(aten.threshold_backward.default)
def threshold_backward(grad: Term, x: Term, threshold: float) -> Term:
    """Returns the gradient, 0 where x <= threshold. As in PyTorch, a NaN in x lets the gradient pass."""
    return t.where(x <= threshold, 0, grad)


@formula(aten.threshold.default)
def threshold(x: Term, threshold: float, value: float) -> Term:
    return t.where(x <= threshold, value, x)


@formula(aten.hardtanh.default)
def hardtanh(x: Term, min_val: float = -1.0, max_val: float = 1.0) -> Term:
    return t.minimum(t.maximum(x, min_val), max_val)


@formula(aten.hardtanh_backward.default)
def hardtanh_backward(grad: Term, x: Term, min_val: float, max_val: float) -> Term:
    return t.where((x <= min_val) | (x >= max_val), 0, grad)


@formula(aten.leaky_relu.default)
def leaky_relu(x: Term, negative_slope: float = 0.01) -> Term:
    return t.where(x > 0, x, x * negative_slope)


@formula(aten.leaky_relu_backward.default)
def leaky_relu_backward(grad: Term, x: Term, negative_slope: float, self_is_result: bool) -> Term:
    return t.where(x > 0, grad, grad * negative_slope)


@formula(aten.elu.default)
def elu(x: Term, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Term:
    return t.where(x > 0, x * scale, t.expm1(x * input_scale) * (alpha * scale))


@formula(aten.elu_backward.default)
def elu_backward(grad: Term, alpha: float, scale: float, input_scale: float, is_result: bool, x: Term) -> Term:
    negative = (
        (x + alpha * scale) * input_scale if is_result else t.exp(x * input_scale) * (input_scale * alpha * scale)
    )
    return t.where(x <= 0, grad * negative, grad * scale)


@formula(aten.hardswish.default)
def hardswish(x: Term) -> Term:
    return x * t.minimum(t.maximum(x + 3.0, 0.0), 6.0) / 6.0


@formula(aten.hardswish_backward.default)
def hardswish_backward(grad: Term, x: Term) -> Term:
    return t.where(x <= -3.0, 0.0, t.where(x < 3.0, grad * (x / 3.0 + 0.5), grad))


@formula(aten.hardsigmoid.default)
def hardsigmoid(x: Term) -> Term:
    return t.minimum(t.maximum(x + 3.0, 0.0), 6.0) / 6.0


@formula(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Term, x: Term) -> Term:
    """PyTorch's kernels round 1/6 to float32 for every dtype, float64 included."""
    return t.where((x > -3.0) & (x < 3.0), grad * 0.1666666716337204, 0.0)


@formula(aten.softplus.default)
def softplus(x: Term, beta: float = 1.0, threshold: float = 20.0) -> Term:
    return t.where(x * beta > threshold, x, t.log1p(t.exp(x * beta)) / beta)


@formula(aten.softplus_backward.default)
def softplus_backward(grad: Term, x: Term, beta: float, threshold: float) -> Term:
    z = t.exp(x * beta)
    return t.where(x * beta > threshold, grad, grad * z / (z + 1.0))


@formula(aten.mish.default)
def mish(x: Term) -> Term:
    return x * t.tanh(t.call("softplus", x))


@formula(aten.mish_backward.default)
def mish_backward(grad: Term, x: Term) -> Term:
    y = t.tanh(t.call("softplus", x))
    return grad * (y + x * t.sigmoid(x) * (1.0 - y * y))


@lower(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(c: Context, x: ir.Value) -> Any:
    """Returns (log(sigmoid(x)), a buffer that only PyTorch's CPU kernel uses).

    The traced size of the buffer says whether it is empty.
    """
    dtype = ir_dtype(c.val[0].dtype)
    y = c.pointwise(lambda v: t.minimum(v, 0.0) - t.log1p(t.exp(-t.abs_(v))), x, dtype=dtype)
    return y, c.constant(0.0, dtype, c.shape(c.val[1].shape))


@lower(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(c: Context, grad: ir.Value, x: ir.Value, buffer: ir.Value) -> Any:
    return c.pointwise(lambda g, v: g * t.sigmoid(-v), grad, x)


@formula(aten._prelu_kernel.default)
def prelu(x: Term, weight: Term) -> Term:
    return t.where(x > 0, x, x * weight)


@lower(aten._prelu_kernel_backward.default)
def prelu_backward(c: Context, grad: ir.Value, x: ir.Value, weight: ir.Value) -> Any:
    def both(g: Term, v: Term, w: Term) -> tuple[Term, Term]:
        return t.where(v > 0, g, g * w), t.where(v > 0, 0, g * v)

    return c.pointwise_tuple(both, grad, x, weight, dtypes=[ir_dtype(v.dtype) for v in c.val])


@formula(aten.native_dropout_backward.default)
def native_dropout_backward(grad: Term, mask: Term, scale: float) -> Term:
    return grad * mask * scale


@formula(aten.addcmul.default)
def addcmul(x: Term, a: Term, b: Term, value: Operand = 1) -> Term:
    """Returns x + value * a * b. For integers, `value` is truncated to an integer, as eager PyTorch does."""
    if not isinstance(value, Term) and not ir.is_floating(x.dtype):
        value = int(value)
    return x + a * b if not isinstance(value, Term) and value == 1 else x + a * value * b


@formula(aten.addcdiv.default)
def addcdiv(x: Term, a: Term, b: Term, value: Operand = 1) -> Term:
    return x + a / b if not isinstance(value, Term) and value == 1 else x + a * value / b


@formula(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(start: Term, end: Term, weight: Operand) -> Term:
    """Returns start + weight * (end - start), computed from the nearer end for accuracy, as PyTorch does."""
    if not isinstance(weight, Term):
        return start + (end - start) * weight if abs(weight) < 0.5 else end - (end - start) * (1 - weight)
    near = t.abs_(weight) < 0.5
    return t.where(near, start + (end - start) * weight, end - (end - start) * (1.0 - weight))


@lower(aten.nan_to_num.default)
def nan_to_num(
    c: Context, x: ir.Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Replaces NaN by 0 and infinities by the dtype's largest and lowest numbers, or by the given numbers."""
    if not ir.is_floating(x.dtype):
        return x
    largest = torch.finfo(c.val.dtype).max
    high, low = (largest if posinf is None else posinf), (-largest if neginf is None else neginf)

    def replaced(v: Term) -> Term:
        finite = t.where(v.eq(float("inf")), high, t.where(v.eq(-float("inf")), low, v))
        return t.where(t.call("isnan", v), 0.0 if nan is None else nan, finite)

    return c.pointwise(replaced, x)


@formula(aten.xlogy.Tensor, "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(x: Operand, y: Operand) -> Term:
    nest = next(v.nest for v in (x, y) if isinstance(v, Term))
    dtype = next(v.dtype for v in (x, y) if isinstance(v, Term))
    a = x if isinstance(x, Term) else nest.constant(x, dtype)
    b = y if isinstance(y, Term) else nest.constant(y, dtype)
    return t.where(t.call("isnan", b), b, t.where(a.eq(0.0), 0.0, a * t.log(b)))
