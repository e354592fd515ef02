# torch_ocl_compile/decompositions/least_squares.py: least squares of small systems, by QR or by singular values.
"""The driver gels takes a matrix of full rank and uses QR. All others find the rank and the shortest solution, here by singular values.
gelss and gelsd return residuals only where all matrices have full rank; csrc/torch/checked_ops.cpp reads that from the device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from torch_ocl_compile.decompositions import linalg, spectral
from torch_ocl_compile.decompositions.registry import decompose
from torch_ocl_compile.decompositions.result_layouts import by_columns

aten = torch.ops.aten
Tensor = torch.Tensor

DRIVERS = ("gels", "gelsy", "gelss", "gelsd")


def _by_qr(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (x, sums of the squares of the residuals)."""
    m, n = a.shape[-2:]
    nothing = torch.zeros((0,), dtype=a.dtype.to_real(), device=a.device)
    if m < n:
        factors, tau = linalg.geqrf(linalg._adjoint(a))
        solved = linalg._solve(linalg._adjoint(linalg._triu(factors[..., :m, :])), b, False, False)
        return linalg.reflect(factors, tau, F.pad(solved, (0, 0, 0, n - m)), False), nothing
    factors, tau = linalg.geqrf(a)
    rotated = linalg.reflect(factors, tau, b, True)
    rest = rotated[..., n:, :]
    residuals = spectral._square(rest).sum(-2) if m > n else nothing
    return linalg._solve(factors[..., :n, :], rotated[..., :n, :], True, False), residuals


@decompose(aten.linalg_lstsq.default)
def lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Returns (solution, residuals, rank, singular values). Results that a driver does not have are empty."""
    driver = "gelsy" if driver is None else driver.lower()
    is_vector = b.dim() == a.dim() - 1
    rows = b.shape[-1 if is_vector else -2] if b.dim() > 0 else None
    if a.dim() < 2 or b.dim() not in (a.dim() - 1, a.dim()) or rows != a.shape[-2] or a.dtype != b.dtype:
        return NotImplemented  # PyTorch raises an error.
    fits = linalg.fits(a) if driver == "gels" else spectral.fits(a)
    m, n = a.shape[-2:]
    has_residuals = driver in ("gelss", "gelsd") and m > n
    # LAPACK's gelsy cuts off columns of a QR decomposition. Only of what rounding has left, singular values are the same.
    cuts_columns = driver == "gelsy" and rcond is not None
    if driver not in DRIVERS or not fits or has_residuals or cuts_columns or a.numel() == 0 or b.numel() == 0:
        return NotImplemented
    # Two results must not be one tensor.
    values, residuals = (torch.zeros((0,), dtype=a.dtype.to_real(), device=a.device) for _ in range(2))
    rank = torch.zeros((0,), dtype=torch.int64, device=a.device)
    matrices, sides = linalg._broadcast(a, b[..., None] if is_vector else b)
    if driver == "gels":
        x, residuals = _by_qr(matrices, sides)
    else:
        left, found, right = spectral.svd(a)
        limit = (torch.finfo(a.dtype).eps * max(m, n) if rcond is None else rcond) * found[..., :1]
        counts = found > limit
        inverse = torch.where(counts, 1 / torch.where(counts, found, 1.0), 0.0)
        x = linalg._adjoint(right) @ (inverse[..., None] * (linalg._adjoint(left) @ sides))
        rank = counts.sum(-1)
        values = values if driver == "gelsy" else found
    return x[..., 0] if is_vector else by_columns(x, a), residuals, rank, values
