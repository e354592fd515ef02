# tests/device/ops/test_random.py: distributions of random ops, compiled and eager; seeds, states, generators, checkpoints.
from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

from torch_ocl_compile import config
from torch_ocl_compile.reference.philox import philox_uniform

N = 40_000
SHAPE = (200, 200)


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(SHAPE, dtype=dtype)


def phi(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def steps(low: int, high: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the cumulative distribution function of uniform integers from low to high - 1."""
    return lambda x: ((x.floor() - low + 1) / (high - low)).clamp(0, 1)


def two_points(p: float, value: float = 1.0) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.where(x < value, 1 - p, 1.0)


def full(value: float) -> torch.Tensor:
    return torch.full(SHAPE, value)


# Name -> (function that draws on the default device, cumulative distribution function, mean, standard deviation). None:
# the distribution has no such value.
DRAWS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], torch.Tensor], float | None, float | None]] = {
    "rand": (lambda: torch.rand(SHAPE), lambda x: x, 0.5, 12**-0.5),
    "rand half": (lambda: torch.rand(SHAPE, dtype=torch.half), lambda x: x + 2**-12, 0.5, 12**-0.5),
    "rand bfloat16": (lambda: torch.rand(SHAPE, dtype=torch.bfloat16), lambda x: x + 2**-9, 0.5, 12**-0.5),
    "rand_like": (lambda: torch.rand_like(empty()), lambda x: x, 0.5, 12**-0.5),
    "randn": (lambda: torch.randn(SHAPE), phi, 0, 1),
    "randn_like": (lambda: torch.randn_like(empty()), phi, 0, 1),
    "normal_ 0.02": (lambda: empty().normal_(0, 0.02), lambda x: phi(x / 0.02), 0, 0.02),
    "normal_ bfloat16": (lambda: empty(torch.bfloat16).normal_(1, 0.5), lambda x: phi((x - 1) / 0.5), 1, 0.5),
    "normal of size": (lambda: torch.normal(1.0, 2.0, SHAPE, device=empty().device), lambda x: phi((x - 1) / 2), 1, 2),
    "normal of tensors": (lambda: torch.normal(full(1.0), full(2.0)), lambda x: phi((x - 1) / 2), 1, 2),
    "normal of a mean": (lambda: torch.normal(full(3.0), 0.5), lambda x: phi((x - 3) / 0.5), 3, 0.5),
    "normal of a deviation": (lambda: torch.normal(3.0, full(0.5)), lambda x: phi((x - 3) / 0.5), 3, 0.5),
    "uniform_": (lambda: empty().uniform_(-2, 3), lambda x: (x + 2) / 5, 0.5, 5 * 12**-0.5),
    "exponential_": (lambda: empty().exponential_(2.0), lambda x: 1 - torch.exp(-2 * x), 0.5, 0.5),
    "log_normal_": (lambda: empty().log_normal_(0, 0.25), lambda x: phi(x.log() / 0.25), math.exp(0.03125), None),
    "cauchy_": (lambda: empty().cauchy_(1, 2), lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5, None, None),
    "geometric_": (lambda: empty().geometric_(0.3), lambda x: 1 - 0.7 ** x.floor(), 1 / 0.3, math.sqrt(0.7) / 0.3),
    "bernoulli_": (lambda: empty().bernoulli_(0.3), two_points(0.3), 0.3, math.sqrt(0.21)),
    "bernoulli": (lambda: torch.bernoulli(full(0.3)), two_points(0.3), 0.3, math.sqrt(0.21)),
    "bernoulli_ of tensors": (lambda: empty().bernoulli_(full(0.3)), two_points(0.3), 0.3, math.sqrt(0.21)),
    "randint": (lambda: torch.randint(3, 10, SHAPE), steps(3, 10), 6, 2),
    "randint_like": (lambda: torch.randint_like(empty(), 5, 9), steps(5, 9), 6.5, math.sqrt(1.25)),
    "random_ to": (lambda: empty(torch.int32).random_(7), steps(0, 7), 3, 2),
    "random_ from": (lambda: empty(torch.int64).random_(-5, 2), steps(-5, 2), -2, 2),
    "random_ bytes": (lambda: empty(torch.int8).random_(), steps(0, 128), 63.5, math.sqrt((128**2 - 1) / 12)),
    "dropout": (lambda: F.dropout(full(1.0), 0.2), two_points(0.8, 1.25), 1, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name: str, compiled: bool, ocl_device: str) -> None:
    """Checks the Kolmogorov-Smirnov distance, mean and deviation. The same seed gives the same numbers; a second call
    gives others."""
    draw, cdf, mean, deviation = DRAWS[name]
    if compiled and name in ("rand", "rand half", "rand bfloat16", "randn") and torch.__version__ < (2, 12):
        pytest.skip("torch 2.11 compiles torch.rand and torch.randn for the CPU, whatever the default device")
    if compiled:
        torch._dynamo.reset()
        draw = torch.compile(draw, backend="ocl", options={"fallback": "error"})
    torch.ocl.reset_fallback_counts()
    with torch.device(ocl_device):
        torch.manual_seed(5)
        first = draw().cpu()
        second = draw().cpu()
        torch.manual_seed(5)
        again = draw().cpu()
    assert torch.ocl.fallback_counts() == {}
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    x = first.double().flatten().sort().values
    below = torch.arange(1, N + 1) / N
    last = torch.cat([x[1:] != x[:-1], torch.tensor([True])])  # True at the last of equal numbers.
    # A correct distribution exceeds it with probability 0.001.
    assert (cdf(x) - below)[last].abs().max() < 1.95 / math.sqrt(N)
    if mean is not None:
        assert abs(x.mean() - mean) < 4 * x.std() / math.sqrt(N)
    if deviation is not None:
        assert abs(x.std() / deviation - 1) < 0.03
    assert torch.isfinite(x).all()


def test_neighbours_are_independent(ocl_device: str) -> None:
    x = torch.randn(SHAPE, device=ocl_device).cpu().flatten()
    for lag in (1, 2, 200):
        assert abs((x[lag:] * x[:-lag]).mean()) < 4 / math.sqrt(N)
    a, b = (torch.randn(SHAPE, device=ocl_device).cpu() for _ in range(2))
    assert abs((a * b).mean()) < 4 / math.sqrt(N)


def test_uniform_stays_below_its_end(ocl_device: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert torch.rand(300_000, device=ocl_device, dtype=dtype).cpu().max() < 1
        assert torch.empty(300_000, device=ocl_device, dtype=dtype).uniform_(0, 4).cpu().max() < 4


def test_sizes_share_kernels(ocl_device: str) -> None:
    """Tensors of all sizes are prefixes of one sequence, so the numbers of a seed do not depend on which plan draws
    them."""
    rows = []
    for n in range(10, 20):
        torch.manual_seed(3)
        rows.append(torch.randn(n, device=ocl_device).cpu())
    for row in rows:
        torch.testing.assert_close(row, rows[-1][: len(row)], rtol=0, atol=0)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_recomputed_dropout_has_the_same_mask(compiled: bool, ocl_device: str) -> None:
    """The gradient of sum(dropout(x)) is the mask. It must be the mask of forward, whether it is recomputed or
    saved."""

    def block(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 1.0, 0.5)

    def call(x: torch.Tensor, again: bool) -> Any:
        y = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return y, y.sum()

    function = torch.compile(call, backend="ocl") if compiled else call
    for again in (False, True):
        x = torch.full((64, 64), 3.0, device=ocl_device, requires_grad=True)
        y, total = function(x, again)
        total.backward()
        torch.testing.assert_close(x.grad.cpu() * 3, y.detach().cpu())
        assert 0.4 < (y == 0).float().mean().item() < 0.6


@pytest.mark.parametrize("budget", [0.0, 0.2, 1.0])
def test_memory_budget_keeps_the_masks(budget: float, ocl_device: str) -> None:
    """With a budget of 0, torch recomputes everything but inputs. The random state must still be saved."""

    def two_dropouts(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.5).square().exp() - 1, 0.5)

    x = (torch.rand(64, 64, device=ocl_device) + 0.2).requires_grad_()
    with functorch_config.patch(activation_memory_budget=budget):
        y = torch.compile(two_dropouts, backend="ocl")(x)
        y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0)


def test_memory_budget_keeps_overwritten_inputs(ocl_device: str) -> None:
    def gradient(device: str, compiled: bool) -> torch.Tensor:
        torch._dynamo.reset()
        scale = torch.full((4,), 3.0, device=device)

        def step(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            y = x.sin() * (scale * 1.0)  # Recomputed from an input that is overwritten below.
            scale.add_(1)
            return y.exp()

        x = torch.linspace(0, 1, 4).to(device).requires_grad_()
        with functorch_config.patch(activation_memory_budget=0.0):
            (torch.compile(step, backend="ocl") if compiled else step)(x, scale.clone()).sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    torch.testing.assert_close(gradient(ocl_device, True), gradient("cpu", False))


def test_eager_and_compiled_draw_alike(ocl_device: str) -> None:
    """A seed gives the same numbers in eager and in compiled mode."""
    torch._dynamo.reset()
    for draw in (lambda: torch.randn(9, device=ocl_device), lambda: torch.randint(5, (9,), device=ocl_device)):
        torch.manual_seed(2)
        a = draw().cpu()
        torch.manual_seed(2)
        assert torch.equal(a, torch.compile(draw, backend="ocl")().cpu())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_orders_and_choices(compiled: bool, ocl_device: str) -> None:
    """randperm gives every permutation with equal probability; multinomial follows its weights and never takes a zero."""
    weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0, 4.0], device=ocl_device)

    def draw() -> tuple[torch.Tensor, ...]:
        rows = weights.expand(20_000, 6)
        return (
            torch.randperm(1000, device=ocl_device),
            torch.multinomial(weights, 20_000, True),
            torch.multinomial(rows, 1),
            torch.multinomial(rows, 3),
        )

    torch.ocl.reset_fallback_counts()
    torch.manual_seed(4)
    function = torch.compile(draw, backend="ocl", options={"fallback": "error"}) if compiled else draw
    order, many, one, three = (t.cpu() for t in function())
    assert torch.ocl.fallback_counts() == {}
    assert order.sort().values.tolist() == list(range(1000)) and order.tolist() != list(range(1000))
    assert abs(torch.corrcoef(torch.stack([order.float(), torch.arange(1000.0)]))[0, 1]) < 0.13
    expected = weights.cpu() / weights.cpu().sum()
    for drawn in (many, one[:, 0], three[:, 0]):
        found = torch.bincount(drawn, minlength=6) / len(drawn)
        assert (found - expected).abs().max() < 4 * math.sqrt(0.25 / len(drawn))
        assert found[0] == found[3] == 0
    assert (three.sort(1).values.diff(dim=1) > 0).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_dropout_of_16_bits(compiled: bool, ocl_device: str) -> None:
    """Numbers of bfloat16 would keep 127 of 256 elements, eight deviations from a half."""
    x = torch.ones(2**20, dtype=torch.bfloat16, device=ocl_device)
    torch.manual_seed(1)
    drop = torch.compile(F.dropout, backend="ocl", options={"fallback": "error"}) if compiled else F.dropout
    dropped = drop(x, 0.5)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert abs(dropped.float().mean().item() - 1) < 0.004


def test_ops_on_the_cpu_leave_its_generator_alone(ocl_device):
    """Dropout as a fallback on the CPU uses the device's seed. It does not change the numbers that another thread draws
    from the CPU's generator."""
    x = torch.ones(20_000, device=ocl_device)
    same, done = [], threading.Event()

    def dropped():
        torch.ocl.manual_seed_all(3)
        return torch.native_dropout(x, 0.5, True)[0].cpu()

    def drop_on():
        while not done.is_set() or len(same) < 6:
            same.append(torch.equal(dropped(), first))

    def drawn(pause):
        # torch.manual_seed would seed the devices, too.
        torch.default_generator.manual_seed(11)
        rows = []
        for _ in range(300):
            rows.append(torch.rand(50))
            time.sleep(pause)
        return torch.stack(rows)

    expected = drawn(0)
    with config.override(eager="cpu", warn_fallback=False):
        first = dropped()
        beside = threading.Thread(target=drop_on)
        beside.start()
        try:
            got = drawn(1e-3)
        finally:
            done.set()
            beside.join()
    assert 0.45 < (first != 0).float().mean() < 0.55
    assert len(same) > 5 and all(same) and torch.equal(got, expected)


NAN, INF = float("nan"), float("inf")
DRAWS_OF_WRONG_NUMBERS = {
    "multinomial": (lambda w: torch.multinomial(w, 1), ([1.0, NAN], [1.0, INF], [-1.0, 2.0], [0.0, 0.0]), [0.0, 2.0]),
    "multinomial, replaced": (
        lambda w: torch.multinomial(w, 3, replacement=True),
        ([1.0, NAN], [0.0, 0.0]),
        [0.0, 2.0],
    ),
    "bernoulli": (torch.bernoulli, ([1.5, 0.0], [-0.1, 0.0], [NAN, 0.0]), [0.0, 1.0]),
    "normal": (lambda s: torch.normal(torch.zeros_like(s), s), ([-1.0, 1.0], [NAN, 1.0]), [0.0, 1.0]),
}


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("name", DRAWS_OF_WRONG_NUMBERS)
def test_wrong_weights_and_probabilities(ocl_device: str, name: str, compiles: bool) -> None:
    draw, wrong, right = DRAWS_OF_WRONG_NUMBERS[name]
    run = torch.compile(draw, backend="ocl") if compiles else draw
    run(torch.tensor(right, device=ocl_device)).cpu()
    for weights in wrong:
        with pytest.raises(IndexError, match=name.partition(",")[0] + " expects"):
            run(torch.tensor(weights, device=ocl_device)).cpu()


# Vectors of whole and of broken blocks of four numbers, and parts of them. 16-bit copies take wider vectors.
@pytest.mark.parametrize("shape", [(1024,), (1023,), (7, 13), (3, 50257), (2, 12, 30)])
def test_uniform_numbers_are_those_of_the_definition(ocl_device: str, shape: tuple[int, ...]) -> None:
    def draw() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.rand(shape, device=ocl_device)
        return x, (x > 0.25).to(torch.uint8), x.mT.contiguous() if x.dim() > 1 else x.bfloat16()

    exact = philox_uniform(11, 0, shape)
    for run in (draw, torch.compile(draw, backend="ocl")):
        torch.ocl.manual_seed_all(11)
        x, drawn, other = (result.cpu() for result in run())
        assert torch.equal(x, exact)
        assert torch.equal(drawn, (exact > 0.25).to(torch.uint8))
        assert torch.equal(other, exact.mT if exact.dim() > 1 else exact.bfloat16())
