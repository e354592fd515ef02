# tests/device/ops/test_draws.py: numbers drawn by rejection: chi-square beside PyTorch's CPU, large and odd parameters, derivatives.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

N = 50_000
Draw = Callable[[torch.device], torch.Tensor]


def full(value: float, device: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((N,), value, dtype=dtype, device=device)


SAMPLES: dict[str, Draw] = {
    **{f"poisson {rate:g}": lambda d, r=rate: torch.poisson(full(r, d)) for rate in (0.2, 9.5, 10.5, 300, 1e5)},
    "poisson double": lambda d: torch.poisson(full(40, d, torch.double)),
    "poisson bfloat16": lambda d: torch.poisson(full(4, d, torch.bfloat16)),
    **{
        f"binomial {n:g} {p:g}": lambda d, n=n, p=p: torch.binomial(full(n, d), full(p, d))
        for n, p in ((7, 0.4), (50, 0.1), (60, 0.5), (500, 0.98), (2000, 0.7), (1e6, 3e-6), (1e6, 0.4))
    },
    "binomial double": lambda d: torch.binomial(full(90, d, torch.double), full(0.3, d, torch.double)),
    **{f"gamma {a:g}": lambda d, a=a: torch._standard_gamma(full(a, d)) for a in (0.05, 0.8, 1, 6, 2000)},
    "dirichlet": lambda d: torch._sample_dirichlet(torch.tensor([0.3, 1.0, 4.0], device=d).expand(N, 3))[:, 1],
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", SAMPLES)
def test_distribution(name: str, compiled: bool, ocl_device: str) -> None:
    """Two samples, counted in bins of equal weight, come from one distribution if their chi-square statistic is small. The same seed
    gives the same numbers, a second call gives others."""
    draw = SAMPLES[name]
    run = torch.compile(draw, backend="ocl", options={"fallback": "error"}) if compiled else draw
    torch.ocl.reset_fallback_counts()
    torch.manual_seed(8)
    state = torch.ocl.get_rng_state(ocl_device)
    ours, next_ones = (run(torch.device(ocl_device)).cpu() for _ in range(2))
    torch.ocl.set_rng_state(state, ocl_device)
    again = run(torch.device(ocl_device)).cpu()
    assert torch.ocl.fallback_counts() == {}
    assert torch.equal(ours, again)
    assert not torch.equal(ours, next_ones)
    theirs = draw(torch.device("cpu"))
    assert ours.dtype == theirs.dtype
    x, y = ours.double(), theirs.double()
    edges = torch.cat([x, y]).quantile(torch.linspace(0, 1, 41, dtype=torch.double)[1:-1]).unique()
    a, b = (torch.bucketize(v, edges).bincount(minlength=len(edges) + 1).double() for v in (x, y))
    used = a + b >= 10
    statistic, freedom = float((((a - b) ** 2) / (a + b))[used].sum()), int(used.sum()) - 1
    assert statistic < freedom + 4.5 * math.sqrt(2 * max(freedom, 1)) + 6
    assert abs(x.mean() - y.mean()) < 5 * (x.std() + y.std()) / 2 * math.sqrt(2 / N)


def test_odd_parameters(ocl_device: str) -> None:
    """No parameter makes a kernel wait for ever. PyTorch's CPU gives the same."""
    ones = torch.ones(3, device=ocl_device)
    rates = torch.tensor([0.0, math.nan, 1e30, math.inf], device=ocl_device)
    made = torch.poisson(rates).cpu()
    assert made[0] == 0 and made[1].isnan() and abs(made[2] / 1e30 - 1) < 1e-6
    assert torch.binomial(5 * ones, torch.tensor([0.0, 1.0, math.nan], device=ocl_device)).cpu()[:2].tolist() == [0, 5]
    assert torch.binomial(0 * ones, 0.5 * ones).cpu().tolist() == [0, 0, 0]
    made = torch._standard_gamma(torch.tensor([0.0, 1e-6, 1e12, math.inf], device=ocl_device)).cpu()
    assert made[3] == math.inf
    tiny = torch.finfo(torch.float32).tiny
    assert made[0] == tiny and made[1] >= tiny and abs(made[2] / 1e12 - 1) < 1e-4
    small = torch._sample_dirichlet(torch.full((1000, 4), 1e-4, device=ocl_device)).cpu()
    assert (small.amax(-1) > 0.99).float().mean() > 0.98  # One number has nearly all.
    assert torch.poisson(torch.ones(0, 3, device=ocl_device)).shape == (0, 3)
    assert torch.binomial(ones[:, None] * 9, ones[:2] * 0.5).shape == (3, 2)


def slope_of_gamma(a: float, x: float) -> float:
    """Returns -(dF / da) / F' in 40 digits."""
    with mpmath.workdps(40):
        h = mpmath.mpf(a) * mpmath.mpf(10) ** -12
        ends = (0, x) if x < a else (x, mpmath.inf)
        high, low = (mpmath.gammainc(mpmath.mpf(a) + s, *ends, regularized=True) for s in (h, -h))
        density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))
        return float((low - high) / (2 * h) / density * (1 if x < a else -1))


