# torch_ocl_compile/decompositions/linalg.py: factorisations and solvers; those of small matrices column by column.
"""For small matrices, each step of an algorithm is written out in ordinary ops, and becomes one or two pointwise kernels for the
whole batch. Larger ones go by blocks (blocked.py).

Matrices with more than blocked.LARGEST rows or columns or with symbolic sizes are not decomposed and run eagerly.
Complex matrices take the same steps.
Results follow LAPACK: partial pivoting takes the first of the largest elements, pivots count from 1, and `info` is
the number of the first column that fails (0: none).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._meta_registrations import squareCheckInputs

from torch_ocl_compile.decompositions import blocked
from torch_ocl_compile.decompositions.registry import IN_PACKAGE, decompose

aten = torch.ops.aten
Tensor = torch.Tensor

# The largest matrices whose steps are written out. Beyond these sizes, kernels with a work-group for each matrix are measured to be
# faster, and the steps take seconds to compile. Packages cannot have those kernels.
LARGEST = 32
LARGEST_LU, LARGEST_TRIANGLE = 8, 16  # Triangles: Cholesky factors, and systems with triangular matrices.
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def fits(*matrices: Tensor, largest: int = blocked.LARGEST) -> bool:
    """True if sizes are static and at most `largest`, and the dtype is one of DTYPES."""
    return all(m.dtype in DTYPES and all(isinstance(s, int) and s <= largest for s in m.shape[-2:]) for m in matrices)


def is_large(shape: Sequence[int], largest: int = LARGEST) -> bool:
    """True for matrices that go by blocks. Without elements, there is nothing to do."""
    return max(shape[-2:]) > (LARGEST if IN_PACKAGE.get() else largest) and 0 not in shape


def _range(n: int, like: Tensor) -> Tensor:
    return torch.arange(n, device=like.device)


def _where(condition: Tensor, value: Tensor, other: float = 0.0) -> Tensor:
    return torch.where(condition, value, other)


def _eye(n: int, like: Tensor) -> Tensor:
    i = _range(n, like)
    return (i[:, None] == i[None, :]).to(like.dtype)


def _tril(a: Tensor, diagonal: int = 0) -> Tensor:
    return _where(_range(a.shape[-2], a)[:, None] + diagonal >= _range(a.shape[-1], a)[None, :], a)


def _triu(a: Tensor, diagonal: int = 0) -> Tensor:
    return _where(_range(a.shape[-2], a)[:, None] + diagonal <= _range(a.shape[-1], a)[None, :], a)


def _adjoint(a: Tensor) -> Tensor:
    """Returns the conjugate transpose, without PyTorch's lazy bit: the results of an op must not have it."""
    return a.mT.conj_physical() if a.is_complex() else a.mT


def _first_failure(failures: list[Tensor], like: Tensor) -> Tensor:
    """Returns 1 + the number of the first step that failed, or 0 if none did (int32, one per matrix)."""
    info = torch.zeros(like.shape[:-2], dtype=torch.int32, device=like.device)
    for k in reversed(range(len(failures))):
        info = torch.where(failures[k], k + 1, info)
    return info


# Triangular systems and Cholesky


def solve_lower(a: Tensor, b: Tensor, unit: bool) -> Tensor:
    """Solves a x = b, where only the lower triangle of a is read. `unit`: the diagonal counts as ones."""
    n = a.shape[-1]
    if n == 0:
        return b.clone()
    rows, solved = _range(n, a)[:, None], []
    for k in range(n):
        x = b[..., k : k + 1, :] if unit else b[..., k : k + 1, :] / a[..., k : k + 1, k : k + 1]
        solved.append(x)
        b = torch.where(rows > k, b - a[..., :, k : k + 1] * x, b)
    return torch.cat(solved, -2)


