# tests/device/ops/test_counted_ops.py: eager ops whose result size depends on the data stay on the device.
"""They are computed by other eager ops on the device. The host reads only the size of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile.eager import compile as eager


def numbers(*shape: int) -> torch.Tensor:
    """Returns a tensor of whole numbers from -2 to 2."""
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * 7 % 5 - 2).view(shape)


MASK = numbers(4, 3, 5) > 0
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nonzero": (torch.nonzero, (numbers(4, 3, 5),)),
    "nonzero vector": (torch.nonzero, (numbers(7).to(torch.int64),)),
    "nonzero number": (torch.nonzero, (torch.tensor(3.0),)),
    "nonzero none": (torch.nonzero, (torch.zeros(4, 3),)),
    "nonzero empty": (torch.nonzero, (torch.zeros(4, 0),)),
    "nonzero nan": (torch.nonzero, (torch.tensor([float("nan"), -0.0, 1.0]),)),
    "nonzero transposed": (torch.nonzero, (numbers(4, 6).t(),)),
    "nonzero long": (torch.nonzero, (numbers(5000) > 0,)),
    "nonzero static": (lambda x: torch.nonzero_static(x, size=9, fill_value=-7), (numbers(4, 3, 5),)),
    "nonzero static, few": (lambda x: torch.nonzero_static(x, size=99), (numbers(4, 3, 5),)),
    "nonzero static, none": (lambda x: torch.nonzero_static(x, size=0), (numbers(4, 3),)),
    "nonzero static, number": (lambda x: torch.nonzero_static(x, size=3), (torch.tensor(3.0),)),
    "argwhere": (torch.argwhere, (MASK,)),
    "masked_select": (torch.masked_select, (numbers(4, 3, 5), MASK)),
    "masked_select broadcast": (torch.masked_select, (numbers(5), MASK)),
    "mask": (lambda x, m: x[m], (numbers(4, 3, 5), MASK)),
    "mask of rows": (lambda x, m: x[m], (numbers(4, 3, 5), torch.tensor([True, False, True, True]))),
    "mask and numbers": (lambda x, m, i: x[:, m, i], (numbers(4, 3, 5), torch.tensor([True, False, True]), torch.tensor([4, 0]))),
    "put at a mask": (lambda x, m, v: x.clone().index_put_((m,), v), (numbers(4, 3, 5), MASK, torch.arange(float(MASK.sum())))),
    "take": (torch.take, (numbers(4, 3), torch.tensor([[0, -1], [11, 5]]))),
    "take none": (torch.take, (numbers(4, 3), torch.zeros(0, dtype=torch.int64))),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 1), (numbers(4, 3, 5), torch.tensor([2, 0, 3]))),
    "repeat_interleave of none": (torch.repeat_interleave, (torch.zeros(0, dtype=torch.int64),)),
    "repeat_interleave of zeros": (torch.repeat_interleave, (torch.zeros(3, dtype=torch.int32),)),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (numbers(4, 3, 5),)),
    "unique values": (torch.unique, (numbers(9).to(torch.int32),)),
    "unique bool": (torch.unique, (MASK,)),
    "unique long": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (numbers(9000).round(),)),
    "unique of equal numbers": (lambda x: torch.unique(x, return_counts=True), (torch.ones(3000),)),
    "unique nan": (torch.unique, (torch.tensor([float("nan"), 1.0, -0.0, float("nan"), 0.0]),)),
    "unique empty": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (numbers(0),)),
    "unique rows": (lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), (numbers(20).view(10, 2).round(),)),
    "unique columns": (lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True), (numbers(2, 11),)),
    "unique_consecutive": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), (torch.tensor([1, 1, 2, 2, 1, 3, 3]),),
    ),
    "unique_consecutive rows": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0),
        (torch.tensor([[1, 1], [1, 1], [2, 0], [1, 1]]),),
    ),
    "equal": (torch.equal, (numbers(4, 3), numbers(4, 3))),
    "not equal": (torch.equal, (numbers(4, 3), -numbers(4, 3))),
    "other sizes": (torch.equal, (numbers(4, 3), numbers(3, 4))),
    "equal and empty": (torch.equal, (numbers(0), numbers(0))),
    "nan": (torch.equal, (torch.tensor([float("nan")]), torch.tensor([float("nan")]))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(ocl_device: Any, name: str) -> None:
    function, args = CASES[name]
    before = torch.ocl.fallback_counts()
    got = tree_leaves(function(*(a.to(ocl_device) for a in args)))
    assert torch.ocl.fallback_counts() == before
    expected = tree_leaves(function(*args))
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)
        else:
            assert ours == theirs


def test_a_new_mask_each_time(ocl_device: Any) -> None:
    """After a few different result sizes, one plan with symbolic sizes serves all of them."""
    x = numbers(40)
    for k in range(12):
        mask = torch.arange(40) % (k + 2) == 0
        torch.testing.assert_close(x.to(ocl_device)[mask.to(ocl_device)].cpu(), x[mask])


SIZED: dict[str, Callable[[torch.Tensor], Any]] = {
    "unique": lambda x: torch.unique(x, return_inverse=True),
    "unique_consecutive": torch.unique_consecutive,
    "bincount": lambda x: x.abs().long().bincount(),
    "kthvalue": lambda x: x.kthvalue(2, 0).values,
    "median": lambda x: (x.median(0).values, x.nanmedian(0).values),
    "conditions": lambda x: (x > 1).logical_and(x < 9).logical_or(x == 3).logical_xor(x != 5).logical_not(),
    "sums": lambda x: (x.logsumexp(0), torch.nn.functional.soft_margin_loss(x, x.sign())),
}


@pytest.mark.parametrize("name", SIZED)
def test_a_new_size_each_time(ocl_device: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few sizes, nothing is compiled any more."""
    made, original = list[str](), eager._recipe

    def spy(name: str, *rest: Any, **named: Any) -> Any:
        made.append(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(eager, "_recipe", spy)
    for k in range(16):
        x = (torch.arange(20 + 6 * k) % (7 + 2 * k)).float()
        torch.testing.assert_close(
            [t.cpu() for t in tree_leaves(SIZED[name](x.to(ocl_device)))], tree_leaves(SIZED[name](x))
        )
        if k == 10:
            made.clear()
    assert not made, made


def test_gradient_through_a_mask(ocl_device: Any) -> None:
    x, mask = numbers(4, 3, 5), MASK

    def gradient(device: Any) -> torch.Tensor:
        leaf = x.to(device).requires_grad_()
        (leaf[mask.to(device)].pow(2).sum() + leaf.masked_select(mask.to(device)).sum()).backward()
        assert leaf.grad is not None
        return leaf.grad.cpu()

    before = torch.ocl.fallback_counts()
    ours = gradient(ocl_device)
    assert torch.ocl.fallback_counts() == before
    torch.testing.assert_close(ours, gradient("cpu"))
