# tests/fuzz/judge.py: compares what a device did in a call with what PyTorch did on the CPU.
"""Everything but floating-point values has to be equal. Floating-point values may differ by a few units in the last place from
PyTorch's; where they differ by more, fp64 decides: an element is wrong if it lies farther from the fp64 result than PyTorch's own
error in that type, and than noise on every line can explain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from tests.fuzz.execute import Seen, View
from tests.fuzz.reference import Native, exact, largest, same

RUNS = 6  # with noise
ULPS = 4  # between two correct implementations of one line
SMOOTH = 1e-3  # largest relative change that counts as smooth
ULPS_FP64 = 256  # of the largest element: nothing more precise tells how far PyTorch itself is off
# Attention's kernels subtract sums made in different orders where the gradient of a softmax is exactly 0, as with a single key: what
# is left is rounding of the terms. The gradient of a saturated tanh inside of a cell, 1 - y * y, is rounding of y.
CANCELLING = ("scaled_dot_product_attention", "softmax(", "_cell(")
LARGEST_TERM = 64.0  # of operands that count: programs keep most values below
EPS_FP64 = torch.finfo(torch.float64).eps
VALUE, LOST, ALIAS, STRIDE, TYPE = "wrong value", "lost write", "wrong alias", "wrong stride", "wrong dtype or shape"
GRADIENT, FLAG = "wrong gradient", "wrong requires_grad"
# Results whose strides every device chooses for itself: torch's CPU and CUDA kernels differ, and so do its rules for tracing.
# On the CPU a convolution of three dimensions is channels-last or not by the number of threads and the sizes, which choose a kernel.
# max_pool1d has one layout on the CPU where a gradient is wanted, and another where none is.
OWN_LAYOUT = ("scaled_dot_product_attention", "linalg.", "conv3d(", "conv_transpose3d(", "max_pool1d(")


@dataclass
class Finding:
    kind: str
    text: str
    output: int | None = None  # position among the results, None for arguments and gradients


class Exact:
    """The fp64 results of a call and those with noise, made when they are first needed."""

    def __init__(self, native: Native) -> None:
        self.native = native

    @property
    def low(self) -> torch.dtype | None:
        """The type of autocast."""
        name = self.native.program.settings.autocast
        return getattr(torch, name) if name else None

    @cached_property
    def plain(self) -> Seen | None:
        return exact(self.native)

    @cached_property
    def noisy(self) -> list[Seen]:
        return [s for s in (exact(self.native, seed) for seed in range(RUNS)) if s is not None]

    @cached_property
    def moved(self) -> list[Seen]:
        """With noise on the arguments too."""
        return [s for s in (exact(self.native, seed, moved=True) for seed in range(2)) if s is not None]

    def of(self, pick: object, shape: torch.Size) -> list[torch.Tensor]:
        """The fp64 result, the noisy ones and the moved ones of one tensor; `pick` takes it out of a Seen. Empty if there are
        none."""
        if self.plain is None or len(self.noisy) < RUNS or len(self.moved) < 2:
            return []
        found = [pick(s) for s in (self.plain, *self.noisy, *self.moved)]  # type: ignore[operator]
        return found if all(isinstance(x, torch.Tensor) and x.shape == shape for x in found) else []


def compare(native: Native, got: Seen, before: Seen, promised: list[Any] | None = None) -> tuple[list[Finding], int]:
    """What is wrong with `got`, and how many elements are unstable. `before`: the arguments as they were. `promised`: under
    autocast, types (none: any) and shapes; strides are not compared then, and values in the precision of autocast."""
    expected = native.seen
    metadata = _metadata(expected, got) if promised is None else _promised(got, promised)
    if any(word in line for line in native.program.statements for word in OWN_LAYOUT):
        metadata = [f for f in metadata if f.kind != STRIDE]
    findings = [*metadata, *_aliases(expected, got)]
    reference, unstable = Exact(native), 0
    count = len(native.program.inputs)
    if any(f.kind == TYPE for f in findings):
        return findings, 0
    for i in range(expected.of_inputs):
        mine, theirs = got.storages[i], expected.storages[i]
        wrong, some = closeness(mine, theirs, lambda s, i=i: s.storages[i], reference)
        unstable += some
        if wrong:
            start = before.storages[i]
            untouched = _equal(mine, start) and not _equal(theirs, start)
            name = next(v.name for v in expected.views if isinstance(v, View) and v.storage == i)
            findings.append(Finding(LOST if untouched else VALUE, f"argument {name} afterwards: {wrong}"))
    for j in range(count, len(expected.views)):
        a, b = got.views[j], expected.views[j]
        if isinstance(b, View) and b.storage >= expected.of_inputs:
            wrong, some = closeness(got.tensor(a), expected.tensor(b), lambda s, j=j: s.tensor(s.views[j]), reference)
            unstable += some
            if wrong:
                findings.append(Finding(VALUE, f"{b.name}: {wrong}", j - count))
    more, some = _gradients(expected, got, reference)
    return findings + more, unstable + some


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """out= makes memory of another size."""
    return a.shape == b.shape and bool(same(a, b).all())


def _gradients(expected: Seen, got: Seen, reference: Exact) -> tuple[list[Finding], int]:
    findings, unstable = [], 0
    if len(expected.gradients) != len(got.gradients):
        return [Finding(GRADIENT, f"{len(got.gradients)} gradients instead of {len(expected.gradients)}")], 0
    terms = _terms(expected, reference)
    for i, (a, b) in enumerate(zip(got.gradients, expected.gradients, strict=True)):
        if a is None and b is None:
            continue
        if a is None or b is None:  # torch may give zeros for nothing
            present = a if b is None else b
            if present is not None and bool((present != 0).any()):
                findings.append(
                    Finding(GRADIENT, f"gradient {i}: {'none' if a is None else 'one where there is none'}")
                )
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            findings.append(
                Finding(GRADIENT, f"gradient {i}: {a.dtype} {tuple(a.shape)} for {b.dtype} {tuple(b.shape)}")
            )
            continue
        wrong, some = closeness(a, b, lambda s, i=i: s.gradients[i], reference, terms)
        unstable += some
        if wrong:
            findings.append(Finding(GRADIENT, f"gradient {i}: {wrong}"))
    return findings, unstable


def _terms(expected: Seen, reference: Exact) -> float:
    """How large the terms are whose difference a gradient may be: other gradients, and products of values; 0 where none is."""
    if not any(word in line for line in reference.native.program.statements for word in CANCELLING):
        return 0.0
    gradients = [largest(g) for g in expected.gradients if g is not None]
    return max(gradients, default=0.0) + min(reference.native.largest, LARGEST_TERM) ** 2


def _metadata(expected: Seen, got: Seen) -> list[Finding]:
    findings = []
    if len(expected.views) != len(got.views):
        return [Finding(TYPE, f"{len(got.views)} arguments and results instead of {len(expected.views)}")]
    for a, b in zip(got.views, expected.views, strict=True):
        if not isinstance(b, View) or not isinstance(a, View):
            if a != b and not (isinstance(b, tuple) and b[0] == "device"):
                findings.append(Finding(TYPE, f"{a} instead of {b}"))
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            findings.append(Finding(TYPE, f"{b.name}: {a.dtype} {a.shape} instead of {b.dtype} {b.shape}"))
        elif _steps(a) != _steps(b):
            findings.append(Finding(STRIDE, f"{b.name}: {a.stride} instead of {b.stride}, shape {b.shape}"))
        elif a.requires_grad != b.requires_grad:
            findings.append(Finding(FLAG, f"{b.name}: {a.requires_grad} instead of {b.requires_grad}"))
    return findings


def _promised(got: Seen, promised: list[Any]) -> list[Finding]:
    views = [v for v in got.views if isinstance(v, View)]
    return [
        Finding(TYPE, f"{v.name}: {v.dtype} {v.shape} instead of {dtypes} {shape}")
        for v, (dtypes, shape) in zip(views, promised, strict=True)
        if (dtypes and v.dtype not in dtypes) or v.shape != shape
    ]


def _steps(view: View) -> list[int]:
    """The strides that mean something."""
    return [] if 0 in view.shape else [step for size, step in zip(view.shape, view.stride, strict=True) if size > 1]


def _aliases(expected: Seen, got: Seen) -> list[Finding]:
    """Which tensors share a storage, and where in it those lie that share one."""
    findings = []
    pairs = [
        (a, b) for a, b in zip(got.views, expected.views, strict=False) if isinstance(a, View) and isinstance(b, View)
    ]
    pairs = [(a, b) for a, b in pairs if 0 not in b.shape]
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            if (a.storage == c.storage) != (b.storage == d.storage):
                verb = "do not share" if b.storage == d.storage else "share"
                findings.append(Finding(ALIAS, f"{d.name} and {b.name} {verb} memory"))
            elif b.storage == d.storage and a.offset - c.offset != b.offset - d.offset:
                text = f"{b.name} lies {a.offset - c.offset} elements behind {d.name}, not {b.offset - d.offset}"
                findings.append(Finding(ALIAS, text))
    return findings


def closeness(
    mine: torch.Tensor, theirs: torch.Tensor, pick: object, reference: Exact, terms: float = 0.0
) -> tuple[str, int]:
    """What is wrong with `mine`, and how many of its elements prove nothing. `terms`: how large the terms are that cancel out."""
    if reference.low and mine.is_floating_point() and mine.dtype != theirs.dtype:
        mine, theirs = mine.double(), theirs.double()
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return f"{mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}", 0
    equal = same(mine, theirs)
    if bool(equal.all()) or _within_ulps(mine, theirs, equal):
        return "", 0
    values = reference.of(pick, mine.shape)
    if not values:
        return _coarsely(mine, theirs, equal, reference.native, terms)
    every = torch.stack([v.to(values[0].dtype) for v in values])
    plain, noisy = every[0], every[1 : 1 + RUNS]
    if not theirs.dtype.is_floating_point:
        stable = (noisy == plain).all(0) & (plain == theirs)
        return _text(mine, theirs, plain, ~equal & stable), int((~equal & ~stable).sum())
    dtype = reference.low or theirs.dtype
    # What is left of operands that cancel out in fp64 is rounding of fp64.
    floor = ULPS * EPS_FP64 * min(reference.native.largest, LARGEST_TERM)
    moved = every[1 + RUNS :].double()
    return _against_fp64(mine, theirs, equal, plain.double(), noisy.double(), moved, dtype, terms, floor)


def _within_ulps(mine: torch.Tensor, theirs: torch.Tensor, equal: torch.Tensor) -> bool:
    if not theirs.dtype.is_floating_point:
        return False
    half = theirs.element_size() == 2
    a, b = mine.double(), theirs.double()
    near = (a - b).abs() <= (1 if half else ULPS) * torch.finfo(theirs.dtype).eps * torch.maximum(a.abs(), b.abs())
    # A tensor of halves that is off by one unit in many places may be rounded the wrong way: fp64 decides.
    return bool((equal | near).all()) and (not half or int((~equal).sum()) <= max(4, equal.numel() // 8))


def _against_fp64(
    mine: torch.Tensor, theirs: torch.Tensor, equal: torch.Tensor, plain: torch.Tensor, noisy: torch.Tensor,
    moved: torch.Tensor, dtype: torch.dtype, terms: float, floor: float,
) -> tuple[str, int]:  # fmt: skip
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    rounded = plain.to(dtype).double()
    a, b = mine.double(), theirs.double()
    settled = plain.isfinite() & noisy.isfinite().all(0) & rounded.isfinite() & b.isfinite()
    spread = torch.where(settled, (noisy - plain).abs().amax(0), 0.0)
    own = torch.where(settled, (b - plain).abs(), 0.0)
    finite = plain.isfinite()
    scale = float(plain[finite].pow(2).mean().sqrt()) if bool(finite.any()) else 0.0
    typical = own.flatten().quantile(0.9) if own.numel() < 2**20 else own.mean()
    # How far rounding inside of an op carries, as far as that is smooth: a jump has to show without moving exact arguments.
    inner = torch.where(settled, (moved - plain).abs().amax(0).nan_to_num(0, 0, 0), 0.0).clamp(
        max=SMOOTH * (plain.abs() + scale)
    )
    allowed = (
        6 * spread
        + 6 * inner
        + 3 * own
        + 3 * typical
        + ULPS * eps * (2 * plain.abs() + scale + terms)
        + ULPS * tiny
        + floor
    )
    if dtype is torch.float64 and bool(finite.any()):
        allowed = allowed + ULPS_FP64 * eps * plain[finite].abs().max().clamp(min=1)
    wrong = ~((a - plain).abs() <= allowed) & ~equal & ~same(a, rounded)
    # Not finite somewhere: only certain if all agree that it is not.
    certain = same(b, rounded) & (noisy.isnan() == plain.isnan()).all(0) & (noisy.isinf() == plain.isinf()).all(0)
    judged = settled | (~settled & certain)
    report = _text(mine, theirs, plain, wrong & judged)
    if not report and dtype is theirs.dtype and not terms:  # what is left of terms leans with their sums' rounding
        report = _biased(a, b, rounded, plain, noisy, eps, settled & (spread <= 8 * eps * plain.abs()))
    return report, int((wrong & ~judged).sum()) + int((spread > 0.05 * plain.abs()).sum())


def _biased(
    a: torch.Tensor, b: torch.Tensor, rounded: torch.Tensor, plain: torch.Tensor, noisy: torch.Tensor, eps: float,
    certain: torch.Tensor,
) -> str:  # fmt: skip
    """Whether results of a half type lean to one side: they are rounded to nearest, so their errors cancel out."""
    use = certain & (rounded != plain) & (plain.abs() > 1e-4)
    if eps < 1e-4 or int(use.sum()) < 40:
        return ""

    def lean(x: torch.Tensor) -> float:
        return float(((x - plain) / plain)[use].mean() / eps)

    mine, theirs = lean(a), max(abs(lean(b)), *(abs(lean(x)) for x in noisy))
    return (
        f"errors lean to one side: {mine:.2f} units on average, PyTorch's {lean(b):.2f}"
        if abs(mine) > 0.2 + 3 * theirs
        else ""
    )


def _coarsely(
    mine: torch.Tensor, theirs: torch.Tensor, equal: torch.Tensor, native: Native, terms: float
) -> tuple[str, int]:
    """Where fp64 cannot be had. A float64 result may have been computed from float32 ones."""
    if theirs.dtype.is_floating_point:
        has_singles = torch.float32 in native.dtypes.values()
        eps = max(torch.finfo(theirs.dtype).eps, torch.finfo(torch.float32).eps if has_singles else 0.0)
        b = theirs.double()
        scale = b[b.isfinite()].abs().max() if bool(b.isfinite().any()) else torch.zeros(())
        equal = equal | ((mine.double() - b).abs() <= 64 * eps * (scale + terms))
    return _text(mine, theirs, theirs, ~equal), int((~equal).sum())


def _text(mine: torch.Tensor, theirs: torch.Tensor, plain: torch.Tensor, wrong: torch.Tensor) -> str:
    count = int(wrong.sum())
    if not count:
        return ""
    place = tuple(int(i) for i in wrong.nonzero()[0])
    got, right = mine[place].item(), plain[place].item()
    return f"{count} of {wrong.numel()} elements, at {place} {got} instead of {right} (PyTorch {theirs[place].item()})"
