# tests/fuzz/judge.py: compares what a device computed in a call with what PyTorch computed on the CPU.
"""Everything except floating-point values has to be equal.

Floating-point values may differ from PyTorch's by a few units in the last place. If they differ by more, fp64
decides: an element is wrong if it is farther from the fp64 result than PyTorch's own error in that dtype and noise
on every line can explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from tests.fuzz.execute import Seen, View
from tests.fuzz.reference import ROUND, Native, exact, largest, same

# The number of fp64 runs with noise, and of further ones where a result that is no floating-point number is wrong: noise
# of either sign may decide about it.
RUNS, MORE = 6, 12
# The difference allowed between two correct implementations of one line, in units in the last place.
ULPS = 4
# The largest relative change that counts as smooth.
SMOOTH = 1e-3
# In units in the last place of the largest element: no more precise result tells PyTorch's own error in fp64.
ULPS_FP64 = 256
# Ops whose result or gradient is what rounding leaves of terms that cancel. Attention's kernels subtract sums made in
# different orders where the gradient of a softmax is exactly 0, as with a single key. The gradient of a saturated tanh
# in a cell is 1 - y * y.
CANCELLING = ("scaled_dot_product_attention", "softmax(", "_cell(", "flex_attention(")
# Calls that give gradients as results.
DERIVATIVES = ("func.jvp(", "func.vjp(", "func.grad", "func.jac")
# Ops that subtract a mean. Rounding decides whether a result is exactly 0, and of equal elements PyTorch's never is.
CENTRED = ("_norm(", ".var(", ".std(")
# Ops whose result depends on whether rounding makes two numbers equal. Under autocast, kernels round in other places.
EQUALITY = ("eq(", "ne(", "equal(", "==", "!=", "isclose(", "unique")
# The largest magnitude of operands that is taken into account; programs keep most values below it.
LARGEST_TERM = 64.0
EPS_FP64 = torch.finfo(torch.float64).eps
VALUE, LOST, ALIAS, STRIDE, TYPE = "wrong value", "lost write", "wrong alias", "wrong stride", "wrong dtype or shape"
GRADIENT, FLAG = "wrong gradient", "wrong requires_grad"
# Ops for whose results every device chooses the strides: torch's CPU and CUDA kernels differ, and so do its rules for
# tracing. On the CPU, the number of threads and the sizes choose the kernel of a three-dimensional convolution, and
# with it the layout. max_pool1d has one layout on the CPU if a gradient is needed, and another if not.
OWN_LAYOUT = (
    "scaled_dot_product_attention",
    "flex_attention(",
    "linalg.",
    "conv3d(",
    "conv_transpose3d(",
    "max_pool1d(",
)


@dataclass
class Finding:
    kind: str
    text: str
    # Position among the results; None for arguments and gradients.
    output: int | None = None


class Exact:
    """The fp64 results of a call, with and without noise. They are computed when they are first needed."""

    def __init__(self, native: Native) -> None:
        self.native = native

    @property
    def low(self) -> torch.dtype | None:
        """The dtype of autocast."""
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
        """Results with noise on the arguments as well."""
        return [s for s in (exact(self.native, seed, moved=True) for seed in range(2)) if s is not None]

    def more(self, pick: object, plain: torch.Tensor) -> torch.Tensor:
        """Returns one tensor from MORE further runs with noise and one that rounds, stacked."""
        runs = [s for s in (exact(self.native, seed) for seed in (*range(RUNS, RUNS + MORE), ROUND)) if s is not None]
        found = [pick(s) for s in runs]  # type: ignore[operator]
        return torch.stack([plain, *(x.to(plain.dtype) for x in found if x.shape == plain.shape)])

    def of(self, pick: object, shape: torch.Size) -> list[torch.Tensor]:
        """Returns the fp64 results of one tensor: the plain one, the noisy ones, and those with moved arguments.

        `pick` takes the tensor out of a Seen. The list is empty if the results cannot be computed.
        """
        if self.plain is None or len(self.noisy) < RUNS or len(self.moved) < 2:
            return []
        found = [pick(s) for s in (self.plain, *self.noisy, *self.moved)]  # type: ignore[operator]
        return found if all(isinstance(x, torch.Tensor) and x.shape == shape for x in found) else []


def compare(native: Native, got: Seen, before: Seen, promised: list[Any] | None = None) -> tuple[list[Finding], int]:
    """Returns (what is wrong with `got`, the number of unstable elements).

    `before` holds the arguments before the call. `promised` lists the allowed dtypes (none: any) and shapes under
    autocast; strides are not compared then, and values in the precision of autocast.
    """
    expected = native.seen
    metadata = _metadata(expected, got) if promised is None else _promised(got, promised)
    if any(word in line for line in native.program.statements for word in OWN_LAYOUT):
        metadata = [f for f in metadata if f.kind != STRIDE]
    findings = [*metadata, *_aliases(expected, got)]
    reference, unstable = Exact(native), 0
    count = len(native.program.inputs)
    if any(f.kind == TYPE for f in findings):
        return findings, 0
    # out= gave them other sizes. Beside the views, their new memory holds anything.
    resized = {i for i in range(expected.of_inputs) if expected.storages[i].shape != before.storages[i].shape}
    for i in sorted(set(range(expected.of_inputs)) - resized):
        start = before.storages[i]
        mine, theirs = got.storages[i], expected.storages[i]
        wrong, some = closeness(mine, theirs, lambda s, i=i: s.storages[i], reference)
        unstable += some
        if wrong:
            untouched = _equal(mine, start) and not _equal(theirs, start)
            name = next(v.name for v in expected.views if isinstance(v, View) and v.storage == i)
            findings.append(Finding(LOST if untouched else VALUE, f"argument {name} afterwards: {wrong}"))
    terms = _terms(expected, reference) if has(reference, DERIVATIVES) else 0.0
    for j, (a, b) in enumerate(zip(got.views, expected.views, strict=True)):
        if isinstance(b, View) and ((j >= count and b.storage >= expected.of_inputs) or b.storage in resized):
            wrong, some = closeness(
                got.tensor(a), expected.tensor(b), lambda s, j=j: s.tensor(s.views[j]), reference, terms
            )
            unstable += some
            if wrong:
                findings.append(Finding(VALUE, f"{b.name}: {wrong}", j - count if j >= count else None))
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
        # torch may return zeros instead of no gradient.
        if a is None or b is None:
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
    """Returns the magnitude of the terms that may cancel in a gradient: other gradients, and products of values.

    It is 0 if the program has no op that cancels terms.
    """
    if not has(reference, CANCELLING):
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
    """Returns the strides of the dimensions with more than one element."""
    return [] if 0 in view.shape else [step for size, step in zip(view.shape, view.stride, strict=True) if size > 1]


def _aliases(expected: Seen, got: Seen) -> list[Finding]:
    """Compares which tensors share a storage, and their offsets in it."""
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
    """Returns (what is wrong with `mine`, the number of its elements that prove nothing).

    `terms` is the magnitude of the terms that may cancel.
    """
    if mine.dtype == theirs.dtype and theirs.is_complex():
        real = lambda x: torch.view_as_real(x) if isinstance(x, torch.Tensor) and x.is_complex() else x  # noqa: E731
        return closeness(real(mine), real(theirs), lambda s: real(pick(s)), reference, terms)  # type: ignore[operator]
    # An 8-bit float is one of a few numbers, as an integer is.
    few = mine.dtype == theirs.dtype and theirs.is_floating_point() and theirs.element_size() == 1
    if few:
        mine, theirs = mine.float(), theirs.float()
    if reference.low and mine.is_floating_point() and mine.dtype != theirs.dtype:
        mine, theirs = mine.double(), theirs.double()
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return f"{mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}", 0
    equal = same(mine, theirs)
    if bool(equal.all()) or (not few and _within_ulps(mine, theirs, equal)):
        return "", 0
    centred = has(reference, CENTRED)
    if not theirs.dtype.is_floating_point and (centred or (reference.low and has(reference, EQUALITY))):
        return "", int((~equal).sum())
    values = reference.of(pick, mine.shape)
    if not values:
        more = min(reference.native.largest, LARGEST_TERM) if centred else 0.0
        return _coarsely(mine, theirs, equal, reference.native, terms + more)
    every = torch.stack([v.to(torch.float32 if few else values[0].dtype) for v in values])
    plain, noisy = every[0], every[1 : 1 + RUNS]
    if few or not theirs.dtype.is_floating_point:
        stable = same(noisy, plain).all(0) & same(plain, theirs)
        if bool((~equal & stable).any()):
            stable &= same(reference.more(pick, plain), plain).all(0)
        return _text(mine, theirs, plain, ~equal & stable), int((~equal & ~stable).sum())
    dtype = reference.low or theirs.dtype
    # Operands that cancel in fp64 leave rounding errors of fp64.
    floor = ULPS * EPS_FP64 * min(reference.native.largest, LARGEST_TERM)
    moved = every[1 + RUNS :].double()
    by_matrix = has(reference, ("linalg.",)) and plain.dim() >= 2
    return _against_fp64(mine, theirs, equal, plain.double(), noisy.double(), moved, dtype, terms, floor, by_matrix)


def has(reference: Exact, words: tuple[str, ...]) -> bool:
    """Returns whether a line of the program contains one of the words."""
    return any(word in line for word in words for line in reference.native.program.statements)


def _within_ulps(mine: torch.Tensor, theirs: torch.Tensor, equal: torch.Tensor) -> bool:
    if not theirs.dtype.is_floating_point:
        return False
    half = theirs.element_size() == 2
    a, b = mine.double(), theirs.double()
    near = (a - b).abs() <= (1 if half else ULPS) * torch.finfo(theirs.dtype).eps * torch.maximum(a.abs(), b.abs())
    # A tensor of halves with many elements off by one unit may be rounded the wrong way: fp64 decides.
    return bool((equal | near).all()) and (not half or int((~equal).sum()) <= max(4, equal.numel() // 8))


def _against_fp64(
    mine: torch.Tensor, theirs: torch.Tensor, equal: torch.Tensor, plain: torch.Tensor, noisy: torch.Tensor,
    moved: torch.Tensor, dtype: torch.dtype, terms: float, floor: float, by_matrix: bool,
) -> tuple[str, int]:  # fmt: skip
    """by_matrix: errors of an element are those of its matrix, as in a factorisation, where all of them share one."""
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    rounded = plain.to(dtype).double()
    a, b = mine.double(), theirs.double()
    settled = plain.isfinite() & noisy.isfinite().all(0) & rounded.isfinite() & b.isfinite()
    spread = torch.where(settled, (noisy - plain).abs().amax(0), 0.0)
    own = torch.where(settled, (b - plain).abs(), 0.0)
    if by_matrix:
        spread, own = (x.amax((-2, -1), keepdim=True).expand_as(x) for x in (spread, own))
    finite = plain.isfinite()
    scale = float(plain[finite].pow(2).mean().sqrt()) if bool(finite.any()) else 0.0
    typical = own.flatten().quantile(0.9) if own.numel() < 2**20 else own.mean()
    # The error that rounding inside of an op causes, as far as the op is smooth. A jump has to show without moving the
    # arguments.
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
    # A result that is not finite somewhere is only certain if all runs agree on where.
    certain = same(b, rounded) & (noisy.isnan() == plain.isnan()).all(0) & (noisy.isinf() == plain.isinf()).all(0)
    judged = settled | (~settled & certain)
    report = _text(mine, theirs, plain, wrong & judged)
    # The remainder of terms that cancel is biased by the rounding of their sums.
    if not report and dtype is theirs.dtype and not terms:
        report = _biased(a, b, rounded, plain, noisy, eps, settled & (spread <= 8 * eps * plain.abs()))
    return report, int((wrong & ~judged).sum()) + int((spread > 0.05 * plain.abs()).sum())


def _biased(
    a: torch.Tensor, b: torch.Tensor, rounded: torch.Tensor, plain: torch.Tensor, noisy: torch.Tensor, eps: float,
    certain: torch.Tensor,
) -> str:  # fmt: skip
    """Returns a text if results of a half type are biased to one side: rounding to nearest makes errors cancel on
    average."""
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
    """Compares without fp64. A float64 result may have been computed from float32 values."""
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
