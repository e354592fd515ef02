# tests/conformance/judge.py: decides whether a result is as accurate as PyTorch's own on the CPU.
"""Results are first compared by assert_close with its default tolerances for the dtype.

A result that fails this is compared with an fp64 result, because sums of many terms and intermediate casts change
the last bits. The allowed error follows from PyTorch's own error (docs/architecture.md, numerics), and from how much
the fp64 result changes if each input changes by one ulp. For example, no fp32 code can compute a difference of nearly
equal numbers more precisely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

# An error that is always allowed, in units in the last place of the largest elements: PyTorch's result may be exact.
ULPS = 4


def tensors(value: Any) -> list[Any]:
    """Returns the leaves of a result, with tensors moved to the CPU."""
    leaves = tree_flatten(value)[0]
    return [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in leaves]


def difference(got: Any, expected: Any, exact: Callable[[], list[Any]], *, values: bool = True) -> str:
    """Returns what is wrong with `got`, or "".

    `exact` returns the result in fp64, followed by fp64 results for inputs that were changed by one ulp.
    If `values` is false, only dtypes and shapes are compared.
    """
    ours, theirs = tensors(got), tensors(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    reference: list[list[Any]] | None = None
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(b, torch.Tensor):
            if values and a != b and not (a != a and b != b):
                return f"result {k}: {a!r} instead of {b!r}"
            continue
        wrong = metadata(a, b)
        if wrong:
            return f"result {k}: {wrong}"
        if not values or b.layout != torch.strided:
            continue
        wrong = closeness(a, b)
        if wrong and (b.is_floating_point() or b.is_complex()):
            if reference is None:
                reference = [tensors(r) for r in exact()]
            if reference and all(len(r) == len(theirs) for r in reference):
                wrong = as_exact(a, b, reference[0][k], [r[k] for r in reference[1:]], wrong)
        if wrong:
            return f"result {k}: {wrong}"
    return ""


def metadata(got: Any, expected: torch.Tensor) -> str:
    if not isinstance(got, torch.Tensor):
        return f"{type(got).__name__} instead of a tensor"
    for name in ("dtype", "shape", "layout"):
        mine, theirs = getattr(got, name), getattr(expected, name)
        if mine != theirs:
            return f"{name} {_short(mine)} instead of {_short(theirs)}"
    return ""


def _short(x: Any) -> str:
    return str(tuple(x)) if isinstance(x, torch.Size) else str(x).removeprefix("torch.")


def closeness(got: torch.Tensor, expected: torch.Tensor) -> str:
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
    except AssertionError as error:
        lines = [line for line in str(error).splitlines() if line]
        return "; ".join(line.split(" (up to")[0] for line in lines[1:4]) or lines[0]
    return ""


def as_exact(got: torch.Tensor, expected: torch.Tensor, exact: Any, moved: list[Any], wrong: str) -> str:
    """Returns "" if the error against fp64 is at most twice PyTorch's, on average and in the worst element; else
    `wrong`."""
    if not isinstance(exact, torch.Tensor) or exact.shape != got.shape:
        return wrong
    if got.is_complex():
        got, expected, exact, *moved = (real_parts(x) for x in (got, expected, exact, *moved))
    rounded, exact = exact.to(got.dtype), exact.double()
    finite = rounded.isfinite() & expected.isfinite() & got.isfinite()
    same = (got == expected) | (got == rounded) | (got.isnan() & (expected.isnan() | rounded.isnan()))
    if not bool((finite | same).all()):
        return wrong
    if not bool(finite.any()):
        return ""
    shifts = [(m.double() - exact)[finite].abs().nan_to_num(0.0, 0.0, 0.0) for m in moved]
    shift = torch.stack(shifts).amax(0)
    exact, mine, theirs = exact[finite], got[finite].double(), expected[finite].double()
    ours, torchs = (mine - exact).abs(), (theirs - exact).abs()
    ulp = torch.finfo(got.dtype).eps * ULPS
    close = rms(ours) <= 2 * (rms(torchs) + rms(shift)) + ulp * rms(exact)
    if close and ours.max() <= 4 * (torchs.max() + shift.max()) + 4 * ulp * exact.abs().max():
        return ""
    return f"{wrong}; rmse against fp64 {rms(ours):.1e}, PyTorch's {rms(torchs):.1e}"


def real_parts(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj())


def rms(x: torch.Tensor) -> float:
    return float(x.pow(2).mean().sqrt())
