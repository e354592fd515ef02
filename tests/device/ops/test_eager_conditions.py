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


# Ops with a float that changes with each call, whose schema takes no Scalar but a float, and the shape of their tensors.
FLOATS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "batch_norm": (lambda x, v: F.batch_norm(x, None, None, training=True, eps=v), (2, 3, 5, 6)),
    "layer_norm": (lambda x, v: F.layer_norm(x, x.shape[-1:], eps=v), (8, 9)),
    "group_norm": (lambda x, v: F.group_norm(x, 3, eps=v), (2, 6, 5)),
    "huber_loss": (lambda x, v: F.huber_loss(x, -x, delta=v), (8, 9)),
    "smooth_l1_loss": (lambda x, v: F.smooth_l1_loss(x, -x, beta=v), (8, 9)),
    "renorm": (lambda x, v: x.renorm(2, 0, v), (8, 9)),
    "logit": (lambda x, v: torch.logit(x.sigmoid(), eps=v / 10), (8, 9)),
    "softshrink": (F.softshrink, (8, 9)),
    # Distributions, as numbers that do not depend on what is drawn.
    "normal_": (lambda x, v: x.clone().normal_(1e6 * v, v).mean() / 1e6, (8, 9)),
    "uniform_": (lambda x, v: (lambda u: (u >= v) & (u < 3 * v) & (abs(u.mean() / v - 2) < 0.5))(x.clone().uniform_(v, 3 * v)), (8, 9)),
    "exponential_": (lambda x, v: (lambda e: e.min() / e.mean() < 0.2)(x.clone().exponential_(v)), (8, 9)),
    "bernoulli_": (lambda x, v: (lambda b: ((b == 0) | (b == 1)) & (abs(b.mean() - v / 4) < 0.3))(x.clone().bernoulli_(v / 4)), (8, 9)),
    "dropout": (lambda x, v: F.dropout(x, v / 4).abs().amax((0, 1)) * (1 - v / 4), (99, 9, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
def test_few_plans_serve_many_floats(ocl_device: str, compiled: Callable[[], int], name: str) -> None:
    """Four plans for the first numbers, then one for all, which later processes read."""
    call, shape = FLOATS[name]
    torch.manual_seed(0)
    x = torch.ones(shape) if name == "dropout" else torch.randn(shape)
    on_device = x.to(ocl_device)
    for k in range(30):
        value = 0.3 + 0.07 * k
        torch.testing.assert_close(call(on_device, value).cpu(), call(x, value), rtol=1e-4, atol=1e-4)
        if k == 9:
            compiled()
        if k == 19:
            _C.forget_eager_plans()
    assert compiled() == 0


# Ops with an integer that says how much or how far.
INTEGERS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "roll": lambda x, k: x.roll((k, 3), (0, 1)),
    "topk": lambda x, k: x.topk(k),
    "kthvalue": lambda x, k: x.kthvalue(k),
    "tril": lambda x, k: x.tril(k),
    "triu_": lambda x, k: x.clone().triu_(k),
    # Random integers, as what does not depend on what is drawn.
    "randperm": lambda x, k: torch.randperm(7 * k, device=x.device).sort().values,
    "randint": lambda x, k: (lambda r: ((r >= 0) & (r < k)).all() & (r == k - 1).any())(torch.randint(k, (999,), device=x.device)),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_few_plans_serve_many_integers(ocl_device: str, compiled: Callable[[], int], name: str) -> None:
    call = INTEGERS[name]
    x = torch.randn(9, 40)
    on_device = x.to(ocl_device)
    for k in [*range(2, 8), *range(1, 40)]:
        torch.testing.assert_close(call(on_device, k), call(x, k), check_device=False)
        if k == 11:  # 1 and sizes of x have plans of their own.
            compiled()
    assert compiled() == 0


def test_numbers_that_are_refused_whatever_was_called_before(ocl_device: str) -> None:
    """Once a plan serves all numbers, those that a distribution does not accept are errors still."""
    x = torch.ones(4, device=ocl_device)
    for k in range(9):
        x.normal_(0.0, k / 10)
        x.uniform_(k / 10, k / 5 + 1)
    with pytest.raises(RuntimeError, match="but found std -1"):
        x.normal_(0.0, -1.0)
    with pytest.raises(RuntimeError, match="found from=2 > to=1"):
        x.uniform_(2.0, 1.5)
    assert 8 < x.uniform_(8.0, 9.0).mean() < 9 and abs(x.normal_(50.0, 0.1).mean() - 50) < 1


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
