# tests/device/ops/test_eager_integers.py: eager ops with integers: numbers that change, histograms, the least integer; plans found again.
from __future__ import annotations

import pytest
import torch

from tests.device.ops.test_eager import X, check, compiled  # noqa: F401  (a fixture)

INTEGER_OPS = ("add", "mul", "sub", "eq", "ne", "lt", "fmod", "remainder", "floor_divide", "bitwise_and", "true_divide")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("compiles", [False, True])
def test_histogram_of_integers(ocl_device: str, dtype: torch.dtype, compiles: bool) -> None:
    """PyTorch's CPU has none. Mixture-of-experts models count the tokens of each expert in this way."""

    def function(n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return n.histc(6, 0, 5), n.histc(3, 1, 6), n.histc(4), n[:0].histc(2, 0, 1)

    n = torch.tensor([0, 5, 1, 1, 3, 5, 2, 6], dtype=dtype)
    torch.ocl.reset_fallback_counts()
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.tensor([1, -1], device=ocl_device).bincount()
    found = (torch.compile(function, backend="ocl") if compiles else function)(n.to(ocl_device))
    assert [f.tolist() for f in found] == [[1, 2, 1, 1, 0, 2], [3, 1, 3], [3, 1, 1, 3], [0, 0]]
    assert all(f.dtype is dtype for f in found) and not torch.ocl.fallback_counts()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float32, torch.bool])
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integers_become_arguments(
    ocl_device: str,
    compiled: list[tuple[str, str]],  # noqa: F811
    name: str,
    dtype: torch.dtype,
) -> None:
    if (name, dtype) == ("bitwise_and", torch.float32) or (name == "sub" and dtype is torch.bool):
        pytest.skip("PyTorch has no such op")
    x = torch.arange(-6, 6).to(dtype)
    for k in (*range(3, 20), -7, -128):
        for operand in (x, x[3], x[:0]):
            check(lambda x, k=k: getattr(torch, name)(x, k), operand, device=ocl_device)
    levels = [level for _, level in compiled]
    assert levels.count("EXACT") <= 9 and levels.count("NUMBERS") <= 3 and len(levels) <= 12, levels


def test_absolute_value_of_the_least_integer(ocl_device: str) -> None:
    """It is negative. Compilers know that abs(x) < 0 is false, and must not use it."""
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.tensor([torch.iinfo(dtype).min, 5, -5] * 11, dtype=dtype)
        for function in (lambda a: a.abs() < 0, lambda a: torch.where(a.abs() < 0, 1, 2)):
            torch._dynamo.reset()
            assert torch.equal(torch.compile(function, backend="ocl")(x.to(ocl_device)).cpu(), function(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float16])
def test_one_plan_serves_all_lengths_of_arange(
    ocl_device: str,
    compiled: list[tuple[str, str]],  # noqa: F811
    dtype: torch.dtype,
) -> None:
    for n in range(0, 60, 3):
        for given in ((n,), (2, n + 2), (n, -1, -4), (0.5, n + 1, 1.5)):
            want, got = (torch.arange(*given, dtype=dtype, device=device) for device in ("cpu", ocl_device))
            torch.testing.assert_close(got.cpu(), want)
    assert len(compiled) <= 12, compiled
    out = torch.zeros(2, 3, dtype=dtype, device=ocl_device).t()
    assert torch.equal(torch.arange(6, out=out).cpu(), torch.arange(6, dtype=dtype).view(3, 2))


def test_plans_that_resize_are_kept(ocl_device: str, compiled: list[tuple[str, str]]) -> None:  # noqa: F811
    counts = []
    for _ in range(3):
        assert torch.arange(77, device=ocl_device).tolist() == list(range(77))
        out = torch.empty(0, device=ocl_device)
        assert torch.add(X.to(ocl_device), 1, out=out).shape == X.shape
        counts.append(len(compiled))
    assert counts[2] == counts[0] <= 4, compiled  # One that resizes and one that computes, each.


def test_large_integers_as_arguments(ocl_device: str) -> None:
    """The number is exact, wraps around where it is combined with a smaller type, and does not change the result's type."""
    for k in (1, 2, 3, 2**62 + 1, -(2**63), 2**63 - 1, 2**53 + 1, 300):
        check(
            lambda x, k=k: (x + k, x.int() * k, x.half() - k, x == k, x.double() * k),
            torch.arange(5),
            device=ocl_device,
        )


def test_a_plan_is_found_again(ocl_device: str, compiled: list[tuple[str, str]]) -> None:  # noqa: F811
    x = torch.randn(7, 11, device=ocl_device)
    first = torch.hypot(x, x)
    for _ in range(5):
        torch.testing.assert_close(torch.hypot(x, x).cpu(), first.cpu(), rtol=0, atol=0)
    # Only hypot is counted: whether randn is compiled here depends on earlier tests.
    assert [name for name, _ in compiled if "hypot" in name] == ["aten::hypot.out"]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool])
