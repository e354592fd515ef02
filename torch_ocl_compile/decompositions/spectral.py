# torch_ocl_compile/decompositions/spectral.py: eigenvalues and singular values of small matrices by Jacobi rotations.
"""All columns are paired and rotated at once. The pairs follow a round-robin tournament, so that in one sweep every two
columns meet.

Sweeps converge quadratically, so a fixed number of them is enough. At the end the accumulated rotations are made
orthogonal again and applied to the original matrix, so that the error is that of one matrix product and not of
hundreds of roundings. One kernel does the rotations (user_kernel/jacobi.py). Packages, which cannot have it, take a fixed
number of rounds for matrices of up to LARGEST_WRITTEN_OUT columns. The signs of the vectors may differ from LAPACK's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from torch_ocl_compile.decompositions import linalg
from torch_ocl_compile.decompositions.registry import IN_PACKAGE, decompose
from torch_ocl_compile.fx.own_op import own_op

aten = torch.ops.aten
Tensor = torch.Tensor

LARGEST = 128  # The largest matrix that ocl.jacobi_sweeps takes.
LARGEST_WRITTEN_OUT = 16


def fits(matrix: Tensor, smaller: int = LARGEST) -> bool:
    """True for static sizes, the smaller one up to `smaller`. The other has the limit of a QR decomposition."""
    return linalg.fits(matrix) and min(matrix.shape[-2:]) <= smaller


def _is_written_out(a: Tensor) -> bool:
    return IN_PACKAGE.get() and a.shape[-1] <= LARGEST_WRITTEN_OUT


def _is_tall(a: Tensor) -> bool:
    """True if a QR decomposition comes first, because rotations of its R take fewer steps."""
    return a.shape[-2] > a.shape[-1] and linalg.is_large(a.shape)


def rounds(n: int, dtype: torch.dtype) -> int:
    """Returns the number of rounds of a tournament among n columns (n even).

    The number was measured: after so many rounds no element changes any more, also for matrices of low rank.
    """
    sweeps = 6 + 2 * ((n - 1) // 4) + (dtype.to_real() == torch.float64)
    return sweeps * (n - 1)


def rotation(first: Tensor, second: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (cosine, sine) of the smaller of the two angles that make [[first, mixed], [mixed^*, second]] diagonal.

    The sine has the phase of `mixed`.
    """
    if mixed.is_complex():
        size = mixed.abs()
        cosine, sine = rotation(first, second, size)
        return cosine, mixed / torch.where(size == 0, 1.0, size) * sine
    is_flat = mixed == 0
    ratio = (second - first) / torch.where(is_flat, 1.0, 2 * mixed)
    tangent = torch.where(ratio < 0, -1.0, 1.0) / (ratio.abs() + (1 + ratio * ratio).sqrt())
    tangent = torch.where(is_flat, 0.0, tangent)
    cosine = 1 / (1 + tangent * tangent).sqrt()
    return cosine, cosine * tangent


def _real(a: Tensor) -> Tensor:
    return a.real if a.is_complex() else a


def _square(a: Tensor) -> Tensor:
    """Returns |a|^2."""
    return a.real * a.real + a.imag * a.imag if a.is_complex() else a * a


def jacobi(a: Tensor, symmetric: bool) -> Tensor:
    """Returns V [.., n, n]. The columns of A V are orthogonal for A [.., m, n]; V^H A V is diagonal for a Hermitian A.

    This is the definition of the op ocl.jacobi; lowering/complex_numbers/jacobi.py has its kernels.
    """
    n = a.shape[-1]
    even, half = n + n % 2, (n + 1) // 2
    x = F.pad(a, (0, even - n, 0, even - n if symmetric else 0))
    v = F.pad(_unit(n, a), (0, even - n))

    def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Rotates column k with column even - 1 - k, then moves all columns but the last on by one place."""
        p, q = x[..., :half], x[..., half:].flip(-1)
        x = torch.cat([cosine * p - sine.conj() * q, (sine * p + cosine * q).flip(-1)], -1)
        return torch.cat([x[..., even - 2 : even - 1], x[..., : even - 2], x[..., even - 1 :]], -1)

    for _ in range(rounds(even, a.dtype)):
        if symmetric:
            diagonal = x.diagonal(dim1=-2, dim2=-1)
            mixed = x.flip(-1).diagonal(dim1=-2, dim2=-1)[..., :half]
            angles = rotation(_real(diagonal[..., :half]), _real(diagonal[..., half:].flip(-1)), mixed)
        else:
            p, q = x[..., :half], x[..., half:].flip(-1)
            angles = rotation(_square(p).sum(-2), _square(q).sum(-2), (p.conj() * q).sum(-2))
        cosine, sine = (angle[..., None, :] for angle in angles)
        x, v = rotated(x, cosine, sine), rotated(v, cosine, sine)
        if symmetric:
            x = rotated(x.mT, cosine, sine.conj()).mT
    return v[..., :n].clone()


def _orthogonal(v: Tensor) -> Tensor:
    """Takes one step of Newton's iteration towards the nearest orthogonal (unitary) matrix."""
    return 1.5 * v - 0.5 * v @ (linalg._adjoint(v) @ v)


