# torch_ocl_compile/decompositions/random.py: random distributions as formulas of rand, randn and randint.
"""On ocl devices these three become pure functions of a random state (lowering/elementwise/random.py).

Each function here is the decomposition of the functional overload in compiled graphs, and the form of the in-place
overload in eager mode. Numbers are drawn in float32 or wider and rounded once to the result's dtype. Uniform numbers
never round up to the open end of their interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl_compile.decompositions.forms import form
from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten

INTEGER_END = {torch.float16: 2**11, torch.bfloat16: 2**8, torch.float32: 2**24, torch.float64: 2**53, torch.bool: 1}


def _draw_type(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128 if dtype is torch.complex128 else torch.complex64
    return torch.float64 if dtype is torch.float64 else torch.float32


def _rand(x: Any) -> Any:
    return torch.rand(x.shape, dtype=_draw_type(x.dtype), device=x.device)


def _randn(x: Any) -> Any:
    return torch.randn(x.shape, dtype=_draw_type(x.dtype), device=x.device)


def _check(name: str, value: Any, wanted: str, holds: Callable[[Any], bool], *named: Any) -> None:
    """Raises RuntimeError with PyTorch's text if a distribution does not accept the number. `wanted` formats `named`.

    Of a number that varies, only whether it holds becomes a condition of the graph.
    """
    if all(isinstance(v, int | float | torch.SymFloat) for v in (value, *named)) and not holds(value):
        raise RuntimeError(f"{name} expects {wanted.format(*map(float, named))}, but found {float(value):g}")


def _checked(name: str, x: Any, wanted: str, holds: Any) -> Any:
    """Returns x. An error is raised when the graph runs if a number does not hold, where such checks are on."""
    return torch.ops.ocl.checked(x, (~holds).to(torch.int32), f"{name} expects {wanted}")


def _probabilities(name: str, p: Any) -> Any:
    return _checked(name, p, "probabilities in [0, 1]", (p >= 0) & (p <= 1))


def _deviations(name: str, std: Any) -> Any:
    return std if std.dtype.is_complex else _checked(name, std, "standard deviations of at least 0", std >= 0)


def _row(functional: str, in_place: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers `function(x, ...)` for a functional and an in-place overload; the result has the dtype of x."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(x: Any, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
            return function(x, *args, **kwargs).to(x.dtype)

        def written(x: Any, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
            return x.copy_(function(x, *args, **kwargs))

        decompose(f"aten.{functional}")(drawn)
        if in_place:
            form(f"aten.{in_place}")(written)
        return function

    return register


@_row("normal_functional.default", "normal_.default")
def normal(x: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    _check("normal", std, "std >= 0.0", lambda v: v >= 0)
    return _randn(x) * std + mean


@_row("uniform.default", "uniform_.default")
def uniform(x: Any, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Returns uniform numbers in [low, high). A number that rounds to `high` becomes `low`."""
    _check("uniform_", high, "to return a [from, to) range from {:g} to no less", lambda v: v >= low, low)
    if x.dtype.is_complex:  # Both parts are in the interval.
        return torch.view_as_complex(uniform(torch.view_as_real(x), low, high))
    drawn = (_rand(x) * (high - low) + low).to(x.dtype)
    return torch.where(drawn < high, drawn, torch.full_like(drawn, low))


@_row("exponential.default", "exponential_.default")
def exponential(x: Any, rate: Any = 1.0) -> Any:
    _check("exponential_", rate, "lambda > 0.0", lambda v: v > 0)
    return -torch.log1p(-_rand(x)) / rate


@_row("log_normal.default", "log_normal_.default")
def log_normal(x: Any, mean: Any = 1.0, std: Any = 2.0) -> Any:
    _check("log_normal_", std, "std > 0.0", lambda v: v > 0)
    return (_randn(x) * std + mean).exp()


@_row("cauchy.default", "cauchy_.default")
def cauchy(x: Any, median: Any = 0.0, sigma: Any = 1.0) -> Any:
    _check("cauchy_", sigma, "sigma > 0.0", lambda v: v > 0)
    return torch.tan((_rand(x) - 0.5) * math.pi) * sigma + median


@_row("geometric.default", "geometric_.default")
def geometric(x: Any, p: Any) -> Any:
    """Returns the number of Bernoulli trials up to and including the first success."""
    _check("geometric_", p, "p to be in (0, 1)", lambda v: 0 < v < 1)
    return torch.floor(torch.log1p(-_rand(x)) / math.log1p(-p)) + 1


@_row("bernoulli.p", "bernoulli_.float")
def bernoulli(x: Any, p: Any = 0.5) -> Any:
    _check("bernoulli_", p, "p to be in [0, 1]", lambda v: 0 <= v <= 1)
    return _rand(x) < p


@_row("bernoulli.Tensor", "bernoulli_.Tensor")
def bernoulli_tensor(x: Any, p: Any) -> Any:
    return _rand(x) < _probabilities("bernoulli", p)


