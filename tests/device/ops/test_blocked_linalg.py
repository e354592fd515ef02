# tests/device/ops/test_blocked_linalg.py: factorisations and solvers of matrices that go by blocks, with sizes around those of the blocks.
"""Values and gradients are compared with fp64 on the CPU. A result in fp32 may be a few times farther from it than PyTorch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Case = Callable[..., Any]
MODES = ("eager", "compiled")


def near_identity(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Returns matrices whose condition number is small: random elements, and a large diagonal."""
    generator = torch.Generator().manual_seed(sum(shape))
    n = max(shape[-2:])
    return torch.randn(*shape, generator=generator, dtype=dtype) / n**0.5 + 2 * torch.eye(*shape[-2:], dtype=dtype)


def apart(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Returns matrices whose singular values are far from each other."""
    k = min(shape[-2:])
    q, r = (torch.linalg.qr(near_identity(*shape[:-2], n, k, dtype=dtype)).Q for n in shape[-2:])
    return (q * torch.linspace(1, 3, k, dtype=dtype)) @ r.mH


def shuffled(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Returns matrices near a permutation matrix, for which nearly every step exchanges rows."""
    a = near_identity(*shape, dtype=dtype)
    return a[..., torch.randperm(shape[-2], generator=torch.Generator().manual_seed(3)), :]


def hermitian(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def by_cholesky(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    lower, upper = torch.linalg.cholesky_ex(hermitian(a))[0], torch.linalg.cholesky_ex(hermitian(a), upper=True)[0]
    return [lower, upper, torch.cholesky_solve(b, lower), torch.cholesky_inverse(upper, upper=True)]


def triangular(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    solve = torch.linalg.solve_triangular
    first = [solve(a, b, upper=upper, unitriangular=unit) for upper, unit in ((False, False), (True, False))]
    unit = a / a.shape[-1] ** 0.5
    return [*first, solve(unit, b.mT, upper=True, left=False, unitriangular=True), solve(a.mT, b, upper=True)]


def by_lu(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    factors, pivots = torch.linalg.lu_factor_ex(a)[:2]
    solve = torch.linalg.lu_solve
    solved = (
        solve(factors.detach(), pivots, b),
        solve(factors, pivots, b.mT, left=False),
        solve(factors, pivots, b, adjoint=True),
    )
    return [factors, pivots, *solved, *torch.lu_unpack(factors, pivots)]


def solved(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    solve = torch.linalg.solve_ex
    made = solve(a, b)[0], solve(a, b.mT, left=False)[0], solve(a, b[..., 0])[0]
    return [*made, torch.linalg.inv_ex(a)[0], *torch.linalg.slogdet(a)]


def by_qr(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    q, r = torch.linalg.qr(a)
    vectors, tau = torch.geqrf(a.detach())
    whole = torch.linalg.qr(a.detach(), mode="complete").Q
    products = [torch.ormqr(vectors, tau, b.detach(), transpose=transpose) for transpose in (False, True)]
    made = torch.linalg.qr(a, mode="r").R.detach(), torch.linalg.householder_product(vectors, tau)
    return [q, r, whole, vectors, tau, *products, *made]


def of_wide(a: torch.Tensor) -> list[torch.Tensor]:
    return [*torch.linalg.qr(a), *torch.geqrf(a.detach())]


def lu_of(a: torch.Tensor) -> list[torch.Tensor]:
    return [*torch.linalg.lu_factor_ex(a), *torch.linalg.lu(a)]


def least_squares(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.linalg.lstsq(a, b, driver="gels")[:2])


def by_svd(a: torch.Tensor) -> list[torch.Tensor]:
    """Returns singular values, and products of the vectors that do not depend on their phases."""
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    whole = torch.linalg.svd(a.detach(), full_matrices=True)
    rest, bases = whole.U[..., s.shape[-1] :], (whole.U, whole.Vh.mH)
    apart = 1 + rest.mH @ a.detach()  # A bound relative to 0 would allow no error.
    values, product, inverse = torch.linalg.svdvals(a), (u * s[..., None, :]) @ vh, torch.linalg.pinv(a)
    return [values, product, *(b.mH @ b for b in bases), apart, inverse]


def outcome(
    call: Case, arguments: list[torch.Tensor], dtype: torch.dtype, device: str, mode: str = "eager"
) -> list[torch.Tensor]:
    """Returns the results of `call` and the gradients of its arguments, on the CPU."""
    leaves = [a.to(device, dtype).requires_grad_() for a in arguments]
    compiled = torch.compile(call, backend="ocl", fullgraph=True, dynamic=False) if mode == "compiled" else call
    made = compiled(*leaves)
    smooth = [x for x in made if x.requires_grad]
    weights = [
        torch.linspace(-1, 1, x.numel(), dtype=torch.float64).reshape(x.shape).to(device, x.dtype) for x in smooth
    ]
    found = torch.autograd.grad(
        [(x * w).real.sum() for x, w in zip(smooth, weights, strict=True)], leaves, allow_unused=True
    )
    return [x.detach().cpu() for x in (*made, *found) if x is not None]


def check(call: Case, arguments: list[torch.Tensor], dtype: torch.dtype, device: str, mode: str) -> None:
    torch._dynamo.reset()
    before = torch.ocl.fallback_counts()
    got = outcome(call, arguments, dtype, device, mode)
    assert torch.ocl.fallback_counts() == before
    wide = torch.complex128 if dtype.is_complex else torch.float64
    expected, plain = (outcome(call, arguments, kind, "cpu") for kind in (wide, dtype))
    for x, reference, other in zip(got, expected, plain, strict=True):
        assert x.shape == reference.shape
        if x.numel() == 0:
            continue
        if not x.dtype.is_floating_point and not x.is_complex():
            torch.testing.assert_close(x, reference.to(x.dtype))
            continue
        size, unit = reference.abs().max().item(), torch.finfo(dtype).eps
        error, usual = ((y - reference).abs().max().item() for y in (x, other))
        units = 64 if dtype is wide else 16  # The reference then has rounding errors as large as ours.
        assert error <= 8 * usual + units * unit * size, (error, usual, size)


# (call, the matrix, its sizes, the columns of the right-hand side; none if the call takes none)
MATRICES = [
    *((by_cholesky, near_identity, n, n, 3) for n in (33, 128, 129, 300, 520)),
    *((triangular, near_identity, n, n, columns) for n, columns in ((33, 1), (256, 40), (257, 3), (700, 65))),
    *((by_lu, shuffled, n, n, 3) for n in (33, 128, 129, 390)),
    *((lu_of, shuffled, m, n, 0) for m, n in ((300, 20), (300, 140), (20, 200), (140, 300), (1, 40))),
    (solved, shuffled, 150, 150, 3),
    *((by_qr, near_identity, m, n, 3) for m, n in ((33, 33), (128, 128), (129, 129), (300, 140), (200, 20))),
    *((of_wide, near_identity, m, n, 0) for m, n in ((20, 200), (140, 300), (1, 40))),
    *((least_squares, near_identity, m, n, 3) for m, n in ((300, 50), (50, 140), (37, 30))),
    *((by_svd, apart, m, n, 0) for m, n in ((33, 33), (37, 30), (300, 50), (40, 130))),
]


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call, make, m, n, columns", MATRICES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_matrices(call: Case, make: Case, m: int, n: int, columns: int, mode: str, ocl_device: str) -> None:
    arguments = [make(m, n), *([near_identity(m, columns)] if columns else [])]
    check(call, arguments, torch.float32, ocl_device, mode)


# The right-hand sides of `triangular` have a batch of their own, which both are expanded to.
BATCHES = [
    (by_cholesky, near_identity, (2, 2, 140, 140), (2, 2, 140, 5)), (triangular, near_identity, (3, 1, 270, 270), (2, 270, 4)),
    (by_lu, shuffled, (2, 2, 140, 140), (2, 2, 140, 5)), (solved, shuffled, (2, 2, 140, 140), (2, 2, 140, 5)),
    (by_qr, near_identity, (2, 2, 150, 135), (2, 2, 150, 5)), (by_svd, apart, (2, 2, 70, 34), ()),
]  # fmt: skip


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("call, make, sizes, right", BATCHES, ids=lambda x: getattr(x, "__name__", None))
def test_batches(
    call: Case, make: Case, sizes: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype, ocl_device: str
) -> None:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    arguments = [make(*sizes, dtype=wide), *([near_identity(*right, dtype=wide)] if right else [])]
    check(call, arguments, dtype, ocl_device, "eager")


def test_shortest_solution(ocl_device: str) -> None:
    """Of a tall matrix of low rank, singular values that rounding has left do not count."""
    a = (near_identity(300, 5) @ near_identity(5, 40)).float()
    b = near_identity(300, 2).float()
    got, expected = (torch.linalg.lstsq(x, y) for x, y in ((a.to(ocl_device), b.to(ocl_device)), (a, b)))
    assert got.rank.item() == expected.rank.item() == 5
    for x, reference in (
        (got.solution, expected.solution),
        (torch.linalg.pinv(a.to(ocl_device)), torch.linalg.pinv(a)),
    ):
        torch.testing.assert_close(x.cpu(), reference, rtol=0, atol=2e-4 * reference.abs().max().item())


def test_pivots_that_are_zero(ocl_device: str) -> None:
    """Each matrix has the number of its first pivot that is 0. Of equal elements, the first is the pivot."""
    a = torch.eye(300).repeat(3, 1, 1)
    a[1, 140, 140] = a[1, 200, 200] = a[2, 3, 3] = 0
    lu, _, info = torch.linalg.lu_factor_ex(a.to(ocl_device))
    assert info.tolist() == [0, 141, 4]
    assert torch.equal(lu.cpu(), a)
    expected = torch.linalg.lu_factor_ex(torch.ones(40, 40) + torch.eye(40))[1]
    assert torch.equal(
        torch.linalg.lu_factor_ex((torch.ones(40, 40) + torch.eye(40)).to(ocl_device))[1].cpu(), expected
    )
    unpivoted = torch.linalg.lu_factor_ex(shuffled(300, 300).float().to(ocl_device) + 9, pivot=False)[1]
    assert unpivoted.tolist() == list(range(1, 301))


def test_columns_that_fail(ocl_device: str) -> None:
    """Each matrix has the number of its first column without a positive pivot, in whichever block that is."""
    a = torch.eye(300).repeat(4, 1, 1)
    for matrix, column in ((1, 0), (2, 131), (3, 299)):
        a[matrix, column:, column:] *= -1
    a[3, 299, 299] = float("nan")
    assert torch.linalg.cholesky_ex(a.to(ocl_device)).info.tolist() == [0, 1, 132, 300]


def test_no_elements(ocl_device: str) -> None:
    a, b = torch.eye(40, device=ocl_device), torch.ones(40, 0, device=ocl_device)
    assert torch.linalg.solve_triangular(a, b, upper=True).shape == (40, 0)
    assert torch.linalg.cholesky(torch.ones(0, 40, 40, device=ocl_device)).shape == (0, 40, 40)
