# torch_ocl_compile/reference/reduction_bounds.py: reductions and scans in fp64, each with a bound of a kernel's error.
"""A kernel may add in any order. The rounding error of n additions grows like the root of n, relative to the sum of the
terms' magnitudes. `growth(n)` allows somewhat more than that. The bounds follow from the column `kind` of reductions.def.
See error_bounds.py for what a bound is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from torch_ocl_compile._C.ir import ReductionKind
from torch_ocl_compile.reference.error_bounds import (
    Error,
    added,
    distance,
    finite,
    moved,
    normalized_bound,
    unknown_where,
)
from torch_ocl_compile.reference.reductions import REDUCTIONS, chosen, elements, merged

Tensor = torch.Tensor
Bounded = tuple[Tensor, Error]


def growth(n: int) -> float:
    """Returns the error of a sum of n terms, in units of one rounding of the sum of their magnitudes."""
    return 8.0 + 4.0 * math.sqrt(n)


# The next functions return the errors of the accumulators `results`, which are those of `parts` together.


def _sum(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    x, error = parts[0]
    passed = None if error is None else error.expand(x.shape).sum(-1)
    if not x.is_floating_point():
        return [passed]
    size = finite(x).sum(-1)
    if error is None and bool((size < 2.0**24).all()) and bool((x == x.round()).all()):
        return [None]  # Sums of small integers are exact in any order.
    return [added(passed, size * (growth(x.shape[-1]) * unit))]


def _product(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    x, error = parts[0]
    if not x.is_floating_point():
        return [None if error is None else error.expand(x.shape).sum(-1)]
    if len(parts) == 2:  # Complex numbers: both parts have errors relative to the magnitude.
        size = torch.hypot(x, parts[1][0])
        relative = 8 * unit * x.shape[-1] + torch.zeros_like(size).sum(-1)
        for _, e in parts:
            if e is not None:
                relative = relative + torch.where(e == 0, 0.0, e / size).sum(-1)
        return [finite(torch.hypot(*results)) * relative] * 2
    own = finite(results[0]) * (2 * unit * x.shape[-1])
    if error is None:
        return [own]
    return [own + results[0].abs() * torch.where(error == 0, 0.0, error / x.abs()).sum(-1)]


def _monotone(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    (x, error), *rest = parts
    if error is None or not x.shape[-1]:
        return [None]
    ends = [x & (error == 0), x | (error > 0)] if x.dtype is torch.bool else moved(x, error)
    low, high = (distance(merged(name, [end, *(v for v, _ in rest)])[0], results[0]) for end in ends)
    return [torch.maximum(low, high)]


def _position(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    """The error of a position is infinite where several elements may be the extreme one."""
    (extreme,) = _monotone(name, parts, results, unit)
    x, error = parts[0]
    if error is None or extreme is None:
        return [None, None]
    near = distance(x, results[0].unsqueeze(-1)) <= error + extreme.unsqueeze(-1)
    return [extreme, unknown_where(near.sum(-1) > 1)]


def _spread(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    (means, error), _, (counts, _) = parts
    mean, squares, n = results
    grown = growth(means.shape[-1]) * unit
    shift = grown * (counts * finite(means)).sum(-1) / n
    step = 2 * unit * finite(means)
    if error is not None:
        shift, step = shift + (counts * error).sum(-1) / n, step + error
    away = finite(means - mean.unsqueeze(-1))
    change = 2 * (counts * away * step).sum(-1) + n * shift * shift + 2 * (n * squares).sqrt() * shift
    return [shift, squares * grown + change.nan_to_num(nan=math.inf), None]


def _exponentials(name: str, parts: Sequence[Bounded], results: Sequence[Tensor], unit: float) -> list[Error]:
    (x, error), (sums, _), *_ = parts
    largest, summed = results[:2]
    (top,) = _monotone(name, parts, results, unit)
    p = sums * torch.exp(torch.where(x == largest.unsqueeze(-1), 0.0, x - largest.unsqueeze(-1)))
    relative = 32 * unit + 4 * unit * (finite(x) + finite(largest).unsqueeze(-1))
    if error is not None:
        relative = relative + error + (0 if top is None else top.unsqueeze(-1))
    own = (p * relative).sum(-1) + summed * (growth(x.shape[-1]) * unit)
    return [top, torch.where(torch.isfinite(summed), own, 0.0)]


_ERRORS: dict[ReductionKind, Callable[[str, Sequence[Bounded], Sequence[Tensor], float], list[Error]]] = {
    ReductionKind.k_sum: _sum,
    ReductionKind.k_product: _product,
    ReductionKind.k_monotone: _monotone,
    ReductionKind.k_position: _position,
    ReductionKind.k_spread: _spread,
    ReductionKind.k_exponentials: _exponentials,
}


def _with_bounds(values: Sequence[Tensor], errors: Sequence[Error]) -> list[Bounded]:
    """Pairs accumulators with their errors. Accumulators without one are exact."""
    padded = [*errors, *[None] * len(values)][: len(values)]
    return [(value, normalized_bound(error)) for value, error in zip(values, padded, strict=True)]


def reduce(name: str, stage: str, inputs: Sequence[Bounded], unit: float) -> list[Bounded]:
    """Returns what a stage of a reduction over the last dimension stores, with bounds."""
    parts = list(inputs)
    if stage != "final":
        parts = _with_bounds(elements(name, [v for v, _ in inputs]), [inputs[0][1]])
    results = merged(name, [v for v, _ in parts])
    return chosen(name, stage, _with_bounds(results, _ERRORS[REDUCTIONS[name].kind](name, parts, results, unit)))


def _complex_products(name: str, parts: Sequence[Tensor], inputs: Sequence[Bounded], unit: float) -> list[Bounded]:
    """Returns running products of complex numbers, with errors relative to their magnitudes."""
    products = torch.complex(*(part.double() for part in parts)).cumprod(-1)
    size = torch.hypot(*(part.double() for part in parts))
    relative = 8 * unit * torch.arange(1, size.shape[-1] + 1)
    for _, error in inputs:
        if error is not None:
            relative = relative + torch.where(error == 0, 0.0, error / size).cumsum(-1)
    columns = [part.to(parts[0].dtype) for part in (products.real, products.imag)]
    return chosen(name, "whole", _with_bounds(columns, [finite(products.abs()) * relative] * 2))


def scan(name: str, inputs: Sequence[Bounded], reset: Tensor | None, unit: float) -> list[Bounded]:
    """Returns the results of a scan along the last dimension, with their bounds."""
    kind = REDUCTIONS[name].kind
    parts, error = elements(name, [v for v, _ in inputs]), inputs[0][1]
    if kind == ReductionKind.k_product and len(parts) == 2:
        return _complex_products(name, parts, inputs, unit)
    error = torch.zeros((), dtype=torch.float64) if error is None else error
    steps: list[list[Tensor]] = []
    for k in range(parts[0].shape[-1]):
        first = [part[..., k] for part in parts]
        e, size = error.expand(parts[0].shape)[..., k], finite(first[0].double())
        step = [*first, e, size]  # The accumulators, the error that is passed on, the sum of magnitudes.
        if steps:
            *state, passed, total = steps[-1]
            if kind == ReductionKind.k_product:
                e = passed * size + e * state[0].double().abs() + passed * e
            else:
                e = passed + e if kind == ReductionKind.k_sum else torch.maximum(passed, e)
            joined = merged(name, [torch.stack(pair, -1) for pair in zip(state, first, strict=True)])
            joined = [*joined, e, total + size]
            begins = torch.zeros((), dtype=torch.bool) if reset is None else reset[..., k]
            step = [torch.where(begins, f, j) for f, j in zip(step, joined, strict=True)]
        steps.append(step)
    *columns, passed, size = [torch.stack(column, -1) for column in zip(*steps, strict=True)]
    n = torch.arange(1, parts[0].shape[-1] + 1)
    errors: list[Error] = [passed]
    if kind == ReductionKind.k_position:
        errors.append(unknown_where(passed > 0))
    elif kind == ReductionKind.k_exponentials:
        relative = (40 + 4 * torch.sqrt(n)) * unit + 2 * passed + 4 * unit * finite(columns[0])
        errors.append(finite(columns[1]) * relative)
    elif kind == ReductionKind.k_sum and columns[0].is_floating_point():
        errors = [passed + size * ((8 + 4 * torch.sqrt(n)) * unit)]
    elif kind == ReductionKind.k_product and columns[0].is_floating_point():
        errors = [passed + finite(columns[0]) * (2 * unit * n)]
    return chosen(name, "whole", _with_bounds(columns, errors))
