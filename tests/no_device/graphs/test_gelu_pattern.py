# tests/no_device/graphs/test_gelu_pattern.py: gelu that a model spells out becomes one op; other expressions stay.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ocl_compile.compile import gelu_pattern

ROOT = math.sqrt(2 / math.pi)
CASES: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "gelu_new": (lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))), ["tanh"]),
    "gelu_fast": (lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))), ["tanh"]),
    "bloom": (lambda x: x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))), ["tanh"]),
    "erf": (lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), ["none"]),
    "methods": (lambda x: x.mul(0.5).mul(x.div(math.sqrt(2.0)).erf().add(1.0)), ["none"]),
    "after a sum": (lambda x: CASES["gelu_new"][0](x + x.flip(0)), ["tanh"]),
    "in front of a product": (lambda x: 3 * CASES["erf"][0](x), ["none"]),
    "twice": (lambda x: CASES["erf"][0](CASES["gelu_new"][0](x)), ["tanh", "none"]),
    "other constant": (lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.0447 * torch.pow(x, 3.0)))), []),
    "another tensor": (lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x.flip(0), 3.0)))), []),
    "only tanh": (lambda x: 1.0 + torch.tanh(x), []),
}


def found(function: Callable[..., Any], *args: Tensor) -> tuple[list[str], Any]:
    """Returns the kinds of gelu in the graph after the pass, and the results of the graph."""
    kinds: list[str] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        gelu_pattern.rewrite(gm)
        kinds.extend(n.kwargs["approximate"] for n in gm.graph.nodes if n.target is F.gelu)
        return gm

    torch._dynamo.reset()
    return kinds, torch.compile(function, backend=backend)(*args)


@pytest.mark.parametrize("name", CASES)
def test_kinds(name: str) -> None:
    function, expected = CASES[name]
    x = torch.linspace(-4, 4, 30, dtype=torch.float64).view(5, 6).requires_grad_()
    kinds, got = found(function, x)
    assert kinds == expected
    reference = function(x)
    torch.testing.assert_close(got, reference, atol=1e-6, rtol=1e-6)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (got, reference)]
    torch.testing.assert_close(*grads, atol=1e-6, rtol=1e-6)


def test_a_value_in_between_that_is_returned_stays() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        inner = torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))
        return inner, 0.5 * x * (1.0 + inner)

    kinds, (inner, y) = found(function, torch.randn(7))
    assert kinds == []
    assert inner.shape == y.shape == (7,)


def test_the_type_of_the_result_is_kept() -> None:
    """Under autocast, pow computes in fp32 on some devices."""

    def function(x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x.float(), 3.0))))

    x = torch.linspace(-4, 4, 30).bfloat16()
    kinds, got = found(function, x)
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, function(x), atol=1e-2, rtol=1e-2)
    assert kinds == []  # The cast is no arithmetic, so the single ops stay.
