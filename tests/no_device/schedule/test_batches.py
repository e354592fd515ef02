# tests/no_device/schedule/test_batches.py: how many launches updates and norms of many parameters take, within the device's limits.
from __future__ import annotations

import re
from typing import Any

import pytest

from tests.no_device.scheduling import CAPS
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

F32 = ir.DType.kF32


def adam_like(b: ir.Builder, sizes: list[list[Any]]) -> ir.Graph:
    """For each size: a count goes up, a factor is computed from it, and two tensors change by a gradient and the factor."""
    for size in sizes:
        strides = [1] if len(size) == 1 else [size[1], 1]
        parameter, gradient, average = (b.input(F32, size, strides) for _ in range(3))
        step = b.op("add", [b.input(F32, [], []), b.constant(1.0, F32)])
        factor = b.op("expm1", [b.op("mul", [step, b.constant(-0.1, F32)])])
        moved = b.op("add", [average, b.op("mul", [gradient, b.constant(0.1, F32)])])
        b.output(step, [])
        b.output(moved, strides)
        b.output(b.op("sub", [parameter, b.op("div", [moved, factor])]), strides)
    return b.finish()


def argument_bytes(kernel: dict[str, Any]) -> int:
    """A buffer and its offset are written "b+o", a long as "nL"."""
    return sum(16 if re.match(r"\d+\+", a) else 8 if a.endswith("L") else 4 for a in kernel["arguments"])


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
@pytest.mark.parametrize("limit, launches", [(1024, 28), (3840, 8), (4352, 6), (1 << 16, 6)])
def test_an_update_takes_few_launches(caps: str, limit: int, launches: int) -> None:
    """Small tensors and large ones, whose factor is computed once, share launches. A launch has at most 256 buffers."""
    sizes = [[64 + i % 7] if i % 3 else [320, 300 + i % 5] for i in range(160)]
    rendered = _C.exec.render(adam_like(ir.Builder(), sizes), CAPS[caps] | {"max_kernel_arg_bytes": limit})
    assert all(argument_bytes(kernel) <= limit for kernel in rendered["kernels"])
    assert len(rendered["kernels"]) <= launches
    assert {kernel["kind"] for kernel in rendered["kernels"]} == {"batch"}


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
def test_integers_of_64_bits_fit_too(caps: str) -> None:
    """Indices of tensors whose sizes change may need them."""
    b = ir.Builder()
    size = b.size_symbol(ir.Range(2, 1 << 30))
    graph = adam_like(b, [[size * (i + 1), 8] if i % 2 else [size + i] for i in range(60)])
    rendered = _C.exec.render(graph, CAPS[caps] | {"max_kernel_arg_bytes": 2048})
    assert any(a.endswith("L") for kernel in rendered["kernels"] for a in kernel["arguments"])
    assert all(argument_bytes(kernel) <= 2048 for kernel in rendered["kernels"])


@pytest.mark.parametrize("caps", ["cpu16", "gpu"])
def test_norms_of_many_tensors(caps: str) -> None:
    """One pass over long and short tensors, one over the sums of their parts. A launch has at most 256 buffers."""
    b = ir.Builder()
    for i in range(148):
        size = [96 + i % 5] if i % 3 else [768 * (300 + i % 7)]
        x = b.input(F32, size, [1])
        b.output(b.op("sqrt", b.reduce("sum", b.op("mul", [x, x]), [0], False)), [])
    rendered = _C.exec.render(b.finish(), CAPS[caps] | {"max_kernel_arg_bytes": 4352})
    assert len(rendered["kernels"]) <= 4
    assert {kernel["kind"] for kernel in rendered["kernels"]} == {"batch"}
