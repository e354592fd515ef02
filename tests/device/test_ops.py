# tests/device/test_ops.py: rows of op_table on every OpenCL device found, forward and backward, against the CPU.
"""The reference is PyTorch on the CPU in the same dtype, for halves in float32: PyTorch's own may round in between.
Results must not depend on the run: each is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from tests.op_row import HALVES, Op, same, to_cpu, widened
from tests.op_table import OPS
from torch_ocl_compile.compile import debug


def move(sample: Any, device: str) -> Any:
    """Views stay views: strides and offsets are part of the sample."""

    def one(x: torch.Tensor) -> torch.Tensor:
        base = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(device)
        return base.as_strided(x.shape, x.stride(), x.storage_offset())

    return tree_map_only(torch.Tensor, one, sample)


def with_leaves(op: Op, sample: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[torch.Tensor]]:
    """The sample with its floating-point arguments as leaves that want gradients, and these leaves."""
    arguments, found = list(sample), []
    for i, x in enumerate(sample):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and i not in op.constants:
            arguments[i] = x.detach().requires_grad_()
            found.append(arguments[i])
    return tuple(arguments), found


def gradients(op: Op, call: Any, sample: tuple[Any, ...]) -> list[Any]:
    arguments, inputs = with_leaves(op, sample)
    outputs = [o for o in tree_flatten(call(*arguments))[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    assert inputs and outputs, "the row promises gradients"
    weights = [(torch.arange(o.numel()).view(o.shape) % 7 + 1).to(o.dtype).to(o.device) for o in outputs]
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def attempt(call: Callable[[], Any]) -> Any:
    """What PyTorch's CPU kernels make of it; None where they have no halves."""
    try:
        return call()
    except (RuntimeError, NotImplementedError):
        return None


def cases() -> list[Any]:
    return [pytest.param(op, d, id=f"{op.name}-{str(d).removeprefix('torch.')}") for op in OPS for d in op.dtypes]


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("op, dtype", cases())
def test_op(op: Op, dtype: torch.dtype, ocl_device: str) -> None:
    torch._dynamo.reset()
    before = debug.fallback_counts()
    function = torch.compile(op.call, backend="ocl", dynamic=False)
    for sample in op.samples(dtype):
        moved = move(sample, ocl_device)
        got = function(*moved)
        half = dtype in HALVES
        same(got, op.call(*widened(sample)), op, attempt(lambda s=sample: op.call(*s)) if half else None)
        torch.testing.assert_close(to_cpu(function(*moved)), to_cpu(got), rtol=0, atol=0, equal_nan=True)
        if op.gradient and dtype.is_floating_point:
            plain = attempt(lambda s=sample: gradients(op, op.call, s)) if half else None
            same(gradients(op, function, move(sample, ocl_device)), gradients(op, op.call, widened(sample)), op, plain)
    if not op.fallback:
        assert debug.fallback_counts() == before, "an op ran eagerly"