def slope_of_beta(x: float, a: float, total: float) -> float:
    """Returns -(dF / da) / F' / (1 - x) in 40 digits, for the distribution Beta(a, total - a)."""
    with mpmath.workdps(40):
        h, b = mpmath.mpf(a) * mpmath.mpf(10) ** -12, mpmath.mpf(total) - mpmath.mpf(a)
        high, low = (
            mpmath.betainc(a + s, b, 0, x, regularized=True)
            if x < 0.5
            else -mpmath.betainc(b, a + s, 0, 1 - mpmath.mpf(x), regularized=True)
            for s in (h, -h)
        )
        density = mpmath.exp((a - 1) * mpmath.log(x) + (b - 1) * mpmath.log1p(-mpmath.mpf(x))) / mpmath.beta(a, b)
        return float((low - high) / (2 * h) / density / (1 - mpmath.mpf(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_derivatives(dtype: torch.dtype, ocl_device: str) -> None:
    limit = 3e-5 if dtype == torch.float32 else 1e-12
    pairs = [(a, a * f) for a in (0.01, 0.4, 1, 6, 19, 21, 300) for f in (1e-4, 0.8, 1.02, 2)]
    a, x = torch.tensor(pairs, dtype=dtype).unbind(-1)
    keep = [i for i, (p, v) in enumerate(zip(a.tolist(), x.tolist(), strict=True)) if abs(v - p) < 6 * math.sqrt(p) + 3]
    a, x = a[keep], x[keep]
    exact = torch.tensor([slope_of_gamma(*p) for p in zip(a.tolist(), x.tolist(), strict=True)], dtype=torch.double)
    made = torch._standard_gamma_grad(a.to(ocl_device), x.to(ocl_device)).cpu()
    torch.testing.assert_close(made.double(), exact, rtol=limit, atol=0)
    # PyTorch's own has an error of up to 0.001, and more for tiny alphas.
    torch.testing.assert_close(made.double(), torch._standard_gamma_grad(a.double(), x.double()), rtol=0.01, atol=0)
    betas = [(0.01, 0.01), (0.3, 3.0), (0.9, 0.01), (2.0, 7.0), (15.0, 0.5), (19.0, 90.0), (60.0, 50.0)]
    points = [
        (v, a, a + b) for a, b in betas for v in (0.03, a / (a + b), 0.7) if abs(v - a / (a + b)) < 4 / math.sqrt(a + b)
    ]
    x, a, total = torch.tensor(points, dtype=dtype).unbind(-1)
    exact = torch.tensor(
        [slope_of_beta(*p) for p in zip(x.tolist(), a.tolist(), total.tolist(), strict=True)], dtype=torch.double
    )
    made = torch._dirichlet_grad(*(v.to(ocl_device) for v in (x, a, total))).cpu()
    torch.testing.assert_close(made.double(), exact, rtol=limit, atol=0)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_of_distributions(compiled: bool, ocl_device: str) -> None:
    """A gamma number has the mean alpha, whose derivative is 1. The first of Dirichlet's numbers has the mean alpha_0 / sum(alpha),
    whose derivative with respect to alpha_0 is (sum(alpha) - alpha_0) / sum(alpha)^2."""

    def step(alpha: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        gamma = (
            torch.distributions.Gamma(alpha, torch.ones_like(alpha), validate_args=False).rsample((N,)).mean(0).sum()
        )
        rows = torch.distributions.Dirichlet(weights, validate_args=False).rsample((N,))
        return gamma + rows[:, 0].mean()

    torch.ocl.reset_fallback_counts()
    torch.manual_seed(2)
    alpha = torch.tensor([0.5, 2.0, 30.0], device=ocl_device, requires_grad=True)
    weights = torch.tensor([0.5, 1.0, 2.5], device=ocl_device, requires_grad=True)
    (torch.compile(step, backend="ocl") if compiled else step)(alpha, weights).backward()
    assert torch.ocl.fallback_counts() == {}
    assert alpha.grad is not None and weights.grad is not None
    torch.testing.assert_close(alpha.grad.cpu(), torch.ones(3), rtol=0.03, atol=0)
    torch.testing.assert_close(weights.grad.cpu(), torch.tensor([3.5, -0.5, -0.5]) / 16, rtol=0, atol=0.01)
