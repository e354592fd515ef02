# torch_ocl_compile/decompositions/blocked.py: factorisations and solvers of large matrices by blocks.
"""A matrix is halved until its parts are small enough for one kernel (user_kernel/triangular.py, lu.py). Matrix products do the
rest. So a graph has a number of nodes that is proportional to the number of panels.

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


def _first_of(top: Tensor, rest: Tensor, k: int) -> Tensor:
    """Returns the first failure: those of the part that begins at column k count after all others."""
    return torch.where(top != 0, top, torch.where(rest != 0, rest + k, 0))


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
    return factor, _first_of(failed_top, failed_rest, k)


def take_rows(a: Tensor, order: Tensor) -> Tensor:
    """Returns the rows of a whose numbers are in order [batch, rows]."""
    return whole(torch.ops.ocl.take_rows(parts(a), order), a)


def lu(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (L and U in one matrix, LAPACK's pivots, the first pivot that is 0, from 1, or 0)."""
    factors, panels, _ = _lu(a, pivot, 0)
    info = panels[-1][1]
    for _, earlier in reversed(panels[:-1]):
        info = torch.where(earlier != 0, earlier, info)
    pivots = torch.cat([pivots for pivots, _ in panels], -1)
    return factors, pivots.reshape(*a.shape[:-2], pivots.shape[-1]), info.reshape(a.shape[:-2])


def _lu(a: Tensor, pivot: bool, before: int) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
    """Returns (L and U in one matrix, the pivots and the failure of each panel, the order of rows). Numbers have one batch
    dimension. `before`: columns on the left of a."""
    m, n = a.shape[-2:]
    if n > m:
        left, panels, order = _lu(a[..., :m], pivot, before)
        right = solve(left, take_rows(a[..., m:], order), False, True)
        return torch.cat([left, right], -1), panels, order
    if n <= PANEL:
        columns, pivots, order, info = torch.ops.ocl.lu_panel(parts(a), pivot, before)
        return whole(columns, a).mT, [(pivots, info)], order
    k = half(n, PANEL)
    left, panels, order = _lu(a[..., :k], pivot, before)
    right = take_rows(a[..., k:], order)
    top = solve(left[..., :k, :], right[..., :k, :], False, True)
    rest, later_panels, later = _lu(right[..., k:, :] - left[..., k:, :] @ top, pivot, before + k)
    below = take_rows(left[..., k:, :], later)
    factors = torch.cat([torch.cat([left[..., :k, :], below], -2), torch.cat([top, rest], -2)], -1)
    return factors, panels + later_panels, torch.ops.ocl.later_order(order, later)


def unit_lower(a: Tensor) -> Tensor:
    """Returns a with ones on the diagonal and zeros above it."""
    rows, columns = (torch.arange(s, device=a.device) for s in a.shape[-2:])
    below = rows[:, None] - columns
    return torch.where(below > 0, a, (below == 0).to(a.dtype))


def reflector(vectors: Tensor, tau: Tensor) -> Tensor:
    """Returns the upper triangular T of the product I - V T V^H of reflections, whose vectors have ones and zeros as in unit_lower."""
    products = parts(adjoint(vectors) @ vectors)
    factors = parts(tau[..., None])[..., 0, :].contiguous()
    made = torch.ops.ocl.reflector(products.contiguous(), factors)
    return whole(made, vectors)


# The vectors of the reflections of a panel, as in unit_lower, and their T. A panel begins where the one before ends.
Panel = tuple[Tensor, Tensor]


def panels_of(vectors: Tensor, tau: Tensor) -> list[Panel]:
    """Returns the panels of the reflections that are given as LAPACK's geqrf leaves them."""
    made = []
    for k in range(0, tau.shape[-1], PANEL):
        end = min(k + PANEL, tau.shape[-1])
        v = unit_lower(vectors[..., k:, k:end])
        made.append((v, reflector(v, tau[..., k:end])))
    return made


def _reflected(panel: Panel, b: Tensor, transpose: bool) -> Tensor:
    v, t = panel
    return b - v @ ((adjoint(t) if transpose else t) @ (adjoint(v) @ b))


def reflect(panels: list[Panel], b: Tensor, transpose: bool) -> Tensor:
    """Returns Q b, or Q^H b if `transpose`, where Q = H_0 H_1 ... is the product of the reflections."""
    if transpose:
        done = []
        for panel in panels:
            b = _reflected(panel, b, True)
            done.append(b[..., : panel[0].shape[-1], :])
            b = b[..., panel[0].shape[-1] :, :]
        return torch.cat([*done, b], -2)
    for panel in reversed(panels):
        k = b.shape[-2] - panel[0].shape[-2]  # The rows above are not changed.
        made = _reflected(panel, b[..., k:, :], False)
        b = torch.cat([b[..., :k, :], made], -2) if k else made
    return b


def qr(a: Tensor) -> tuple[Tensor, Tensor, list[Panel]]:
    """Returns (R, and below it the vectors of the reflections, their factors tau, their panels), as LAPACK's geqrf does."""
    done: list[
        tuple[Tensor, Tensor]
    ] = []  # The columns of each panel, and those on the right of it, from its first row on.
    taus, panels = [], []
    while min(a.shape[-2:]) > 0:
        width = min(PANEL, *a.shape[-2:])
        columns, tau = torch.ops.ocl.qr_panel(parts(a[..., :width]))
        panel, rest = whole(columns, a).mT, a[..., width:]
        taus.append(whole(tau[:, :, None], a)[..., 0])
        v = unit_lower(panel)
        panels.append((v, reflector(v, taus[-1])))
        if rest.shape[-1] > 0:
            rest = _reflected(panels[-1], rest, True)
        done.append((panel, rest))
        a = rest[..., width:, :]
    factors = torch.cat(done.pop(), -1)
    for panel, rest in reversed(done):
        factors = torch.cat([panel, torch.cat([rest[..., : panel.shape[-1], :], factors], -2)], -1)
    return factors, torch.cat(taus, -1), panels
