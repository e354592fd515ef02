# tests/no_device/schedule/test_rounded_uses.py: devices get short functions where a value is only used rounded to 16 bits.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.no_device.graphs.test_lowering import compiled
from tests.no_device.scheduling import render
from torch_ocl_compile._C import ir

HALF = torch.bfloat16


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x.float(), approximate="tanh")


def slope(x: Tensor, grad: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(grad.float(), x.float(), approximate="tanh")  # type: ignore[no-any-return]


# Function of two tensors of bf16 -> whether a short function is exact enough.
CASES: dict[str, tuple[Callable[[Tensor, Tensor], Any], bool]] = {
    "it is rounded": (lambda x, y: gelu(x).to(HALF), True),
    "by a product": (lambda x, y: gelu(x).to(HALF) @ y, True),
    "its product is rounded": (lambda x, y: slope(x, y).to(HALF), True),
    "twice": (lambda x, y: (gelu(x).to(HALF), (gelu(x) * y).to(HALF)), True),
    "not rounded": (lambda x, y: gelu(x), False),
    "to two types": (lambda x, y: (gelu(x).to(HALF), gelu(x).half()), False),
    "also stored": (lambda x, y: (gelu(x).to(HALF), gelu(x)), False),
    "its product is stored": (lambda x, y: (gelu(x).to(HALF), gelu(x) * y), False),
    "added first": (lambda x, y: (gelu(x) + y).to(HALF), False),
    "summed": (lambda x, y: gelu(x).sum(1).to(HALF), False),
}


def texts_of(function: Callable[[Tensor, Tensor], Any], caps: str) -> str:
    """Returns the kernels of a function of two tensors of bf16."""
    graphs: list[ir.Graph] = []
    compiled(function, graphs)(torch.randn(64, 64, dtype=HALF), torch.randn(64, 64, dtype=HALF))
    assert len(graphs) == 1
    return "".join(kernel["text"] for kernel in render(graphs[0], caps)["kernels"])


@pytest.mark.parametrize("name", CASES)
def test_short_functions(name: str) -> None:
    function, short = CASES[name]
    texts = texts_of(function, "gpu")
    assert ("op_short_gelu" in texts) == short
    assert ("op_own_gelu" in texts or "op_gelu" in texts) != short


def test_short_function_of_cpus() -> None:
    assert "op_short_cpu_gelu_erf" in texts_of(lambda x, y: F.gelu(x), "cpu16")
    assert "op_own_gelu_erf" in texts_of(lambda x, y: F.gelu(x.float()), "cpu16")


def test_powers_of_two_that_may_be_flushed_are_one_instruction() -> None:
    texts = texts_of(lambda x, y: F.gelu(x), "warpgroup")
    assert "ex2.approx.ftz.f32" in texts and "native_exp2" not in texts
    texts = texts_of(lambda x, y: F.gelu(x), "gpu")
    assert "native_exp2" in texts and "asm" not in texts
