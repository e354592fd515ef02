# torch_ocl_compile/reference/reductions.py: the reductions of the IR on torch tensors, along their last dimension.
"""A row of csrc/ir/reductions.def says in Python which accumulators an element has (`element`), and what those of many parts
give together (`reference`). From this follow all stages of a reduction, and scans."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import CodeType
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.dtypes import IR_DTYPES, TORCH_DTYPES
from torch_ocl_compile.reference.scalar_ops import NAMES

Tensor = torch.Tensor

REDUCTIONS = {row.name: row for row in ir.reductions()}


def _equal(x: Tensor, best: Tensor) -> Tensor:
    best = best.unsqueeze(-1)
    return (x == best) | ((x != x) & (best != best))


def first(x: Tensor, best: Tensor, positions: Tensor) -> Tensor:
    """Returns the first position whose value is `best`, which may be NaN."""
    return torch.where(_equal(x, best), positions, torch.iinfo(torch.int64).max).amin(-1)


def last(x: Tensor, best: Tensor, positions: Tensor) -> Tensor:
    return torch.where(_equal(x, best), positions, -1).amax(-1)


def mean(x: Tensor, counts: Tensor) -> Tensor:
    """Returns the mean of means, weighted by counts, in fp64."""
    return (x.double() * counts).sum(-1) / counts.double().sum(-1)


def sum_of_exp(x: Tensor, sums: Tensor) -> Tensor:
    """Returns the sum of sums * exp(x - the largest x). The largest counts as 1 even if it is infinite."""
    top = x.amax(-1, keepdim=True)
    return (sums * torch.exp(torch.where(x == top, 0, x - top))).sum(-1)


_NAMES = {**NAMES, **{f.__name__: f for f in (first, last, mean, sum_of_exp)}}


@functools.cache
def _code(text: str) -> CodeType:
    return compile(text, "reductions.def", "eval")


def _dtype(name: str, accumulator: int, x: Tensor) -> torch.dtype:
    return TORCH_DTYPES[ir.accumulator_dtype(name, accumulator, IR_DTYPES[x.dtype])]


def identities(name: str, x: Tensor) -> list[Tensor]:
    """Returns the accumulators before any element. `x` is the first input of the reduction."""
    found = []
    for k, text in enumerate(REDUCTIONS[name].identities):
        dtype = _dtype(name, k, x)
        info = (
            torch.finfo(dtype)
            if dtype.is_floating_point
            else torch.iinfo(torch.uint8 if dtype is torch.bool else dtype)
        )
        lowest, highest = (-torch.inf, torch.inf) if dtype.is_floating_point else (info.min, info.max)
        found.append(
            torch.tensor({"$lowest": lowest, "$highest": highest, "$true": 1}.get(text) or float(text), dtype=dtype)
        )
    return found


def elements(name: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns the accumulators of every element."""
    x = inputs[0]
    values = {"x": x, "y": inputs[-1].expand(x.shape)}
    parts = [torch.as_tensor(eval(_code(text), _NAMES, values)) for text in REDUCTIONS[name].element]
    return [part.expand(x.shape).to(_dtype(name, k, x)) for k, part in enumerate(parts)]


def merged(name: str, parts: Sequence[Tensor]) -> list[Tensor]:
    """Returns the accumulators of all parts together."""
    if not parts[0].shape[-1]:
        return [i.expand(parts[0].shape[:-1]) for i in identities(name, parts[0])]
    values = dict(zip("abc", parts, strict=False))
    results = [eval(_code(text), _NAMES, values) for text in REDUCTIONS[name].reference]
    return [result.to(part.dtype) for result, part in zip(results, parts, strict=True)]


def chosen(name: str, stage: str, accumulators: Sequence[Any]) -> list[Any]:
    """Returns what a stage stores: its accumulators, or the results that they hold."""
    if stage == "partial":
        return list(accumulators)
    return [accumulators[k] for k in REDUCTIONS[name].result_accumulator]


def reduce(name: str, stage: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns what a stage of a reduction stores. The inputs of the last stage are accumulators."""
    return chosen(name, stage, merged(name, inputs if stage == "final" else elements(name, inputs)))


def scan(name: str, inputs: Sequence[Tensor], reset: Tensor | None) -> list[Tensor]:
    """Computes the reduction of every prefix of the last dimension. A prefix starts at the last reset."""
    parts, none = elements(name, inputs), identities(name, inputs[0])
    begin = torch.zeros(inputs[0].shape[:-1], dtype=torch.int64)
    steps = []
    for k in range(inputs[0].shape[-1]):
        if reset is not None:
            begin = torch.where(reset[..., k], k, begin)
        live = torch.arange(k + 1) >= begin.unsqueeze(-1)
        prefix = [torch.where(live, part[..., : k + 1], i) for part, i in zip(parts, none, strict=True)]
        steps.append(chosen(name, "whole", merged(name, prefix)))
    return [torch.stack(s, -1) for s in zip(*steps, strict=True)]
