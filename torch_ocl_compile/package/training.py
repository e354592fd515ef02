# torch_ocl_compile/package/training.py: a step of training as a module that can be packaged.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

# Takes a parameter, its gradient and its state. Returns the new parameter and the new state.
Update = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, list[Tensor]]]


class Rule:
    """How an optimizer changes a parameter. `state`: a function that makes the first state of a parameter."""

    def __init__(self, state: Callable[[Tensor], list[Tensor]], update: Update) -> None:
        self.state, self.update = state, update


def sgd(lr: float, momentum: float = 0.0) -> Rule:
    """torch.optim.SGD without weight decay."""

    def update(p: Tensor, g: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if not state:
            return p - lr * g, []
        moved = momentum * state[0] + g
        return p - lr * moved, [moved]

    return Rule(lambda p: [torch.zeros_like(p)] if momentum else [], update)


def adam(lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> Rule:
    """torch.optim.Adam without weight decay."""

    def update(p: Tensor, g: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        mean, square, step = state
        step = step + 1
        mean = mean + (1 - betas[0]) * (g - mean)
        square = betas[1] * square + (1 - betas[1]) * g * g
        scale = (square / (1 - betas[1] ** step)).sqrt() + eps
        return p - lr / (1 - betas[0] ** step) * mean / scale, [mean, square, step]

    return Rule(lambda p: [torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=p.device)], update)


class TrainingStep(nn.Module):
    """Forward, backward and update of `model` as one module, for package.Method.

    `loss(model, *args)` returns a scalar. A call takes `args`, changes the weights of `model` and returns the loss. The weights,
    buffers and the optimizer's state are state of the package: a method with the same `model` sees what training wrote. The
    sizes of `args` are fixed. The model trains in the mode that it is in now, so call model.train() first."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor], args: tuple[Any, ...], rule: Rule) -> None:
        super().__init__()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        fixed = {name: p for name, p in model.named_parameters() if not p.requires_grad}
        buffers = dict(model.named_buffers())
        state = [rule.state(p.detach()) for p in trained.values()]

        def step(
            parameters: list[Tensor], others: list[Tensor], state: list[list[Tensor]], args: tuple[Any, ...]
        ) -> tuple[Tensor, list[Tensor], list[Tensor], list[list[Tensor]]]:
            leaves = [p.detach().requires_grad_() for p in parameters]
            others = [b.clone() for b in others]
            weights = dict(zip([*trained, *fixed, *buffers], [*leaves, *fixed_values, *others], strict=True))
            with torch.enable_grad():
                value = loss(lambda *a: torch.func.functional_call(model, weights, a), *args)
                gradients = torch.autograd.grad(value, leaves)
            updates = zip(parameters, gradients, state, strict=True)
            changed = [rule.update(p.detach(), g, s) for p, g, s in updates]
            return value.detach(), [p for p, _ in changed], others, [s for _, s in changed]

        fixed_values = [p.detach() for p in fixed.values()]
        values = [p.detach() for p in trained.values()]
        self.step = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(
            values, list(buffers.values()), state, args
        )
        self.weights = nn.ParameterList(nn.Parameter(p, requires_grad=False) for p in values)
        self.others = len(buffers)
        for i, buffer in enumerate([*buffers.values(), *(part for parts in state for part in parts)]):
            self.register_buffer(f"state{i}", buffer)
        self.parts = len(state[0]) if state else 0
        self.eval()  # The mode of the model is part of the traced step.

    def forward(self, *args: Any) -> Tensor:
        weights = list(self.weights)
        kept = [getattr(self, f"state{i}") for i in range(self.others + self.parts * len(weights))]
        buffers, flat = kept[: self.others], kept[self.others :]
        state = [flat[i * self.parts : (i + 1) * self.parts] for i in range(len(weights))]
        loss: Tensor
        loss, new_weights, new_buffers, new_state = self.step(weights, buffers, state, args)
        changed = [*new_weights, *new_buffers, *(part for parts in new_state for part in parts)]
        for old, new in zip([*weights, *buffers, *flat], changed, strict=True):
            old.copy_(new)
        return loss
