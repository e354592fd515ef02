# tests/device/ops/test_eager_conditions.py: eager ops whose traces depend on conditions on sizes or floats: few plans,
# right results.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_ocl_compile import _C
from torch_ocl_compile.eager import reasons


@pytest.fixture
def compiled(own_cache: None) -> Callable[[], int]:
    """Returns a function that returns the number of compilations since its last call."""
    seen = [_C.eager_counters()["compiled"]]

    def count() -> int:
        seen.append(_C.eager_counters()["compiled"])
        return seen[-1] - seen[-2]

    return count


def image(n: int) -> torch.Tensor:
    return torch.randn(2, 3, n + 6, n + 9)


def matrix(n: int) -> torch.Tensor:
    return torch.randn(n + 2, n + 4)


# Ops whose trace branches on a size or a float, and how many compilations 60 sizes may need at most: four plans for
# exact sizes, and one for each branch.
OPS: dict[str, tuple[Callable[..., Any], Callable[[int], torch.Tensor], int]] = {
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), image, 6),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), image, 6),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), image, 6),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3).to(x.device), stride=2), image, 6),
    "instance_norm": (F.instance_norm, image, 6),
    "renorm": (lambda x: torch.renorm(x, 2.0, 0, 1.0), matrix, 7),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, 2.0, dim=1), matrix, 6),
    "addmm": (lambda x: torch.addmm(x, x, x, beta=0.5, alpha=1.5), lambda n: torch.randn(n + 5, n + 5), 6),
    "masked_fill_": (lambda x: x.clone().masked_fill_(x > 0, -float("inf")), matrix, 12),
    "glu": (F.glu, lambda n: torch.randn(n + 2, 2 * n + 6), 14),
    "max_pool1d of a length of one window": (lambda x: F.max_pool1d(x, 2), lambda n: torch.randn(2, 3, n + 1), 12),
    # Parts of tensors of which only the strides change, as masks in text generation.
    "columns": (lambda x: x[:, :2] + x[:, 1:3], lambda n: torch.randn(3, n + 4), 6),
    "columns of different tensors": (lambda x: x[:2, :2] * x.t().contiguous()[1:3, :2], lambda n: torch.randn(n + 4, 30), 7),
    "the last row of each batch": (lambda x: x[:, -1] @ torch.ones(4, 2).to(x.device), lambda n: torch.randn(3, n + 4, 4), 6),
    "written columns": (lambda x: x.clone()[:, 1:3].mul_(x[:, :2]), lambda n: torch.randn(3, n + 4), 6),
    "rows and columns": (lambda x: x.transpose(0, 2)[:, :2].softmax(0), lambda n: torch.randn(n + 2, 3, n + 4), 7),
    "windows that overlap": (lambda x: x.as_strided((3, 90), (len(x) // 3 - 32, 1)) * 2, lambda n: torch.randn(3 * n + 100), 6),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_few_plans_serve_many_sizes(ocl_device: str, compiled: Callable[[], int], name: str) -> None:
    call, make, most = OPS[name]
    torch.ocl.reset_fallback_counts()
    compiled()
    for n in range(1, 61):
        x = make(n)
        torch.testing.assert_close(call(x.to(ocl_device)).cpu(), call(x), rtol=1e-4, atol=1e-4)
    assert not torch.ocl.fallback_counts(), reasons()
    assert compiled() <= most


def test_each_float_that_decides_has_a_plan(ocl_device: str, compiled: Callable[[], int]) -> None:
    """The order of a norm is a constant in its graph, so each order needs a plan of its own."""
    for n in range(2, 30):
        x = matrix(n)
        for order in (2.0, 1.0, 3.5):
            found = torch.linalg.vector_norm(x.to(ocl_device), order, dim=0)
            torch.testing.assert_close(found.cpu(), torch.linalg.vector_norm(x, order, dim=0), rtol=1e-4, atol=1e-4)
    assert compiled() <= 4 + 2 + 3


def test_later_processes_read_the_plans(ocl_device: str, compiled: Callable[[], int]) -> None:
    """A plan from the cache is used only for calls that fulfil its conditions. Later processes are simulated: the plans
    in memory are dropped."""
    orders = (2.0, 1.0, 3.5)

    def run(sizes: range) -> None:
        for n in sizes:
            for order in orders:
                x = matrix(n)
                found = torch.linalg.vector_norm(x.to(ocl_device), order, dim=0)
                torch.testing.assert_close(found.cpu(), torch.linalg.vector_norm(x, order, dim=0), rtol=1e-4, atol=1e-4)

    run(range(2, 9))
    before = _C.eager_counters()
    _C.forget_eager_plans()
    run(range(20, 30))
    after = _C.eager_counters()
    assert after["compiled"] == before["compiled"] and after["rejected"] == before["rejected"]
    assert after["from_cache"] - before["from_cache"] == len(orders)


def test_eye(ocl_device: str) -> None:
    """PyTorch's own formula counts in a type that depends on the size."""
    torch.ocl.reset_fallback_counts()
    compiled = torch.compile(torch.eye, backend="ocl", dynamic=False)
    for sizes in ((3,), (255, 256), (300, 7), (70000, 2)):
        for make in (torch.eye, compiled):
            assert torch.equal(make(*sizes, device=ocl_device).cpu(), torch.eye(*sizes))
    assert not torch.ocl.fallback_counts(), reasons()


def test_a_reason_is_that_of_the_op(ocl_device: str) -> None:
    """An op without a rule for fake tensors runs once while it is traced; that run is not what is told."""
    torch.ocl.reset_fallback_counts()
    torch._compute_linear_combination(*(torch.ones(3, 3, device=ocl_device) for _ in range(2)))
    assert torch.ocl.fallback_counts() == {"aten::_compute_linear_combination": 1}
    assert reasons() == {"aten::_compute_linear_combination": "aten._compute_linear_combination.default: no lowering"}
