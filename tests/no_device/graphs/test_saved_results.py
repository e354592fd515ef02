# tests/no_device/graphs/test_saved_results.py: gradients of activations that read the result, so that forward need not save the input.
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.no_device import scheduling

# Without NaN, which PyTorch's own kernels of these gradients pass on or not.
SPECIAL = [0.0, -0.0, 6.0, -1.0, 1.0, float("inf"), float("-inf"), 1e-40, -1e-40, 5.9999995, 6.0000005, -1e-45]
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu6": lambda x: F.relu6(x * 2).sin(),
    "relu6 in place": lambda x: F.relu6(x * 2, inplace=True).sin(),
    "hardtanh": lambda x: F.hardtanh(x * 2).sin(),
    "bounds that fp32 rounds": lambda x: F.hardtanh(x * 2, -0.7, 0.8).sin(),
    "leaky_relu": lambda x: F.leaky_relu(x * 2, 0.1).sin(),
    "leaky_relu with a negative slope": lambda x: F.leaky_relu(x * 2, -0.1).sin(),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradient(name: str, dtype: torch.dtype) -> None:
    function = CASES[name]
    torch.manual_seed(1)
    x = torch.cat([torch.tensor(SPECIAL), torch.randn(500) * 4]).to(dtype)
    expected, given = x.clone().requires_grad_(), x.clone().requires_grad_()
    seen: list[scheduling.Seen] = []
    y, z = function(expected), scheduling.collecting(function, seen)(given)
    direction = torch.linspace(1, 2, x.numel(), dtype=dtype)
    y.backward(direction)
    z.backward(direction)
    assert [s.kind for s in seen] == ["forward", "backward"]
    torch.testing.assert_close(z, y, equal_nan=True)
    torch.testing.assert_close(given.grad, expected.grad, equal_nan=True)


def saved(function: Callable[..., Tensor], *inputs: Tensor) -> list[str]:
    """The results of forward that are no results of the function."""
    seen: list[scheduling.Seen] = []
    scheduling.collecting(function, seen)(*inputs).sum().backward()
    return [line for line in str(seen[0].graph).splitlines() if line.startswith("result ")][1:]


@pytest.mark.parametrize("activation", [F.relu6, F.leaky_relu, partial(F.relu6, inplace=True)])
def test_forward_saves_the_result_alone(activation: Callable[[Tensor], Tensor]) -> None:
    """Of a normalised product and its activation, backward needs the product and the result, which the next product multiplies."""
    weight, more = torch.randn(8, 8).requires_grad_(), torch.randn(8, 8).requires_grad_()

    def function(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return activation(F.layer_norm(x @ w, (8,))) @ v

    x = torch.randn(512, 8).requires_grad_()
    large = [line for line in saved(function, x, weight, more) if "512, 8" in line]
    assert len(large) == 2, large


def test_a_result_that_the_caller_gets_is_not_read() -> None:
    """The caller may overwrite it before backward runs. The product of which it is the result is saved."""
    weight, x = torch.randn(8, 8).requires_grad_(), torch.randn(512, 8).requires_grad_()
    assert len([line for line in saved(lambda x, w: F.relu6(x @ w), x, weight) if "512, 8" in line]) == 1


@pytest.mark.parametrize("rows, count", [(8192, 0), (4096, 2)])
def test_weights_that_autocast_rounds_are_rounded_again(rows: int, count: int) -> None:
    """The parameters are there anyway. With few rows, a pass over a weight takes long beside its products."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))), torch.randn(rows, 64)
    seen: list[scheduling.Seen] = []

    def loss(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).square().mean()  # type: ignore[no-any-return]

    loss(x).backward()  # type: ignore[no-untyped-call]
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    scheduling.collecting(loss, seen)(x).backward()
    forward = seen[0].graph
    rounded = [o for o in forward.outputs if "64, 64" in str(forward.buffers[o.buffer].sizes)]
    assert len(rounded) == count
    for p, want in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=2e-2, atol=1e-4)
