# tests/device/ops/test_ops.py: rows of op_table on every OpenCL device, forward and backward, against the CPU.
"""The reference is PyTorch on the CPU in the same dtype; for halves in float32, because PyTorch may round in between.

Each case is computed twice, since results must be the same in each run.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from tests.op_cases import cases, results_of
from tests.op_row import HALVES, Op, same, to_cpu, widened
from tests.op_table import OPS
from torch_ocl_compile.compile import debug


def move(sample: Any, device: str) -> Any:
    """Moves a sample. Views stay views, because strides and offsets are part of the sample."""

    def one(x: torch.Tensor) -> torch.Tensor:
        base = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(device)
        return base.as_strided(x.shape, x.stride(), x.storage_offset())

    return tree_map_only(torch.Tensor, one, sample)


def with_leaves(op: Op, sample: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[torch.Tensor]]:
    """Returns the sample with its floating-point arguments as leaves that require gradients, and these leaves."""
    arguments, found = list(sample), []
    for i, x in enumerate(sample):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and i not in op.constants:
            arguments[i] = x.detach().requires_grad_()
            found.append(arguments[i])
    return tuple(arguments), found


def wanting_gradients(results: Any) -> list[torch.Tensor]:
    return [o for o in tree_flatten(results)[0] if isinstance(o, torch.Tensor) and o.requires_grad]


def gradients(results: Any, inputs: list[torch.Tensor]) -> list[Any]:
    outputs = wanting_gradients(results)
    assert inputs and outputs, "the row promises gradients"
    weights = [(torch.arange(o.numel()).view(o.shape) % 7 + 1).to(o.dtype).to(o.device) for o in outputs]
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def gradients_of(op: Op, sample: tuple[Any, ...]) -> list[Any]:
    """Returns PyTorch's own gradients."""
    arguments, inputs = with_leaves(op, sample)
    return gradients(op.call(*arguments), inputs)


def attempt(call: Callable[[], Any]) -> Any:
    """Returns the result of PyTorch's CPU kernels; None if they do not support halves."""
    try:
        return call()
    except (RuntimeError, NotImplementedError):
        return None


def family(op: Op) -> str:
    """Returns the part of a row's name that its variants share: "grid_sample2d" of "grid_sample2d_nearest_border"."""
    dimensions = re.match(r"\w*?\dd", op.name)
    return dimensions[0] if dimensions else op.name.partition("_")[0]


FAMILIES = Counter(map(family, OPS))
FIRST = {op.name for op in {family(op): op for op in reversed(OPS)}.values()}  # The first row of each family.


def one_in(op: Op, position: int) -> int:
    """On the first device a plain run takes half of the first rows of families and of families of two, a tenth of the others, and
    samples of dtypes after the first."""
    if position:
        return 48
    return 2 if op.name in FIRST or FAMILIES[family(op)] <= 2 else 10


def check(op: Op, dtype: torch.dtype, samples: list[tuple[Any, ...]], device: str, with_gradients: bool) -> None:
    """Runs `samples` in one graph, and compares values, gradients, and the bits of a second call."""
    torch._dynamo.reset()
    function = torch.compile(results_of, backend="ocl", dynamic=False)
    moved = [move(sample, device) for sample in samples]
    inputs: list[list[torch.Tensor]] = [[] for _ in samples]
    if with_gradients:
        pairs = [with_leaves(op, sample) for sample in moved]
        moved, inputs = [list(part) for part in zip(*pairs, strict=True)]
    got = function(op, moved)
    half = dtype in HALVES
    for sample, result in zip(samples, got, strict=True):
        plain = attempt(lambda s=sample: op.call(*s)) if half else None
        same(result, op.call(*widened(sample)), op, plain)
    values = to_cpu(got)
    if with_gradients:
        found = iter(gradients(got, [x for some in inputs for x in some]))
        for sample, some, result in zip(samples, inputs, got, strict=True):
            assert wanting_gradients(result), "the row promises gradients"
            plain = attempt(lambda s=sample: gradients_of(op, s)) if half else None
            same([next(found) for _ in some], gradients_of(op, widened(sample)), op, plain)
    torch.testing.assert_close(to_cpu(function(op, moved)), values, rtol=0, atol=0, equal_nan=True)


# Rows whose samples have thousands of operations each; a plain run takes the first sample only.
LONG = re.compile("svd|eigh|nuclear|grid_sample|lstm|gru")


def some_of(op: Op, samples: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns the first sample, and for a third of the rows another one; the row's name decides. What is particular to a
    sample is mostly its lowering, and no_device/graphs/test_lowering.py runs all samples."""
    lot = zlib.crc32(op.name.encode())
    if lot % 3 or len(samples) == 1 or LONG.search(op.name):
        return samples[:1]
    return [samples[0], samples[1 + lot % (len(samples) - 1)]]


@pytest.mark.parametrize("op, dtype", cases(OPS, one_in, every=96))
def test_op(op: Op, dtype: torch.dtype, ocl_device: str, sweep: bool) -> None:
    """A plain run compiles one or two samples of a row in one graph; `--sweep` compiles each sample alone, also without
    gradients."""
    before = debug.fallback_counts()
    samples, has_gradient = op.samples(dtype), op.gradient and dtype.is_floating_point
    for group in [[sample] for sample in samples] if sweep else [some_of(op, samples)]:
        check(op, dtype, group, ocl_device, has_gradient)
        if sweep and has_gradient:
            check(op, dtype, group, ocl_device, with_gradients=False)
    if not op.fallback:
        assert debug.fallback_counts() == before, "an op ran eagerly"
