# torch_ocl_compile/decompositions/blocked.py: factorisations and solvers of large matrices by blocks.
"""A matrix is halved until its parts are small enough for one kernel (user_kernel/triangular.py). Matrix products do the rest. So a
graph has a number of nodes that is proportional to the number of panels.

A matrix of the kernels is [batch, rows, columns, parts]. A complex number has two parts.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

LARGEST = 4096  # The largest number of rows or columns. The number of launches grows with it.
PANEL = 128  # The largest matrix that one kernel factors.
SOLVED = 256  # The largest triangle that one kernel solves.


def parts(a: Tensor) -> Tensor:
    """Returns a matrix, or a batch of them, as the kernels take it."""
    a = a.reshape(-1, *a.shape[-2:])
    return torch.view_as_real(a.resolve_conj().contiguous()) if a.is_complex() else a[..., None]


def whole(x: Tensor, like: Tensor) -> Tensor:
    """Returns the matrices that a kernel has made, with the batch dimensions of `like`."""
    made = torch.view_as_complex(x) if like.is_complex() else x[..., 0]
    return made.reshape(*like.shape[:-2], *made.shape[-2:])


def half(n: int, panel: int) -> int:
    """Returns the size of the first part of n > panel rows: a multiple of `panel`, about n / 2."""
    return panel * ((-(-n // panel) + 1) // 2)


def adjoint(a: Tensor) -> Tensor:
    return a.mT.conj_physical() if a.is_complex() else a.mT


def solve(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """Solves a x = b, where only one triangle of a is read. `unit`: the diagonal counts as ones."""
    n = a.shape[-1]
    if n <= SOLVED:
        return whole(torch.ops.ocl.substitution(parts(a), parts(b), upper, unit), b)
    k = half(n, SOLVED)
    if upper:
        last = solve(a[..., k:, k:], b[..., k:, :], upper, unit)
        first = solve(a[..., :k, :k], b[..., :k, :] - a[..., :k, k:] @ last, upper, unit)
    else:
        first = solve(a[..., :k, :k], b[..., :k, :], upper, unit)
        last = solve(a[..., k:, k:], b[..., k:, :] - a[..., k:, :k] @ first, upper, unit)
    return torch.cat([first, last], -2)


def cholesky(a: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (L of A = L L^H, the number of the first column that fails, from 1, or 0). The lower triangle of A is read."""
    n = a.shape[-1]
    if n <= PANEL:
        factor, info = torch.ops.ocl.cholesky_panel(parts(a))
        return whole(factor, a).mT, info.reshape(a.shape[:-2])
    k = half(n, PANEL)
    top, failed_top = cholesky(a[..., :k, :k])
    side = solve(top, adjoint(a[..., k:, :k]), False, False)  # The adjoint of the block below.
    below = adjoint(side)
    rest, failed_rest = cholesky(a[..., k:, k:] - below @ side)
    factor = torch.cat([torch.cat([top, torch.zeros_like(side)], -1), torch.cat([below, rest], -1)], -2)
    later = torch.where(failed_rest != 0, failed_rest + k, 0)
    return factor, torch.where(failed_top != 0, failed_top, later)
