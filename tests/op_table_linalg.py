# tests/op_table_linalg.py: rows of the op table for factorisations, eigenvalues and singular values of small matrices.
"""The vectors of a decomposition are unique only up to their sign, so the rows compare values that do not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.op_row import Op, Sample, make


def matrices(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], list[Sample]]:
    return lambda dtype: [(make(*s, dtype=dtype),) for s in shapes]


def symmetric(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], list[Sample]]:
    """Returns random symmetric matrices; their eigenvalues have both signs."""
    return lambda dtype: [((m := make(*s, dtype=dtype)) + m.mT,) for s in shapes]


def low_rank(m: int, n: int) -> Callable[[torch.dtype], list[Sample]]:
    return lambda dtype: [(make(m, 2, dtype=dtype) @ make(2, n, dtype=dtype),)]


def _svd(x: torch.Tensor, full: bool = False) -> Any:
    u, s, vh = torch.linalg.svd(x, full_matrices=full)
    k = s.shape[-1]
    return s, u[..., :k].abs(), vh[..., :k, :].abs()


def _completed(x: torch.Tensor) -> Any:
    """Returns U^T U, V V^T and U S V of a full SVD: two identities, columns beyond the rank included, and x."""
    u, s, vh = torch.linalg.svd(x, full_matrices=True)
    k = s.shape[-1]
    return u.mT @ u, vh @ vh.mT, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]


def _eigh(x: torch.Tensor) -> Any:
    values, vectors = torch.linalg.eigh(x)
    return values, vectors.abs()


def _projector(x: torch.Tensor) -> Any:
    values, vectors = torch.linalg.eigh(x)
    return values, (vectors * values[..., None, :]) @ vectors.mT


def _decaying(x: torch.Tensor) -> torch.Tensor:
    """Returns the exponential of a matrix that has large elements, none of which is lost."""
    return torch.linalg.matrix_exp(20 * (x - 4 * torch.eye(x.shape[-1], device=x.device)))


def _least_squares(a: torch.Tensor, b: torch.Tensor) -> Any:
    tall, wide = torch.linalg.lstsq(a, b, driver="gels"), torch.linalg.lstsq(a[0].mT, b[0, :3, 0], driver="gelss")
    return [*tall[:2], *torch.linalg.lstsq(a, b)[::2], *wide[:1], *wide[2:]]


def _cholesky(x: torch.Tensor) -> torch.Tensor:
    return torch.cholesky(x @ x.mT + torch.eye(x.shape[-1], device=x.device))


def _ldl(x: torch.Tensor) -> list[torch.Tensor]:
    """Matrices with and without a diagonal, which have blocks of 1 x 1 and 2 x 2."""
    hollow = x - torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
    factors = [torch.linalg.ldl_factor_ex(a) for a in (x, hollow)]
    solved = torch.linalg.ldl_solve(*factors[0][:2], x[..., :2])
    return [part for factor in factors for part in factor] + [solved]


SIZES = (1, 1), (2, 2), (5, 5), (3, 5, 3), (2, 3, 7), (9, 4), (16, 16)
LINALG_OPS: list[Op] = [
    Op("svd", _svd, matrices(*SIZES), gradient=False, atol=1e-4, rtol=1e-4, programs="distinct"),
    Op("svd_gradient", _svd, matrices((1, 1), (3, 2), (2, 4)), atol=1e-4, rtol=1e-3, programs="distinct"),
    Op("svd_full", lambda x: _svd(x, True), matrices((4, 2), (3, 6)), atol=1e-5, rtol=1e-4, programs="distinct"),
    Op("svd_completed", _completed, low_rank(7, 4), gradient=False, atol=1e-5, rtol=1e-4),
    Op(
        "svd_of_zeros",
        _completed,
        lambda dtype: [(torch.zeros(5, 3, dtype=dtype),)],
        gradient=False,
        atol=1e-6,
        rtol=1e-4,
    ),
    Op("svd_float64", _svd, matrices((5, 5)), (torch.float64,), gradient=False, programs="distinct"),
    Op("svdvals", torch.linalg.svdvals, matrices(*SIZES), atol=1e-5, rtol=1e-4, programs="distinct"),
    Op("svdvals_large", lambda x: torch.linalg.svdvals(x * 1e25), matrices((4, 4)), gradient=False),
    Op("svdvals_empty", torch.linalg.svdvals, matrices((0, 3), (2, 4, 0)), gradient=False),
    Op("eigh", _eigh, symmetric((1, 1), (2, 2), (5, 5), (3, 4, 4)), atol=1e-4, rtol=1e-3, programs="distinct"),
    Op("eigh_upper", lambda x: torch.linalg.eigvalsh(x, "U"), matrices((5, 5)), gradient=False, atol=1e-5, rtol=1e-4),
    Op("eigh_large", _projector, symmetric((16, 16)), gradient=False, atol=2e-5, rtol=1e-4),
    Op(
        "eigh_equal",
        _projector,
        lambda dtype: [(torch.eye(4, dtype=dtype) - 0.5,)],
        gradient=False,
        atol=1e-6,
        rtol=1e-4,
    ),
    Op("ldl", _ldl, symmetric((1, 1), (4, 4), (2, 5, 5)), gradient=False, atol=1e-4, rtol=1e-3, programs="none"),
    Op("pinv", torch.linalg.pinv, matrices((5, 3), (2, 3, 5), (0, 3)), atol=1e-4, rtol=1e-4, programs="distinct"),
    Op("pinv_low_rank", torch.linalg.pinv, low_rank(6, 4), gradient=False, atol=1e-4, rtol=1e-4),
    Op(
        "pinv_hermitian",
        lambda x: torch.linalg.pinv(x, hermitian=True),
        symmetric((4, 4)),
        gradient=False,
        atol=1e-4,
        rtol=1e-4,
    ),
    Op("matrix_exp", torch.linalg.matrix_exp, matrices((2, 5, 5)), atol=1e-5, rtol=1e-4),
    Op("matrix_exp_large", _decaying, matrices((2, 4, 4)), gradient=False, atol=0, rtol=1e-3, programs="none"),
    Op(
        "lstsq",
        _least_squares,
        lambda dtype: [(make(2, 5, 3, dtype=dtype), make(1, 5, 2, dtype=dtype))],
        gradient=False,
        atol=1e-5,
        rtol=1e-4,
        programs="none",
    ),
    Op("cholesky", _cholesky, matrices((2, 3, 3)), atol=1e-5, rtol=1e-4),
    Op(
        "norm_nuclear",
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        matrices((4, 3)),
        atol=1e-5,
        rtol=1e-5,
        programs="distinct",
    ),
]
