# tests/device/test_ops.py: rows of op_table on every OpenCL device found, forward and backward, against the CPU.
"""The reference is PyTorch on the CPU in the same dtype. Results must not depend on the run: each is computed twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from tests.op_table import OPS, Op
from torch_ocl_compile import debug

# The eager kernels behind these are the point of the row.
MAY_FALL_BACK = {"cumsum_fallback", "conv3d"}


def move(sample: Any, device: str) -> Any:
    """Views stay views: strides and offsets are part of the sample."""

    def one(x: torch.Tensor) -> torch.Tensor:
        base = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(device)
        return base.as_strided(x.shape, x.stride(), x.storage_offset())

    return tree_map_only(torch.Tensor, one, sample)


def leaves(op: Op, sample: tuple[Any, ...]) -> list[torch.Tensor]:
    """Turns the floating-point arguments into leaves that want gradients."""
    found = []
    for i, x in enumerate(sample):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and i not in op.constants:
            found.append(x.detach().requires_grad_())
    return found


def gradients(op: Op, call: Any, sample: tuple[Any, ...]) -> list[Any]:
    inputs = leaves(op, sample)
    outputs = [o for o in tree_flatten(call(*sample))[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    if not inputs or not outputs:
        return []
    weights = [(torch.arange(o.numel()).view(o.shape) % 7 + 1).to(o.dtype).to(o.device) for o in outputs]
    return list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def to_cpu(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), value)


def same(got: Any, expected: Any, op: Op) -> None:
    torch.testing.assert_close(to_cpu(got), to_cpu(expected), rtol=op.rtol, atol=op.atol, equal_nan=True)


def cases() -> list[Any]:
    return [pytest.param(op, d, id=f"{op.name}-{str(d).removeprefix('torch.')}") for op in OPS for d in op.dtypes]


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("op, dtype", cases())
def test_op(op: Op, dtype: torch.dtype, ocl_device: str) -> None:
    torch._dynamo.reset()
    before = debug.fallback_counts()
    function = torch.compile(op.call, backend="ocl", dynamic=False)
    for sample in op.samples(dtype):
        moved = move(sample, ocl_device)
        got = function(*moved)
        same(got, op.call(*sample), op)
        torch.testing.assert_close(to_cpu(function(*moved)), to_cpu(got), rtol=0, atol=0, equal_nan=True)
        if op.gradient and dtype.is_floating_point:
            same(gradients(op, function, move(sample, ocl_device)), gradients(op, op.call, sample), op)
    if op.name not in MAY_FALL_BACK:
        assert debug.fallback_counts() == before, "an op ran eagerly"