def _solve(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """Solves a triangular system. A small upper one is solved as a lower one with rows and columns reversed."""
    if is_large(a.shape, LARGEST_TRIANGLE) and b.numel() > 0:
        return blocked.solve(a, b, upper, unit)
    if upper:
        return solve_lower(a.flip(-1, -2), b.flip(-2), unit).flip(-2)
    return solve_lower(a, b, unit)


def _broadcast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


@decompose(aten.linalg_solve_triangular.default)
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if not fits(a):
        return NotImplemented
    a, b = _broadcast(a, b)
    if not left:
        return _solve(a.mT, b.mT, not upper, unitriangular).mT
    return _solve(a, b, upper, unitriangular)


@decompose(aten.triangular_solve.default)
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    if not fits(a):
        return NotImplemented
    b, a = _broadcast(b, a)
    return _solve(a.mT if transpose else a, b, upper != transpose, unitriangular), a.clone()


@decompose(aten.linalg_cholesky_ex.default)
def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    if not fits(a) or check_errors:
        return NotImplemented
    n = a.shape[-1]
    if n == 0:
        return a.clone(), _first_failure([], a)
    rest = _adjoint(a) if upper else a
    if is_large(a.shape, LARGEST_TRIANGLE):
        lower, info = blocked.cholesky(rest)
        return (_adjoint(lower) if upper else lower), info
    rows, columns, failures = _range(n, a)[:, None], [], []
    for k in range(n):
        pivot = rest[..., k : k + 1, k : k + 1].real
        failures.append(~(pivot > 0)[..., 0, 0])
        column = _where(rows >= k, rest[..., :, k : k + 1] / pivot.sqrt())
        if a.is_complex():
            # The diagonal is real, whatever the argument has there.
            column = torch.where(rows == k, pivot.sqrt(), column)
        columns.append(column)
        rest = rest - column * _adjoint(column)
    lower = torch.cat(columns, -1)
    return (_adjoint(lower) if upper else lower), _first_failure(failures, a)


@decompose(aten.cholesky.default, before_autograd=True)
def cholesky(a: Tensor, upper: bool = False) -> Any:
    squareCheckInputs(a, "cholesky")
    factor, info = torch.linalg.cholesky_ex(a, upper=upper)
    aten._linalg_check_errors(info, "cholesky", is_matrix=a.dim() == 2)
    return factor


@decompose(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    if not fits(factor):
        return NotImplemented
    lower, unit = _adjoint(factor) if upper else factor, _eye(factor.shape[-1], factor)
    inverse = _solve(lower, unit.expand(factor.shape), False, False)
    return _adjoint(inverse) @ inverse


@decompose(aten.cholesky_solve.default, aten._cholesky_solve_helper.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Any:
    if not fits(factor):
        return NotImplemented
    factor, b = _broadcast(factor, b)
    lower = _adjoint(factor) if upper else factor
    return _solve(_adjoint(lower), _solve(lower, b, False, False), True, False)


# LU


@decompose(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not fits(a) or check_errors:
        return NotImplemented
    m, n = a.shape[-2:]
    if is_large(a.shape, LARGEST_LU):
        return blocked.lu(a, pivot)
    rows, columns = _range(m, a)[:, None], _range(n, a)[None, :]
    pivots, failures = [], []
    for k in range(min(m, n)):
        if pivot:
            size = torch.where(rows >= k, _pivot_size(a[..., :, k : k + 1]), -1.0)
            chosen = size.argmax(-2, keepdim=True)
            a = _take_rows(a, _swap(rows, k, chosen))
            pivots.append(chosen[..., 0] + 1)
        else:
            pivots.append(torch.full((*a.shape[:-2], 1), k + 1, dtype=torch.int64, device=a.device))
        head = a[..., k : k + 1, k : k + 1]
        failures.append((head == 0)[..., 0, 0])
        factor = a[..., :, k : k + 1] / torch.where(head == 0, 1.0, head)
        a = torch.where(rows > k, torch.where(columns > k, a - factor * a[..., k : k + 1, :], a), a)
        a = torch.where((rows > k) & (columns == k), factor, a)
    if not pivots:
        return a.clone(), torch.zeros((*a.shape[:-2], 0), dtype=torch.int32, device=a.device), _first_failure([], a)
    return a, torch.cat(pivots, -1).to(torch.int32), _first_failure(failures, a)


def _pivot_size(x: Tensor) -> Tensor:
    """Returns the size by which LAPACK chooses a pivot."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def _swap(rows: Tensor, k: int, other: Tensor) -> Tensor:
    """Returns the row numbers with k and `other` exchanged."""
    return torch.where(rows == k, other, torch.where(rows == other, k, rows))


def _take_rows(a: Tensor, index: Tensor) -> Tensor:
    return torch.gather(a, -2, index.expand(a.shape))


def permutation(pivots: Tensor, rows: int, inverse: bool = False) -> Tensor:
    """Returns p [.., rows, 1] such that row i of P^T A is row p[i] of A. With `inverse`, row i of P A is row p[i] of A.

    P is the permutation matrix of A = P L U that the LAPACK pivots describe.
    """
    if is_large((*pivots.shape, rows), LARGEST_LU):
        flat = pivots.reshape(-1, pivots.shape[-1]).contiguous()
        made: Tensor = torch.ops.ocl.row_order(flat, rows, inverse)
        return made.reshape(*pivots.shape[:-1], rows, 1)
    index = _range(rows, pivots)[:, None].expand(*pivots.shape[:-1], rows, 1)
    order = range(pivots.shape[-1])
    for k in reversed(order) if inverse else order:
        other = pivots[..., k : k + 1, None].to(torch.int64) - 1
        index = torch.gather(index, -2, _swap(_range(rows, pivots)[:, None], k, other).expand(index.shape))
    return index


@decompose(aten.linalg_lu_solve.default)
def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    if not fits(lu):
        return NotImplemented
    if lu.is_complex() and not left:
        # PyTorch's own result is a lazy conjugate, and compiled gradients rely on it.
        return _lu_solve(lu, pivots, _adjoint(b), True, not adjoint).mT.contiguous().conj()
    return _lu_solve(lu, pivots, b, left, adjoint)


def _lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor:
    if not left:
        return _adjoint(_lu_solve(lu, pivots, _adjoint(b), True, not adjoint))
    lu, b = _broadcast(lu, b)
    order = permutation(pivots, lu.shape[-1], adjoint)
    order = order.expand(*lu.shape[:-2], *order.shape[-2:])
    if adjoint:
        return _take_rows(_solve(_adjoint(lu), _solve(_adjoint(lu), b, False, False), True, True), order)
    return _solve(lu, _solve(lu, _take_rows(b, order), False, True), True, False)


@decompose(aten.lu_unpack.default)
def lu_unpack(lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    if not fits(lu):
        return NotImplemented
    m, n = lu.shape[-2:]
    k = min(m, n)
    p = lower = upper = torch.zeros((0,), dtype=lu.dtype, device=lu.device)
    if unpack_pivots:
        p = (_range(m, lu)[:, None] == permutation(pivots, m).mT).to(lu.dtype)
    if not unpack_data:
        return p, lower, upper.clone()
    unit = (_range(m, lu)[:, None] == _range(k, lu)[None, :]).to(lu.dtype)
    return p, _tril(lu[..., :, :k], -1) + unit, _triu(lu[..., :k, :])


@decompose(aten.linalg_lu.default)
def lu(a: Tensor, *, pivot: bool = True) -> Any:
    if not fits(a) or not pivot:
        return NotImplemented
    factors, pivots, _ = lu_factor_ex(a)
    return lu_unpack(factors, pivots)


@decompose(aten._linalg_solve_ex.default)
def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    if not fits(a) or check_errors:
        return NotImplemented
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    factors, pivots, info = lu_factor_ex(a)
    made = _lu_solve(factors, pivots, b[..., None] if is_vector else b, left or is_vector, False)
    return (made[..., 0] if is_vector else made), factors, pivots, info


@decompose(aten.linalg_inv_ex.default)
def inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    if not fits(a) or check_errors:
        return NotImplemented
    factors, pivots, info = lu_factor_ex(a)
    return _lu_solve(factors, pivots, _eye(a.shape[-1], a).expand(a.shape), True, False), info


def _sign(pivots: Tensor, like: Tensor) -> Tensor:
    """Returns the sign of the permutation: 1 for an even number of row exchanges, -1 for an odd one."""
    odd = (pivots != _range(pivots.shape[-1], pivots) + 1).sum(-1) % 2
    return 1.0 - 2.0 * odd.to(like.dtype)


def _column_major_factors(a: Tensor) -> Any:
    """Returns lu_factor_ex of the transpose if `a` is real and contiguous, else of `a`.

    Eager determinants factor column-major memory in this way, and PyTorch's formulas of their derivatives rely on
    it.
    """
    return lu_factor_ex(a.mT if a.is_contiguous() and not a.is_complex() else a)


@decompose(aten._linalg_det.default)
def det(a: Tensor) -> Any:
    if not fits(a):
        return NotImplemented
    factors, pivots, _ = _column_major_factors(a)
    return factors.diagonal(dim1=-2, dim2=-1).prod(-1) * _sign(pivots, a), factors, pivots


@decompose(aten._linalg_slogdet.default)
def slogdet(a: Tensor) -> Any:
    if not fits(a):
        return NotImplemented
    factors, pivots, _ = _column_major_factors(a)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    sign = (diagonal.sgn() if a.is_complex() else diagonal.sign()).prod(-1) * _sign(pivots, a)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


# QR by Householder reflections. Vector k is 0 above row k and 1 in row k.


@decompose(aten.geqrf.default)
def geqrf(a: Tensor) -> Any:
    if not fits(a):
        return NotImplemented
    m, n = a.shape[-2:]
    if is_large(a.shape):
        return blocked.qr(a)[:2]
    rows, columns, taus = _range(m, a)[:, None], _range(n, a)[None, :], []
    for k in range(min(m, n)):
        x = a[..., :, k : k + 1]
        head, below = a[..., k : k + 1, k : k + 1], _where(rows > k, x)
        square = (below * below.conj()).sum(-2, keepdim=True).real
        beta = -torch.copysign(((head * head.conj()).real + square).sqrt(), head.real)
        trivial = square == 0
        if a.is_complex():
            trivial = trivial & (head.imag == 0)
        tau = torch.where(trivial, 0.0, (beta - head) / torch.where(trivial, 1.0, beta))
        v = below / torch.where(trivial, 1.0, head - beta) + (rows == k).to(a.dtype)
        taus.append(tau[..., 0])
        applied = a - tau.conj() * v * (v.conj() * a).sum(-2, keepdim=True)
        column = torch.where(rows > k, v, torch.where(rows == k, torch.where(trivial, head, beta), x))
        a = torch.where(columns > k, applied, torch.where(columns == k, column, a))
    empty = torch.zeros((*a.shape[:-2], 0), dtype=a.dtype, device=a.device)
    return a.clone() if not taus else a, torch.cat(taus, -1) if taus else empty


def reflect(vectors: Tensor, tau: Tensor, b: Tensor, transpose: bool) -> Tensor:
    """Returns Q b, or Q^H b if `transpose`, where Q = H_0 H_1 ... is the product of the reflections."""
    if is_large(vectors.shape) and tau.numel() > 0 and b.numel() > 0:
        return blocked.reflect(blocked.panels_of(vectors, tau), b, transpose)
    rows = _range(vectors.shape[-2], vectors)[:, None]
    order = range(tau.shape[-1])
    for k in order if transpose else reversed(order):
        v = _where(rows > k, vectors[..., :, k : k + 1]) + (rows == k).to(b.dtype)
        factor = tau[..., k : k + 1, None].conj() if transpose else tau[..., k : k + 1, None]
        b = b - factor * v * (v.conj() * b).sum(-2, keepdim=True)
    return b


@decompose(aten.linalg_householder_product.default)
def householder_product(a: Tensor, tau: Tensor) -> Any:
    if not fits(a):
        return NotImplemented
    m, n = a.shape[-2:]
    unit = (_range(m, a)[:, None] == _range(n, a)[None, :]).to(a.dtype)
    return reflect(a, tau, unit.expand(a.shape), False).clone()


@decompose(aten.ormqr.default)
def ormqr(a: Tensor, tau: Tensor, c: Tensor, left: bool = True, transpose: bool = False) -> Any:
    if not fits(a, c):
        return NotImplemented
    if left:
        return reflect(a, tau, c, transpose).clone()
    return _adjoint(reflect(a, tau, _adjoint(c), not transpose)).clone()


@decompose(aten.linalg_qr.default)
def qr(a: Tensor, mode: str = "reduced") -> Any:
    if not fits(a):
        return NotImplemented
    m, n = a.shape[-2:]
    columns = min(m, n) if mode == "reduced" else m
    factors, tau, panels = blocked.qr(a) if is_large(a.shape) else (*geqrf(a), [])
    r = _triu(factors[..., : columns if mode != "r" else min(m, n), :])
    if mode == "r":
        return torch.zeros((0,), dtype=a.dtype, device=a.device), r
    unit = (_range(m, a)[:, None] == _range(columns, a)[None, :]).to(a.dtype)
    unit = unit.expand(*a.shape[:-2], m, columns)
    q = blocked.reflect(panels, unit, False) if panels else reflect(factors, tau, unit, False)
    return q.clone(), r
