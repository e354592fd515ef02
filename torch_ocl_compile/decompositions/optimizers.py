# torch_ocl_compile/decompositions/optimizers.py: formulas of the fused optimizers and of the gradient scaler's ops.
"""They are traced like any eager op. The scheduler makes one loop per parameter and puts many loops into one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from torch_ocl_compile.decompositions.forms import form

Tensors = Sequence[torch.Tensor]


def _write(skip: Any, *pairs: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Copies each new value into its target. `skip`: a bool tensor; where it is true, the target keeps its old value."""
    for target, value in pairs:
        target.copy_(value if skip is None else torch.where(skip, target, value.to(target.dtype)))


def _gradient(grad: torch.Tensor, scale: Any, maximize: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (the gradient divided by the loss scale, the same with its sign flipped if `maximize`), float32 or wider."""
    grad = grad.to(torch.promote_types(grad.dtype, torch.float32))
    unscaled = grad if scale is None else grad / scale
    return unscaled, -unscaled if maximize else unscaled


def _skip(found_inf: Any) -> Any:
    return None if found_inf is None else found_inf == 1


def _settings(given: dict[str, Any]) -> Any:
    """Returns the settings of an optimizer as attributes, named as in its schema."""
    return SimpleNamespace(**{"grad_scale": None, "found_inf": None, **given})


def _adam(
    decoupled: bool, params: Tensors, grads: Tensors, averages: Tensors, squares: Tensors, largest: Tensors, steps: Tensors,
    *, o: Any,
) -> None:  # fmt: skip
    """Updates all parameters in place. `decoupled` selects the weight decay of AdamW.

    -expm1(step log beta) is 1 - beta^step without loss of digits in float32.
    """
    skip = _skip(o.found_inf)
    for k, param in enumerate(params):
        unscaled, grad = _gradient(grads[k], o.grad_scale, o.maximize)
        p = param.to(grad.dtype)
        if o.weight_decay != 0 and decoupled:
            p = p - p * o.lr * o.weight_decay
        elif o.weight_decay != 0:
            grad = grad + p * o.weight_decay
        average = averages[k] + (grad - averages[k]) * (1 - o.beta1)
        square = squares[k] * o.beta2 + grad * grad * (1 - o.beta2)
        correction1 = -torch.expm1(steps[k] * math.log(o.beta1)) if o.beta1 > 0 else 1.0
        correction2 = -torch.expm1(steps[k] * math.log(o.beta2)) if o.beta2 > 0 else torch.ones_like(steps[k])
        max_square = torch.maximum(largest[k], square) if o.amsgrad else square
        p = p - average * (o.lr / correction1) / (max_square.sqrt() / correction2.sqrt() + o.eps)
        pairs = [(param, p), (averages[k], average), (squares[k], square)]
        if o.amsgrad:
            pairs.append((largest[k], max_square))
        if o.grad_scale is not None:
            pairs.append((grads[k], unscaled))
        _write(skip, *pairs)


@form("aten._fused_adam_.default", "aten._fused_adam_.tensor_lr")
def adam(*lists: Any, **settings: Any) -> None:
    _adam(False, *lists, o=_settings(settings))


@form("aten._fused_adamw_.default", "aten._fused_adamw_.tensor_lr")
def adamw(*lists: Any, **settings: Any) -> None:
    _adam(True, *lists, o=_settings(settings))


@form("aten._fused_sgd_.default", "aten._fused_sgd_.tensor_lr")
def sgd(params: Tensors, grads: Tensors, buffers: Tensors, **settings: Any) -> None:
    o = _settings(settings)
    skip = _skip(o.found_inf)
    for k, param in enumerate(params):
        unscaled, grad = _gradient(grads[k], o.grad_scale, o.maximize)
        p = param.to(grad.dtype)
        if o.weight_decay != 0:
            grad = grad + p * o.weight_decay
        pairs = [(grads[k], unscaled)] if o.grad_scale is not None else []
        if o.momentum != 0:
            buffer = grad if o.is_first_step else buffers[k] * o.momentum + grad * (1 - o.dampening)
            pairs.append((buffers[k], buffer))
            grad = grad + buffer * o.momentum if o.nesterov else buffer
        _write(skip, (param, p - grad * o.lr), *pairs)


@form("aten._fused_adagrad_.default", "aten._fused_adagrad_.tensor_lr")
def adagrad(params: Tensors, grads: Tensors, sums: Tensors, steps: Tensors, **settings: Any) -> None:
    o = _settings(settings)
    skip = _skip(o.found_inf)
    for k, param in enumerate(params):
        unscaled, grad = _gradient(grads[k], o.grad_scale, o.maximize)
        p = param.to(grad.dtype)
        if o.weight_decay != 0:
            grad = grad + p * o.weight_decay
        total = sums[k] + grad * grad
        p = p - grad * (o.lr / ((steps[k] - 1) * o.lr_decay + 1)) / (total.sqrt() + o.eps)
        _write(skip, (param, p), (sums[k], total), *([(grads[k], unscaled)] if o.grad_scale is not None else []))


@form("aten._amp_foreach_non_finite_check_and_unscale_.default")
def unscale(grads: Tensors, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Multiplies every gradient by inv_scale in place, and sets found_inf to 1 if any element of them is not finite."""
    bad = [torch.isfinite(grad).logical_not().any() for grad in grads]
    while len(bad) > 1:
        bad = [a | b for a, b in zip(bad[::2], bad[1::2], strict=False)] + bad[len(bad) & ~1 :]
    if bad:
        found_inf.copy_(torch.where(bad[0], torch.ones_like(found_inf), found_inf))
    for grad in grads:
        grad.copy_(grad.to(torch.promote_types(grad.dtype, torch.float32)) * inv_scale)


@form("aten._amp_update_scale_.default")
def update_scale(
    scale: torch.Tensor, tracker: torch.Tensor, found_inf: torch.Tensor, growth: Any, backoff: Any, interval: int
) -> torch.Tensor:
    """Multiplies the loss scale by `backoff` after an overflow, by `growth` after `interval` steps without one.

    A scale that would become infinite stays as it is.
    """
    overflow = found_inf != 0
    steps = tracker + 1
    grows = steps == interval
    larger = scale * growth
    kept = torch.where(grows & torch.isfinite(larger), larger, scale)
    new_tracker = torch.where(overflow | grows, torch.zeros_like(tracker), steps)
    scale.copy_(torch.where(overflow, scale * backoff, kept))
    tracker.copy_(new_tracker)
    return scale
