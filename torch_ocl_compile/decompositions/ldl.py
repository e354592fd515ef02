# torch_ocl_compile/decompositions/ldl.py: the factorisation L D L^T of small matrices with Bunch and Kaufman's pivoting, and its solver.
"""The block-diagonal matrix D has blocks of 1 x 1 and 2 x 2. Each matrix of a batch chooses its own blocks, so both kinds of step
are computed and one is selected. Results follow LAPACK: a negative pivot belongs to a block of 2 x 2, row exchanges are not applied
to earlier columns of L, and the upper triangle is 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_ocl_compile.decompositions import linalg
from torch_ocl_compile.decompositions.registry import decompose

aten = torch.ops.aten
Tensor = torch.Tensor

LARGEST = 16
ALPHA = (1 + math.sqrt(17)) / 8  # Bounds the growth of elements for both kinds of step alike.


def fits(a: Tensor) -> bool:
    return linalg.fits(a) and a.shape[-1] <= LARGEST


def _transposed(a: Tensor, hermitian: bool) -> Tensor:
    return linalg._adjoint(a) if hermitian else a.mT


def _exchanged(a: Tensor, k: Tensor, other: Tensor, dim: int) -> Tensor:
    """Returns a with rows (dim -2) or columns (dim -1) number `k` and `other` exchanged: [.., 1, 1] each."""
    at = linalg._range(a.shape[dim], a)
    at = at[:, None] if dim == -2 else at
    order = torch.where(at == k, other, torch.where(at == other, k, at))
    return torch.gather(a, dim, order.expand(a.shape))


def _element(a: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Returns the elements at [.., 1, 1] rows and columns."""
    line = torch.gather(a, -2, row.expand(*a.shape[:-2], 1, a.shape[-1]))
    return torch.gather(line, -1, column.expand(*a.shape[:-2], 1, 1))