def _rotated(a: Tensor, with_vectors: bool = True) -> tuple[Tensor, Tensor]:
    """Returns (A V, V) for a unitary V [.., n, n] that makes the columns of A V orthogonal. Without vectors V may be empty."""
    if _is_written_out(a):
        v = _orthogonal(torch.ops.ocl.jacobi(a, False))
        return a @ v, v
    columns = F.pad(a.mT, (0, -a.shape[-2] % 16)).contiguous()
    parts = torch.view_as_real(columns) if a.is_complex() else columns[..., None]
    made = torch.ops.ocl.jacobi_sweeps(parts.reshape(-1, *parts.shape[-3:]), int(with_vectors))
    numbers = [torch.view_as_complex(x) if a.is_complex() else x[..., 0] for x in made]
    w, v = (x.reshape(*a.shape[:-2], *x.shape[1:])[..., :r].mT for x, r in zip(numbers, a.shape[-2:], strict=True))
    return w, _orthogonal(v) if with_vectors else v


def _scaled(a: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (the matrix scaled so that squares of its elements neither overflow nor underflow, the scale)."""
    size = a.abs().amax((-2, -1), keepdim=True)
    scale = torch.where((size == 0) | ((size > 1e-12) & (size < 1e12)), 1.0, size)
    return a / scale, scale[..., 0]


def _unit(n: int, like: Tensor) -> Tensor:
    return linalg._eye(n, like).expand(*like.shape[:-2], n, n)


def _reordered(columns: Tensor, order: Tensor) -> Tensor:
    return torch.gather(columns, -1, order[..., None, :].expand(columns.shape))


@decompose(aten._linalg_svd.default)
def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if not fits(a):
        return NotImplemented
    m, n = a.shape[-2:]
    if m < n:
        u, s, vh = svd(linalg._adjoint(a), full_matrices, compute_uv)
        return (linalg._adjoint(vh), s, linalg._adjoint(u)) if compute_uv else (u, s, vh)
    nothing = torch.zeros((0,), dtype=a.dtype, device=a.device)
    columns = m if full_matrices else n
    if n == 0:
        empty = a.new_zeros((*a.shape[:-2], 0), dtype=a.dtype.to_real())
        return _unit(m, a)[..., :columns].clone(), empty, _unit(0, a).clone()
    if _is_tall(a):
        q, r = linalg.qr(a, "complete" if full_matrices else "reduced")
        u, s, vh = svd(r[..., :n, :], False, compute_uv)
        return (torch.cat([q[..., :n] @ u, q[..., n:]], -1) if compute_uv else u), s, vh
    a, scale = _scaled(a)
    w, v = _rotated(a, compute_uv)
    s, order = torch.sort(_square(w).sum(-2).sqrt(), -1, descending=True)
    if not compute_uv:
        return nothing, s * scale, nothing
    v = _reordered(v, order)
    w = a @ v
    # The Q of a QR decomposition has the columns that are not 0. In place of columns that are 0, it has others that
    # complete the basis.
    noise = torch.finfo(a.dtype).eps * s[..., :1]
    w = torch.where((s > noise)[..., None, :], w / torch.where(s > noise, s, 1.0)[..., None, :], 0.0)
    factors, tau = linalg.geqrf(w)
    identity = linalg._eye(m, a)[:, :columns].expand(*a.shape[:-2], m, columns)
    u = linalg.reflect(factors, tau, identity, False)
    sign = torch.where(_real(factors.diagonal(dim1=-2, dim2=-1)) < 0, -1.0, 1.0)
    u = u * F.pad(sign, (0, columns - n), value=1.0)[..., None, :]
    return u, s * scale, linalg._adjoint(v).clone()


def _hermitian(a: Tensor, UPLO: str) -> Tensor:
    half = linalg._tril(a, -1) if UPLO.upper() == "L" else linalg._adjoint(linalg._triu(a, 1))
    return half + linalg._adjoint(half) + linalg._eye(a.shape[-1], a) * _real(a)


def _bound(a: Tensor) -> Tensor:
    """Returns a number [.., 1, 1] that no eigenvalue exceeds in size, by at most the 8th root of n too large: the root of a norm of A^4."""

    def norm(x: Tensor) -> Tensor:
        return x.abs().sum(-1, keepdim=True).amax(-2, keepdim=True)

    most = norm(a)
    square = a / torch.where(most == 0, 1.0, most)
    square = square @ square
    return most * norm(square @ square).sqrt().sqrt()


@decompose(aten._linalg_eigh.default)
def eigh(a: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    if not fits(a):
        return NotImplemented
    n = a.shape[-1]
    if n == 0:
        return a.new_zeros(a.shape[:-1], dtype=a.dtype.to_real()), a.clone()
    a, scale = _scaled(_hermitian(a, UPLO))
    # All eigenvalues of the sum are positive, so those of equal size are equal.
    v = (
        _orthogonal(torch.ops.ocl.jacobi(a, True))
        if _is_written_out(a)
        else _rotated(a + _bound(a) * linalg._eye(n, a))[1]
    )
    values, order = torch.sort(_real((v.conj() * (a @ v)).sum(-2)), -1)
    if not compute_v:
        return values * scale, torch.zeros((0,), dtype=a.dtype, device=a.device)
    return values * scale, _reordered(v, order)


@decompose(aten.linalg_eig.default)
def eig(a: Tensor) -> Any:
    """Elements that are infinite or NaN give NaN."""
    if not fits(a, linalg.LARGEST):
        return NotImplemented
    n, is_complex = a.shape[-1], a.is_complex()
    kind = a.dtype.to_complex()
    if a.numel() == 0:
        return a.new_zeros(a.shape[:-1], dtype=kind), a.new_zeros(a.shape, dtype=kind)
    a, scale = _scaled(a)
    a = a.contiguous()
    parts = (torch.view_as_real(a) if is_complex else a[..., None]).reshape(-1, n, n, 1 + is_complex)
    values, vectors, _ = torch.ops.ocl.eig(parts)
    values, vectors = (torch.view_as_complex(x).reshape(*a.shape[:-2], *x.shape[1:-1]) for x in (values, vectors))
    return values * scale, vectors


@decompose(aten._linalg_eigvals.default)
def eigvals(a: Tensor) -> Any:
    made = eig(a)
    return made if made is NotImplemented else made[0]


@decompose(aten.linalg_pinv.atol_rtol_tensor)
def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Any:
    """Returns V S^-1 (A V S^-1)^H, where the columns of A V are orthogonal and have the lengths S. It needs no basis of the null space."""
    if not fits(a):
        return NotImplemented
    if a.numel() == 0:
        return a.new_zeros(a.mT.shape)
    if hermitian:
        a = _hermitian(a, "L")
    elif a.shape[-2] < a.shape[-1]:
        return linalg._adjoint(pinv(linalg._adjoint(a), atol=atol, rtol=rtol)).contiguous()
    rows = a.shape[-2]
    a, scale = _scaled(a)
    q, a = linalg.qr(a) if _is_tall(a) else (None, a)
    v = _rotated(a)[1]
    w = a @ v
    size = _square(w).sum(-2).sqrt()
    # A tolerance is relative to the largest singular value, or a number beside those of the unscaled matrix.
    limit = _tolerance(a, rows, atol if atol is None else atol / scale[..., 0], rtol, size.amax(-1, keepdim=True))
    inverse = torch.where(size > limit, 1 / torch.where(size > limit, size, 1.0), 0.0)[..., None, :]
    left = w * inverse if q is None else q @ (w * inverse)
    return (v * inverse) @ linalg._adjoint(left) / scale[..., None]


def _tolerance(a: Tensor, rows: int, atol: Tensor | None, rtol: Tensor | None, largest: Tensor) -> Tensor:
    """Returns the limit below which a singular value counts as 0. `rows`: the larger size of the matrix.

    A positive absolute tolerance replaces the default of the relative tolerance. A given relative tolerance counts too.
    """
    usual = torch.finfo(a.dtype).eps * rows
    if rtol is None:
        relative: Any = usual if atol is None else torch.where(atol > 0, 0.0, usual)[..., None]
    else:
        relative = rtol[..., None]
    limit = relative * largest
    return limit if atol is None else torch.maximum(atol[..., None], limit)


@decompose(aten.allclose.default)
def allclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """PyTorch's gradients of complex vectors assert by this op that the loss does not depend on the vectors' phases.

    A traced graph has no values to test. Dynamo leaves other calls of the op out of a graph.
    """
    return True


own_op(
    "jacobi(Tensor a, bool symmetric) -> Tensor",
    jacobi,
    lambda a, symmetric: a.new_empty((*a.shape[:-2], a.shape[-1], a.shape[-1])),
)
