# tests/no_device/schedule/test_rounded_uses.py: devices get short functions where a value is only used rounded to 16 bits.
from __future__ import annotations

import re
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


# Function of a tensor of bf16 and one of fp32 -> how often its kernel rounds what it stores.
ROUNDINGS: dict[str, tuple[Callable[[Tensor, Tensor], Any], int]] = {
    "relu": (lambda x, y: F.relu((x * y).to(HALF)), 1),
    "relu6": (lambda x, y: F.relu6((x * y).to(HALF)), 1),
    "no number of the type": (lambda x, y: (x * y).to(HALF).float().clamp(max=1.001).to(HALF), 2),
    "added": (lambda x, y: F.relu((x * y).to(HALF)) + x, 2),
    "stored unrounded": (lambda x, y: F.relu((x * y).to(HALF)).float(), 1),
    "stored twice": (lambda x, y: ((x * y).to(HALF), F.relu((x * y).to(HALF))), 1),
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_minimum_and_maximum_come_before_rounding(name: str) -> None:
    function, wanted = ROUNDINGS[name]
    graphs: list[ir.Graph] = []
    compiled(function, graphs)(torch.randn(64, 64, dtype=HALF), torch.randn(64, 64))
    text = render(graphs[0], "gpu")["kernels"][0]["text"]
    body = text[text.index("__kernel") :].split("return;")[0]  # The loop of whole vectors.
    # A variable that nothing reads is left to the device's compiler.
    read = [v for v in re.findall(r"(v\d+) = op_round_bf16", body) if len(re.findall(rf"\b{v}\b", body)) > 1]
    assert len(read) == wanted, body