def _choice(a: Tensor, k: int, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (the row to exchange, whether the block is 2 x 2, whether the column is 0) for step k, [.., 1, 1] each.

    `a` has all elements of the rest of the matrix, which begins at k.
    """
    n = a.shape[-1]
    rows, columns = linalg._range(n, a)[:, None], linalg._range(n, a)
    size = linalg._pivot_size(a)
    if hermitian:
        size = torch.where(rows == columns, _real_size(a), size)
    here = size[..., k : k + 1, k : k + 1]
    below = torch.where(rows > k, size[..., :, k : k + 1], -1.0)
    largest, best = below.amax(-2, keepdim=True).clamp(min=0.0), below.argmax(-2, keepdim=True)
    others = torch.gather(size, -2, best.expand(*size.shape[:-2], 1, n))
    in_row = torch.where((columns >= k) & (columns != best), others, 0.0).amax(-1, keepdim=True)
    diagonal = _element(size, best, best)
    ratio = largest / torch.where(in_row == 0, 1.0, in_row)
    stays = (here >= ALPHA * largest) | (here >= ALPHA * largest * ratio)
    moves = diagonal >= ALPHA * in_row
    return torch.where(stays, k, best), ~stays & ~moves, torch.maximum(here, largest) == 0


def _real_size(a: Tensor) -> Tensor:
    return a.real.abs() if a.is_complex() else a.abs()


@decompose(aten.linalg_ldl_factor_ex.default)
def ldl_factor_ex(a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    if not fits(a) or check_errors:
        return NotImplemented
    n, hermitian = a.shape[-1], hermitian and a.is_complex()
    rows, columns = linalg._range(n, a)[:, None], linalg._range(n, a)
    below = linalg._tril(a, -1)
    rest = below + _transposed(below, hermitian) + linalg._eye(n, a) * (a.real if hermitian else a)
    factors, pivots, failures = rest, [], []
    second = torch.zeros((*a.shape[:-2], 1, 1), dtype=torch.bool, device=a.device)  # The step is the second of a block.
    previous = second.to(torch.int64)
    for k in range(n):
        chosen, is_pair, is_zero = _choice(rest, k, hermitian)
        is_pair = is_pair & ~second if k + 1 < n else second & ~second
        skip = second | is_zero
        failures.append((is_zero & ~second)[..., 0, 0])
        chosen = torch.where(skip, k, chosen)
        target = torch.where(is_pair, k + 1, k)
        swapped = _exchanged(_exchanged(rest, target, chosen, -2), target, chosen, -1)
        rest = torch.where(skip, rest, swapped)
        one = _one_step(rest, k, hermitian, rows)
        two = _two_steps(rest, k, hermitian, rows) if k + 1 < n else (one[0], rest)
        inner = (rows > k) & (columns > k)
        beyond = (rows > k + 1) & (columns > k + 1)
        in_first, in_pair = (columns == k) & (rows > k), ((columns == k) | (columns == k + 1)) & (rows > k + 1)
        done = torch.where((columns >= k) & (rows >= k), rest, factors)
        done = torch.where(~is_pair & in_first, one[0], torch.where(is_pair & in_pair, two[0], done))
        factors = torch.where(skip, torch.where((columns >= k) & (rows >= k) & ~second, rest, factors), done)
        updated = torch.where(is_pair, torch.where(beyond, two[1], rest), torch.where(inner, one[1], rest))
        rest = torch.where(skip, rest, updated)
        pivots.append(torch.where(second, previous, torch.where(is_pair, -(chosen + 1), chosen + 1))[..., 0])
        previous, second = torch.where(is_pair, -(chosen + 1), 0), is_pair
    info = linalg._first_failure(failures, a)
    if not pivots:
        return a.clone(), torch.zeros((*a.shape[:-2], 0), dtype=torch.int32, device=a.device), info
    return linalg._tril(factors), torch.cat(pivots, -1).to(torch.int32), info


def _one_step(a: Tensor, k: int, hermitian: bool, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (the column of L, the rest of the matrix) after a block of 1 x 1."""
    head, column = a[..., k : k + 1, k : k + 1], linalg._where(rows > k, a[..., :, k : k + 1])
    factor = column / torch.where(head == 0, 1.0, head)
    return factor, a - factor * _transposed(column, hermitian)


def _two_steps(a: Tensor, k: int, hermitian: bool, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (the columns k and k + 1 of L at their places, the rest of the matrix) after a block of 2 x 2."""
    first, second = (linalg._where(rows > k + 1, a[..., :, j : j + 1]) for j in (k, k + 1))
    one, two = _pair_solved(a, k, first, second, hermitian)
    columns = linalg._range(a.shape[-1], a)
    rest = a - one * _transposed(first, hermitian) - two * _transposed(second, hermitian)
    return torch.where(columns == k, one, two), rest


def _pair_solved(a: Tensor, k: int, first: Tensor, second: Tensor, hermitian: bool, by_rows: bool = False) -> Any:
    """Returns x and y for which [x, y] D = [first, second], where D = [[p, conj(c)], [c, q]] is the block at k (for symmetric
    matrices c, without conj). `by_rows`: for which D [x; y] = [first; second].

    It divides by the corner c, as LAPACK does, because the determinant might overflow.
    """
    p, corner, q = (a[..., i : i + 1, j : j + 1] for i, j in ((k, k), (k + 1, k), (k + 1, k + 1)))
    corner = torch.where(corner == 0, 1.0, corner)
    across = corner.conj() if hermitian else corner
    if by_rows:
        corner, across = across, corner
    below, above = q / corner, p / across
    scale = 1 / (below * above - 1)
    return scale * (below * first - second) / across, scale * (above * second - first) / corner


@decompose(aten.linalg_ldl_solve.default)
def ldl_solve(ld: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Any:
    """Returns X of L D L^T X = B, with row exchanges between the steps of both substitutions."""
    if not fits(ld):
        return NotImplemented
    n, hermitian = ld.shape[-1], hermitian and ld.is_complex()
    ld, b = linalg._broadcast(ld, b)
    rows = linalg._range(n, ld)[:, None]
    pivots = pivots.to(torch.int64).expand(*ld.shape[:-2], n)[..., None]
    starts: list[Tensor] = []  # Whether the step is the first of a block of 2 x 2.
    for k in range(n):
        is_negative = pivots[..., k : k + 1, :] < 0
        starts.append(is_negative & ~starts[-1] if starts else is_negative)
    ends = [torch.zeros_like(starts[0]), *starts[:-1]] if starts else []
    below = linalg._tril(ld, -1)
    for k in range(n):
        step = _forward_step(ld, below, b, k, starts[k], pivots[..., k : k + 1, :], hermitian, rows)
        b = torch.where(ends[k], b, step)
    upper = _transposed(below, hermitian)
    for k in reversed(range(n)):
        # A block of 2 x 2 has no multiplier of its own inside: its corner belongs to D.
        later = torch.where(starts[k], rows > k + 1, rows > k)
        found = b[..., k : k + 1, :] - upper[..., k : k + 1, :] @ linalg._where(later, b)
        b = torch.where(rows == k, found, b)
        # The second row of a block is exchanged after both of its rows are known.
        other = pivots[..., k : k + 1, :].abs() - 1
        if k + 1 < n:
            b = torch.where(starts[k], _exchanged(b, torch.full_like(other, k + 1), other, -2), b)
        b = torch.where(starts[k] | ends[k], b, _exchanged(b, torch.full_like(other, k), other, -2))
    return b


def _forward_step(
    ld: Tensor, below: Tensor, b: Tensor, k: int, is_pair: Tensor, pivot: Tensor, hermitian: bool, rows: Tensor
) -> Tensor:
    """Returns the right-hand sides after the substitution of block k, divided by the block."""
    b = _exchanged(b, torch.where(is_pair, k + 1, k), pivot.abs() - 1, -2)
    first = b[..., k : k + 1, :]
    one = torch.where(rows == k, first / ld[..., k : k + 1, k : k + 1], b - below[..., :, k : k + 1] * first)
    if k + 1 == b.shape[-2]:
        return one
    second = b[..., k + 1 : k + 2, :]
    x, y = _pair_solved(ld, k, first, second, hermitian, by_rows=True)
    rest = b - below[..., :, k : k + 1] * first - below[..., :, k + 1 : k + 2] * second
    two = torch.where(rows == k, x, torch.where(rows == k + 1, y, torch.where(rows > k, rest, b)))
    return torch.where(is_pair, two, one)
