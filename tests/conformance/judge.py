# tests/conformance/judge.py: whether a result is as right as PyTorch's own on the CPU.
"""First assert_close with its defaults for the dtype. What fails that is judged by fp64: sums of many terms and casts in
between move the last bits. PyTorch's own error says how far they may move (docs/architecture.md, numerics), and so does the
change of the fp64 result when the inputs move by an ulp: a difference of near equals is not better known than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

# Units in the last place on the scale of the whole tensor, where PyTorch happens to be exact.
ULPS = 4


def tensors(value: Any) -> list[Any]:
    """The leaves of a result, tensors on the CPU."""
    leaves = tree_flatten(value)[0]
    return [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in leaves]


def difference(got: Any, expected: Any, exact: Callable[[], list[Any]], *, values: bool = True) -> str:
    """What is wrong with `got`, or "". `exact`: the same in fp64, then several times from inputs an ulp away.
    Without `values` only dtypes and shapes count."""
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
    """ "" if the error against fp64 is at most twice PyTorch's, as a whole and in the worst place; else `wrong`."""
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
