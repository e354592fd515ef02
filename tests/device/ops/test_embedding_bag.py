# tests/device/ops/test_embedding_bag.py: the tensors that aten._embedding_bag returns for its backward pass.
from __future__ import annotations

from typing import Any

import pytest
import torch

INDICES, WEIGHT = torch.tensor([0, 1, 2, 1, 4, 3]), torch.arange(15.0).reshape(5, 3).sin()
SUM, MEAN, MAX = 0, 1, 2
OPS = [torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("padding", [-1, 1])
@pytest.mark.parametrize("last", [False, True], ids=["", "last offset"])
@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
@pytest.mark.parametrize("op", OPS, ids=["", "forward only"])
@pytest.mark.sampled(first=2, every=2)
def test_sizes_of_what_backward_needs(
    op: Any, mode: int, last: bool, padding: int, compiled: bool, ocl_device: str
) -> None:
    """The sizes are those of CUDA, as docs/supported.md says. The sums are those of the CPU."""
    offsets = torch.tensor([0, 2, 2, 6] if last else [0, 2, 2])

    def bags(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> list[torch.Tensor]:
        return list(op(weight, indices, offsets, False, mode, False, None, last, padding))

    expected = bags(WEIGHT, INDICES, offsets)
    call = torch.compile(bags, backend="ocl") if compiled else bags
    sums, bag_of_index, size_of_bag, maxima = call(*(x.to(ocl_device) for x in (WEIGHT, INDICES, offsets)))
    torch.testing.assert_close(sums.cpu(), expected[0])
    assert sums.stride() == expected[0].stride()
    assert bag_of_index.tolist() == [0, 0, 2, 2, 2, 2]
    assert size_of_bag.shape == offsets.shape
    if mode != SUM:
        assert size_of_bag.tolist()[:3] == expected[2].tolist()[:3]
    assert maxima.shape == ((3, 3) if mode == MAX else (0,))
