# tests/device/ops/test_sparse_embedding.py: sparse gradients of embeddings, and optimizers that take them.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

Tensor = torch.Tensor
ROWS = torch.tensor([[1, 3, 1], [5, 0, 3]])


class Words(nn.Module):
    def __init__(self, bag: bool, padding: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        made = nn.EmbeddingBag(6, 4, mode="mean", sparse=True) if bag else nn.Embedding(6, 4, padding, sparse=True)
        self.table: nn.Module = made

    def forward(self, index: Tensor) -> Tensor:
        return self.table(index).square().sum()


def trained(device: str, make: Callable[[Any], torch.optim.Optimizer], bag: bool, compiled: bool) -> list[Tensor]:
    # PyTorch cannot trace a sparse gradient without the rows of the padding.
    model = Words(bag, None if compiled else 0).to(device)
    run = torch.compile(model, backend="ocl", fullgraph=True) if compiled and device != "cpu" else model
    optimizer = make(model.parameters())
    for step in range(3):
        optimizer.zero_grad(set_to_none=step != 1)
        run((ROWS + step).to(device) % 6).backward()
        optimizer.step()
    (weight,) = model.parameters()
    assert weight.grad is not None and weight.grad.is_sparse and weight.grad.device == weight.device
    return [weight.detach().cpu(), weight.grad.cpu().to_dense()]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.sampled(first=2, every=0)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, ocl_device: str) -> None:
    for bag in (False, True):
        torch.ocl.reset_fallback_counts()
        have = trained(ocl_device, OPTIMIZERS[name], bag, compiled=False)
        assert torch.ocl.fallback_counts() == {}
        torch.testing.assert_close(have, trained("cpu", OPTIMIZERS[name], bag, compiled=False))


@pytest.mark.parametrize("bag", [False, True], ids=["embedding", "bag"])
def test_compiled(bag: bool, ocl_device: str) -> None:
    torch.ocl.reset_fallback_counts()
    have = trained(ocl_device, OPTIMIZERS["SGD"], bag, compiled=True)
    assert torch.ocl.fallback_counts() == {}
    torch.testing.assert_close(have, trained("cpu", OPTIMIZERS["SGD"], bag, compiled=True))


def test_gradients_are_added_up_in_a_fixed_order(ocl_device: str) -> None:
    torch.manual_seed(0)
    index, weight = torch.randint(50, (4000,)).to(ocl_device), torch.randn(50, 3).to(ocl_device).requires_grad_()
    factor = torch.randn(4000, 3).to(ocl_device)
    sums = []
    for _ in range(2):
        (grad,) = torch.autograd.grad((nn.functional.embedding(index, weight, sparse=True) * factor).sum(), weight)
        sums.append(grad.coalesce().values().cpu())
    assert torch.equal(*sums)
    want = torch.zeros(50, 3).index_add_(0, index.cpu(), factor.cpu())
    torch.testing.assert_close(sums[0], want, rtol=1e-5, atol=1e-5)