def test_a_number_is_cast_on_the_device(ocl_device: str, dtype: torch.dtype) -> None:
    """torch gives masked_fill an integer as a CPU tensor of int64."""
    x, mask = torch.arange(6).to(dtype), torch.tensor([True, False, True, False, False, True])
    fill = torch.compile(torch.masked_fill, backend="ocl", dynamic=False)
    torch.ocl.reset_fallback_counts()
    for value in (0, 1, 100):
        found = [
            x.to(ocl_device).masked_fill_(mask.to(ocl_device), value),
            fill(x.to(ocl_device), mask.to(ocl_device), torch.tensor(value)),
        ]
        assert all(torch.equal(y.cpu(), x.masked_fill(mask, value)) for y in found)
    assert not torch.ocl.fallback_counts()


# torch's own kernels of these ops read the memory of their tensors on the host.
HOST_OPS = {
    "rowwise_prune": lambda x, n: torch._rowwise_prune(x, n > 0, torch.int32),
    "sobol ff": lambda x, n: (torch._sobol_engine_ff_(n[0].clone(), 5, n, 3, 0),),
    "sobol draw": lambda x, n: torch._sobol_engine_draw(n[0].clone(), 5, n, 3, 0, torch.float32),
}


@pytest.mark.parametrize("name", HOST_OPS)
def test_ops_that_read_memory_on_the_host(ocl_device: str, name: str) -> None:
    x, n = torch.randn(3, 30), torch.quasirandom.SobolEngine(3, scramble=True, seed=1).sobolstate
    given = (x, n[:, 0]) if name == "rowwise_prune" else (x, n.t().contiguous().t())
    for found, y in zip(HOST_OPS[name](*(t.to(ocl_device) for t in given)), HOST_OPS[name](*given), strict=True):
        torch.testing.assert_close(found.cpu(), y)


def _at(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0, 2], device=x.device)


# Ops of floats and of integers, then of floats alone: a function of a tensor [4, 6] and an integer.
VARYING = {
    "pow": lambda x, k: x.pow(k),
    "power of": lambda x, k: torch.pow(k, x.clamp(-1, 1).abs()),
    "masked_fill": lambda x, k: x.masked_fill(x > 3, k),
    "clamp": lambda x, k: x.clamp(-k, k),
    "clamp_min": lambda x, k: torch.clamp_min(x, k),
    "where": lambda x, k: torch.where(x > 3, x, k),
    "a slice": lambda x, k: x.clone().__setitem__(slice(0, 1), k),
    "a mask": lambda x, k: x.clone().__setitem__(x > 3, k),
    "eq_": lambda x, k: x.clone().eq_(k),
}
VARYING_FLOATS = {
    "isin": lambda x, k: torch.isin(x, k),
    "alpha": lambda x, k: torch.add(x, x, alpha=k),
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k),
    "threshold": lambda x, k: torch.nn.functional.threshold(x, k, k + 1),
    "leaky_relu": lambda x, k: torch.nn.functional.leaky_relu(x, k),
    "lerp": lambda x, k: x.lerp(x + 1, k),
    "index_fill": lambda x, k: x.index_fill(0, _at(x), k),
    "index_add": lambda x, k: x.index_add(0, _at(x), x[:2], alpha=k),
    "scatter": lambda x, k: x.scatter(0, _at(x)[None].clone(), k),
    "scatter, added": lambda x, k: x.scatter(0, _at(x)[None].clone(), k, reduce="add"),
    "addmm": lambda x, k: torch.addmm(x[:, :4], x, x.t(), beta=k, alpha=k + 1),
    "addmv": lambda x, k: torch.addmv(x[:, 0], x, x[0], beta=k, alpha=k),
    "a list": lambda x, k: torch._foreach_mul([x, x], [k, k + 1]),
    "a list of powers": lambda x, k: torch._foreach_pow([x.abs(), x], k),
}
EACH = [(name, torch.float32) for name in VARYING | VARYING_FLOATS] + [(name, torch.int64) for name in VARYING]


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_forty_integers_need_few_compilations(
    ocl_device: str,
    compiled: list[tuple[str, str]],  # noqa: F811
    name: str,
    dtype: torch.dtype,
) -> None:
    call = (VARYING | VARYING_FLOATS)[name]
    x = torch.linspace(-3, 9, 24).view(4, 6).to(dtype)
    given = x.to(ocl_device)
    for k in range(2, 42):
        call(given, k) if k % 8 else check(lambda x, k=k: call(x, k), x, device=ocl_device)
    # Powers up to 4 are products, which have plans of their own.
    for op in {op for op, _ in compiled}:
        assert sum(op == other for other, _ in compiled) <= (7 if "pow" in op else 5), compiled


def test_factors_that_are_zero(ocl_device: str) -> None:
    """A factor of 0 leaves its operand out, NaN and all, also after plans for any factor were made."""
    x, ones = torch.full((3, 3), float("nan"), device=ocl_device), torch.ones(3, 3, device=ocl_device)
    for beta in (2.5, 3.5, 4.5, 5.5):
        assert torch.addmm(x, ones, ones, beta=beta, alpha=2).isnan().all()
    for beta in (0.0, 0):
        assert torch.addmm(x, ones, ones, beta=beta, alpha=2).tolist() == [[6.0] * 3] * 3
