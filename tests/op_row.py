# tests/op_row.py: defines a row of the op tables, and makes the inputs of rows.
"""Samples are made on the CPU from a fixed seed; the test that runs a row moves them to its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

Sample = tuple[Any, ...]
FLOAT = (torch.float32,)
NUMBERS = (torch.float32, torch.int64)
HALVES = (torch.float16, torch.bfloat16)
ALL = (torch.float32, torch.int64, torch.bool)


@dataclass(frozen=True)
class Op:
    """One row: `call(*sample)` is run for every sample of every dtype.

    If `gradient`, the gradients of floating-point inputs are compared, too.
    """

    name: str
    call: Callable[..., Any]
    samples: Callable[[torch.dtype], list[Sample]]
    dtypes: tuple[torch.dtype, ...] = FLOAT
    gradient: bool = True
    # Positions of the arguments that PyTorch has no gradient for.
    constants: tuple[int, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    # True if part of the op has no kernel and runs on the CPU (a fallback).
    fallback: bool = False
    # The operands of the op in random programs (tests/fuzz): "any" values in the samples' range, "distinct" values, or
    # "none" if random programs do not use the row.
    programs: str = "any"


def make(*shape: int, dtype: torch.dtype = torch.float32, low: float = -2, high: float = 2) -> torch.Tensor:
    """Returns reproducible values in [low, high); integers in [5 * low, 5 * high]; booleans are random."""
    generator = torch.Generator().manual_seed(sum((i + 1) * s for i, s in enumerate(shape)) + 17)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    x = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    return (x * 5).round().to(dtype) if not dtype.is_floating_point else x.to(dtype)


def one(low: float = -2, high: float = 2) -> Callable[[torch.dtype], list[Sample]]:
    """Returns samples of one tensor: a matrix, a scalar, an empty tensor, a transposed view, a view with an offset."""

    def samples(dtype: torch.dtype) -> list[Sample]:
        def m(*s: int) -> torch.Tensor:
            return make(*s, dtype=dtype, low=low, high=high)

        return [(m(3, 5),), (m(),), (m(0, 4),), (m(4, 7).t(),), (m(9, 6)[1:, ::2],)]

    return samples


def two(low: float = -2, high: float = 2) -> Callable[[torch.dtype], list[Sample]]:
    """Returns samples of two tensors: equal shapes, broadcasts on either side, a scalar, a stride of 0."""

    def samples(dtype: torch.dtype) -> list[Sample]:
        def m(*s: int) -> torch.Tensor:
            return make(*s, dtype=dtype, low=low, high=high)

        return [
            (m(3, 5), m(3, 5).flip(0)),
            (m(3, 5), m(5)),
            (m(4, 1), m(1, 3)),
            (m(2, 3), m()),
            (m(2, 3), m(1).expand(3)),
        ]

    return samples


def fixed(*samples: Callable[[], Sample]) -> Callable[[torch.dtype], list[Sample]]:
    return lambda _: [s() for s in samples]


def special() -> torch.Tensor:
    return torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-30, 3e38])


def labels(*shape: int, classes: int = 10) -> torch.Tensor:
    return make(*shape, dtype=torch.int64, low=0, high=100).abs() % classes


def to_cpu(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), value)


def same(got: Any, expected: Any, op: Op, plain: Any = None) -> None:
    """Asserts that `got` and `expected` are close.

    If `got` is fp16 or bf16 and `expected` is fp32, the tolerance is a few roundings at the scale of the largest
    element, or twice the error of `plain`, if that is more. `plain` is PyTorch's own result in the half type, None if
    PyTorch has no kernel for it.
    """
    got, expected = tree_flatten(to_cpu(got))[0], tree_flatten(to_cpu(expected))[0]
    theirs = tree_flatten(to_cpu(plain))[0] if plain is not None else [None] * len(got)
    assert len(got) == len(expected)
    for a, b, c in zip(got, expected, theirs, strict=True):
        rtol, atol = op.rtol, op.atol
        if isinstance(a, torch.Tensor) and a.dtype in HALVES and b.dtype is torch.float32:
            eps = torch.finfo(a.dtype).eps
            finite = b.isfinite()
            scale = b[finite].abs().max().item() if finite.any() else 0.0
            error = (c.float() - b)[finite].abs().max().item() if c is not None and finite.any() else 0.0
            rtol, atol, b = 2 * eps, 2 * max(eps * scale, error if error == error else 0.0), b.to(a.dtype)
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def widened(sample: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the sample with fp16 and bf16 tensors converted to fp32."""
    result: tuple[Any, ...] = tree_map_only(torch.Tensor, lambda x: x.float() if x.dtype in HALVES else x, sample)
    return result
