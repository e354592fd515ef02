# torch_ocl_compile/reference/reduction_bounds.py: reductions and scans in fp64, each with a bound of a kernel's error.
"""A kernel may add in any order. The rounding error of n additions grows like the root of n, relative to the sum of the
terms' magnitudes. `growth(n)` allows somewhat more than that. See error_bounds.py for what a bound is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_ocl_compile.reference.error_bounds import Error, added, finite, normalized_bound, unknown_where
from torch_ocl_compile.reference.interpreter import FINAL, REDUCTIONS, STAGES

Tensor = torch.Tensor
Bounded = tuple[Tensor, Error]


def growth(n: int) -> float:
    """Returns the error of a sum of n terms, in units of one rounding of the sum of their magnitudes."""
    return 8.0 + 4.0 * math.sqrt(n)


def total(x: Tensor, error: Error, unit: float) -> Bounded:
    result = x.sum(-1)
    if not x.is_floating_point():
        return result, None if error is None else normalized_bound(error.expand(x.shape).sum(-1))
    size = finite(x).sum(-1)
    if error is None and bool((size < 2.0**24).all()) and bool((x == x.round()).all()):
        return result, None  # Sums of small integers are exact in any order.
    passed = None if error is None else error.expand(x.shape).sum(-1)
    return result, normalized_bound(added(passed, size * (growth(x.shape[-1]) * unit)))


def product(x: Tensor, error: Error, unit: float) -> Bounded:
    result = x.prod(-1)
    if not x.is_floating_point():
        return result, None if error is None else normalized_bound(error.expand(x.shape).sum(-1))
    relative = 2 * unit * x.shape[-1]
    size = finite(result) * relative
    if error is None:
        return result, normalized_bound(size)
    parts = torch.where(error == 0, 0.0, error / x.abs()).sum(-1)
    return result, normalized_bound(size + result.abs() * parts)


def extreme(x: Tensor, error: Error, largest: bool) -> Bounded:
    result = REDUCTIONS["max" if largest else "min"](x)[0]
    if error is None or not x.shape[-1]:
        return result, None
    high, low = ((x + end).amax(-1) if largest else (x + end).amin(-1) for end in (error, -error))
    return result, normalized_bound(torch.where(torch.isnan(result), 0.0, torch.maximum(high - result, result - low)))


def undecided_position(x: Tensor, error: Error, largest: bool) -> Error:
    """Returns a bound that is infinite where several elements may be the extreme one."""
    if error is None or not x.shape[-1]:
        return None
    x = x.double() if largest else -x.double()
    best = (x - error).amax(-1, keepdim=True)
    return normalized_bound(unknown_where((x + error >= best).sum(-1) > 1))


def truth(x: Tensor, error: Error, every: bool) -> Bounded:
    x = x.bool()
    result = x.all(-1) if every else x.any(-1)
    if error is None:
        return result, None
    sure = (x ^ every) & (error == 0)
    return result, normalized_bound(((error > 0).any(-1) & ~sure.any(-1)).double())


def welford(x: Tensor, error: Error, unit: float) -> list[Bounded]:
    x = x.double()
    mean, squares = REDUCTIONS["welford"](x)
    grown = growth(x.shape[-1]) * unit
    size = finite(x).mean(-1)
    passed = None if error is None else error.expand(x.shape).mean(-1)
    shift = size * grown + (0 if passed is None else passed)
    away = finite(x - mean.unsqueeze(-1))
    step = 2 * unit * finite(x) + (0 if error is None else error.expand(x.shape))
    moved = (
        2 * (away * step).sum(-1) + x.shape[-1] * shift * shift + 2 * math.sqrt(x.shape[-1]) * squares.sqrt() * shift
    )
    return [
        (mean, normalized_bound(shift)),
        (squares, normalized_bound(squares * grown + moved.nan_to_num(nan=math.inf))),
    ]


def softmax(x: Tensor, error: Error, unit: float) -> list[Bounded]:
    largest, summed = REDUCTIONS["softmax"](x.double())
    top = extreme(x.double(), error, True)[1]
    p = torch.exp(torch.where(x == largest.unsqueeze(-1), 0.0, x - largest.unsqueeze(-1)))
    relative = 32 * unit + 4 * unit * (finite(x) + finite(largest).unsqueeze(-1))
    if error is not None:
        relative = relative + error + (0 if top is None else top.unsqueeze(-1))
    own = (p * relative).sum(-1) + summed * (growth(x.shape[-1]) * unit)
    return [(largest, top), (summed, normalized_bound(torch.where(torch.isfinite(summed), own, 0.0)))]


def softmax_merge(largest: Bounded, sums: Bounded, unit: float) -> list[Bounded]:
    whole, summed = FINAL["softmax"](largest[0].double(), sums[0].double())
    relative = 32 * unit + 4 * unit * (finite(largest[0]) + finite(whole).unsqueeze(-1)).amax(-1)
    return [(whole, None), (summed, normalized_bound(finite(summed) * (relative + growth(sums[0].shape[-1]) * unit)))]


def welford_merge(mean: Bounded, squares: Bounded, count: Bounded, unit: float) -> list[Bounded]:
    whole, merged = FINAL["welford"](mean[0].double(), squares[0].double(), count[0].double())
    n = count[0].double()
    grown = growth(n.shape[-1]) * unit
    shift = grown * (n * finite(mean[0])).sum(-1) / n.sum(-1)
    away = (mean[0] - whole.unsqueeze(-1)).abs()
    moved = merged * grown + 2 * (n * away).sum(-1) * shift + n.sum(-1) * shift * shift
    return [(whole, normalized_bound(shift)), (merged, normalized_bound(moved))]


def reduce(name: str, stage: str, inputs: Sequence[Bounded], unit: float) -> list[Bounded]:
    """Returns the results of a reduction over the last dimension, with their bounds."""
    (x, error), *rest = inputs
    if stage == "final" and name == "softmax":
        return softmax_merge(inputs[0], inputs[1], unit)
    if stage == "final" and name == "welford":
        return welford_merge(inputs[0], inputs[1], inputs[2], unit)
    if name == "sum":
        return [total(x if x.is_floating_point() else x.to(torch.int64), error, unit)]
    if name == "prod":
        return [product(x if x.is_floating_point() else x.to(torch.int64), error, unit)]
    if name in ("max", "min"):
        return [extreme(x, error, name == "max")]
    if name in ("any", "all"):
        return [truth(x, error, name == "all")]
    if name == "welford":
        count = torch.full(x.shape[:-1], float(x.shape[-1]), dtype=torch.float64)
        return [*welford(x, error, unit), (count, None)] if stage == "partial" else welford(x, error, unit)
    if name == "softmax":
        return softmax(x, error, unit)
    results = STAGES[stage][name](x, rest[0][0])  # argmax and argmin
    unsure = added(undecided_position(x, error, name == "argmax"))
    values: list[Error] = [None] * (len(results) - 1) if error is None else [extreme(x, error, name == "argmax")[1]]
    return list(zip(results, [*values[: len(results) - 1], unsure], strict=True))


def scan(name: str, inputs: Sequence[Bounded], reset: Tensor | None, unit: float) -> list[Bounded]:
    """Returns the results of a scan along the last dimension, with their bounds."""
    name = {"twosum": "sum", "softmax_twosum": "softmax"}.get(name, name)
    x, error = inputs[0]
    x = x.to(torch.int32) if x.dtype is torch.bool else x
    steps: list[list[Tensor]] = []
    state: list[Tensor] | None = None
    for k in range(x.shape[-1]):
        e = torch.zeros((), dtype=torch.float64) if error is None else error.expand(x.shape)[..., k]
        first = _first(name, x[..., k], e, inputs[1][0][..., k] if len(inputs) > 1 else None)
        if state is None:
            state = first
        else:
            joined = _joined(name, state, first)
            state = (
                joined
                if reset is None
                else [torch.where(reset[..., k], f, j) for f, j in zip(first, joined, strict=True)]
            )
        steps.append(state)
    columns = [torch.stack([c.expand(x.shape[:-1]) for c in column], -1) for column in zip(*steps, strict=True)]
    return _results(name, columns, x, unit)


def _first(name: str, x: Tensor, e: Tensor, position: Tensor | None) -> list[Tensor]:
    """Returns the state after one element: values, the bound that is passed on, the sum of magnitudes."""
    if position is not None:
        return [x, position, e + torch.zeros(x.shape, dtype=torch.float64)]
    x = x.to(torch.int64) if name in ("sum", "prod") and not x.is_floating_point() else x
    e = e + torch.zeros(x.shape, dtype=torch.float64)
    return [x, torch.ones_like(x), e] if name == "softmax" else [x, e, finite(x.double())]


def _joined(name: str, state: list[Tensor], x: list[Tensor]) -> list[Tensor]:
    if name == "sum":
        return [state[0] + x[0], state[1] + x[1], state[2] + x[2]]
    if name == "prod":
        passed = state[1] * x[0].double().abs() + x[1] * state[0].double().abs() + state[1] * x[1]
        return [state[0] * x[0], passed, state[2] * 0]
    if name in ("max", "min"):
        chosen = (torch.maximum if name == "max" else torch.minimum)(state[0], x[0])
        return [chosen, torch.maximum(state[1], x[1]), state[2]]
    if name in ("last_max", "last_min"):
        wins = (x[0] >= state[0] if name == "last_max" else x[0] <= state[0]) | (x[0] != x[0])
        return [torch.where(wins, x[0], state[0]), torch.where(wins, x[1], state[1]), torch.maximum(state[2], x[2])]
    if name == "softmax":
        largest = torch.maximum(state[0], x[0])
        scaled = [s * torch.exp(torch.where(m == largest, 0.0, m - largest)) for m, s, _ in (state, x)]
        return [largest, scaled[0] + scaled[1], torch.maximum(state[2], x[2])]
    raise NotImplementedError(f"a scan with {name}")


def _results(name: str, columns: list[Tensor], x: Tensor, unit: float) -> list[Bounded]:
    n = torch.arange(1, x.shape[-1] + 1)
    if name in ("last_max", "last_min"):
        unsure = normalized_bound(unknown_where(columns[2] > 0))
        return [(columns[0], normalized_bound(columns[2])), (columns[1], unsure)]
    if name == "softmax":
        largest, summed, e = columns
        relative = (40 + 4 * torch.sqrt(n)) * unit + 2 * e + 4 * unit * finite(largest)
        return [(largest, normalized_bound(e)), (summed, normalized_bound(finite(summed) * relative))]
    value, e, size = columns
    if not value.is_floating_point() or name in ("max", "min"):
        return [(value, normalized_bound(e))]
    own = size * ((8 + 4 * torch.sqrt(n)) * unit) if name == "sum" else finite(value) * (2 * unit * n)
    return [(value, normalized_bound(e + own))]