@_row("bernoulli.default")
def bernoulli_of(x: Any) -> Any:
    return _rand(x) < _probabilities("bernoulli", x)


@_row("normal.Tensor_Tensor")
def normal_of_tensors(mean: Any, std: Any) -> Any:
    shape = torch.broadcast_shapes(mean.shape, std.shape)
    drawn = torch.randn(shape, dtype=_draw_type(mean.dtype), device=mean.device)
    return drawn * _deviations("normal", std) + mean


@_row("normal.Tensor_float")
def normal_of_mean(mean: Any, std: Any = 1.0) -> Any:
    return _randn(mean) * std + mean


@decompose(aten.normal.float_Tensor)
def normal_of_std(mean: Any, std: Any, *, generator: Any = None) -> Any:
    return (_randn(std) * _deviations("normal", std) + mean).to(std.dtype)


@decompose(aten.normal.float_float)
def normal_of_size(mean: Any, std: Any, size: Any, *, generator: Any = None, **kwargs: Any) -> Any:
    return torch.randn(size, **{k: v for k, v in kwargs.items() if k in ("dtype", "device")}) * std + mean


@_row("random.default", "random_.default")
def random(x: Any) -> Any:
    """Returns integers from 0 to the largest that the dtype represents exactly."""
    end = INTEGER_END.get(x.dtype)
    high = torch.iinfo(x.dtype).max if end is None else end
    return torch.randint(0, min(high + 1, 2**63 - 1), x.shape, dtype=x.dtype, device=x.device)


@_row("random.to", "random_.to")
def random_to(x: Any, to: Any) -> Any:
    return torch.randint(0, to, x.shape, dtype=x.dtype, device=x.device)


@_row("random.from", "random_.from")
def random_from(x: Any, low: Any, high: Any) -> Any:
    if high is None:
        high = INTEGER_END.get(x.dtype, 2**63 - 2 if x.dtype is torch.int64 else None)
        high = torch.iinfo(x.dtype).max + 1 if high is None else high + 1
    return torch.randint(low, high, x.shape, dtype=x.dtype, device=x.device)


# Permutations and choices by random sort keys


@decompose(aten.randperm.default, aten.randperm.generator)
def randperm(n: Any, *, generator: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Returns the order of n random 63-bit keys. Two equal keys are very unlikely; they keep their order."""
    keys = torch.randint(0, 2**63 - 1, (n,), dtype=torch.int64, device=device)
    return keys.sort(stable=True).indices.to(dtype or torch.int64)


@form("aten.randperm.generator_out", "aten.randperm.out")
def randperm_out(n: Any, *, out: Any, generator: Any = None) -> Any:
    if out.shape != (n,):
        out.resize_([n])
    return out.copy_(randperm(n, device=out.device))


@form("aten.multinomial.default")
@decompose(aten.multinomial.default)
def multinomial(probabilities: Any, count: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """Returns `count` indices drawn with the given probabilities.

    Without replacement, each index gets an exponential waiting time and the `count` earliest win. With replacement,
    uniform numbers are looked up in the cumulative sum.
    """
    p = probabilities.to(_draw_type(probabilities.dtype))
    if not replacement and count > p.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    p = _checked("multinomial", p, "weights that are finite and at least 0", (p >= 0) & (p < math.inf))
    p = _checked("multinomial", p, "a weight above 0 in each row", (p > 0).any(-1))
    if count == 1 or not replacement:
        clocks = (-torch.log1p(-_rand(p))).clamp_min(2.0**-30)
        if count == 1:
            return (p / clocks).argmax(-1, keepdim=True)
        return (p / clocks).topk(count, -1).indices
    ends = p.cumsum(-1)
    ends = ends / ends[..., -1:]
    drawn = torch.rand((*p.shape[:-1], count), dtype=p.dtype, device=p.device)
    return torch.searchsorted(ends, drawn, right=True).clamp_max(p.shape[-1] - 1)


@decompose(aten.rrelu_with_noise_functional.default)
def rrelu_with_noise(
    x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Any, Any]:
    """Returns (result, the noise afterwards, which holds the slope of each element).

    PyTorch's own decomposition returns empty noise where it is not used.
    """
    if not training:
        return aten.leaky_relu(x, (lower + upper) / 2), noise.clone()
    is_negative, slopes = x <= 0, aten.uniform(x, lower, upper)
    return torch.where(is_negative, x * slopes, x), torch.where(is_negative, slopes, 1)


@decompose(aten.native_dropout.default)
def native_dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """Returns (result, mask). PyTorch's own decomposition draws numbers of x's dtype: in bfloat16 it keeps 127 of 256 elements
    where p is 0.5."""
    if not train or p == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    mask = torch.rand_like(x, dtype=_draw_type(x.dtype)) > p
    return mask * x * (1.0 / (1.0 - p)), mask
