# tests/device/ops/test_small_matrices.py: ops whose steps depend on the data, each one kernel: rotations, QR steps, sums of exponentials.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

COMPLEX = (torch.complex64, torch.complex128)
TYPES = (torch.float32, torch.float64, *COMPLEX)
INF, NAN = float("inf"), float("nan")


def hermitian(x: torch.Tensor) -> torch.Tensor:
    return x + x.mH


def low_rank(x: torch.Tensor) -> torch.Tensor:
    q = torch.linalg.qr(x[..., :2]).Q
    return q @ q.mH + 3 * q[..., :1] @ q[..., 1:].mH


def rebuilt(x: torch.Tensor) -> list[torch.Tensor]:
    values, vectors = torch.linalg.eigh(x)
    return [values, (vectors * values[..., None, :]) @ vectors.mH, vectors.mH @ vectors]


# A name -> (the function, the matrices), where x is random.
CASES: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "pinv of tall matrices": (torch.linalg.pinv, (3, 50, 20), lambda x: x),
    "pinv of wide matrices": (torch.linalg.pinv, (17, 40), lambda x: x),
    "pinv of rank 2": (torch.linalg.pinv, (2, 50, 50), low_rank),
    "pinv of a Hermitian matrix": (lambda x: torch.linalg.pinv(x, hermitian=True), (20, 20), hermitian),
    "pinv with a tolerance": (lambda x: torch.linalg.pinv(x * 1e20, atol=3e20), (20, 18), lambda x: x),
    "eigh": (rebuilt, (2, 33, 33), hermitian),
    "eigh of equal values": (rebuilt, (20, 20), lambda x: torch.eye(20, dtype=x.dtype) - 0.5),
    "eigvalsh": (torch.linalg.eigvalsh, (128, 128), hermitian),
    "singular values": (torch.linalg.svdvals, (2, 32, 20), lambda x: x),
    "rank": (torch.linalg.matrix_rank, (3, 24, 24), low_rank),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", CASES)
def test_rotations_in_one_kernel(name: str, dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    function, shape, prepare = CASES[name]
    torch.manual_seed(0)
    x = prepare(torch.randn(shape, dtype=dtype))
    check(function, x, compiled, ocl_device)


def check(function: Callable[[torch.Tensor], Any], x: torch.Tensor, compiled: bool, device: str) -> None:
    """Compares with twice the precision, or with PyTorch where rounding changes the rank. Nothing may run on the CPU."""
    torch._dynamo.reset()
    wide = torch.complex128 if x.is_complex() else torch.float64
    wide = x.dtype if torch.linalg.matrix_rank(x).min() < min(x.shape[-2:]) else wide
    before = torch.ocl.fallback_counts()
    made = (torch.compile(function, backend="ocl") if compiled else function)(x.to(device))
    assert torch.ocl.fallback_counts() == before
    expected = function(x.to(wide))
    for ours, exact in zip(listed(made), listed(expected), strict=True):
        unit = torch.finfo(x.dtype).eps
        scale = exact.abs().max().item() if exact.numel() else 0.0
        assert (ours.cpu().to(exact.dtype) - exact).abs().max().item() <= 2000 * unit * scale


def listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def test_gradient_of_pinv(ocl_device: str) -> None:
    x = torch.randn(20, 18, dtype=torch.float64)
    ours = x.to(ocl_device).requires_grad_()
    function = torch.compile(torch.linalg.pinv, backend="ocl")
    assert torch.autograd.gradcheck(lambda a: function(a)[:2, :2], (ours,), fast_mode=True)


GENERAL: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "random": lambda dtype: torch.randn(6, 5, 5, dtype=dtype),
    "of many rows": lambda dtype: torch.randn(2, 32, 32, dtype=dtype),
    "of two rows": lambda dtype: torch.randn(40, 2, 2, dtype=dtype),
    "number": lambda dtype: torch.randn(3, 1, 1, dtype=dtype),
    "identity": lambda dtype: torch.eye(4, dtype=dtype),
    "rotation of places": lambda dtype: torch.eye(6, dtype=dtype).roll(1, 0),
    "upper triangular": lambda dtype: torch.randn(6, 6, dtype=dtype).triu(),
    "lower triangular": lambda dtype: torch.randn(6, 6, dtype=dtype).tril(),
    "Jordan block": lambda dtype: torch.eye(5, dtype=dtype) + torch.eye(6, dtype=dtype)[1:, :5].mT,
    "tiny": lambda dtype: 1e-25 * torch.randn(4, 4, dtype=dtype),
    "huge": lambda dtype: 1e25 * torch.randn(4, 4, dtype=dtype),
    "of rows of many sizes": lambda dtype: torch.randn(6, 6, dtype=dtype) * torch.logspace(-3, 3, 6).to(dtype),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", GENERAL)
def test_eigenvalues_of_general_matrices(name: str, dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    """The vectors are eigenvectors of length 1, and those of a pair of values of a real matrix are each other's conjugates."""
    torch.manual_seed(0)
    x = GENERAL[name](dtype)
    before = torch.ocl.fallback_counts()
    function = torch.compile(torch.linalg.eig, backend="ocl") if compiled else torch.linalg.eig
    values, vectors = (y.cpu() for y in function(x.to(ocl_device)))
    assert torch.ocl.fallback_counts() == before
    assert values.dtype == vectors.dtype == dtype.to_complex()
    values, vectors, wide = (y.to(torch.complex128) for y in (values, vectors, x))
    unit = torch.finfo(dtype).eps
    rest = wide @ vectors - vectors * values[..., None, :]
    assert rest.abs().max() <= 8 * x.shape[-1] * unit * wide.abs().max()
    assert (vectors.norm(dim=-2) - 1).abs().max() <= 16 * unit
    assert (values.sum(-1) - wide.diagonal(dim1=-2, dim2=-1).sum(-1)).abs().max() <= 40 * x.shape[
        -1
    ] * unit * wide.abs().max()
    if not dtype.is_complex:
        first = values.imag > 0
        assert torch.equal(values[first], values[first.roll(1, -1)].conj())
        assert torch.equal(vectors.mT[first], vectors.mT[first.roll(1, -1)].conj())


def test_eigenvalues_alone(ocl_device: str) -> None:
    x = torch.randn(3, 7, 7, dtype=torch.float64)
    before = torch.ocl.fallback_counts()
    ours = torch.linalg.eigvals(x.to(ocl_device)).cpu()
    assert torch.ocl.fallback_counts() == before
    apart = (ours[..., None] - torch.linalg.eigvals(x)[..., None, :]).abs()
    assert apart.amin(-1).max() < 1e-12 and apart.amin(-2).max() < 1e-12


def test_eigenvalues_of_nan(ocl_device: str) -> None:
    values = torch.linalg.eigvals(torch.full((8, 8), NAN, device=ocl_device))
    assert values.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=lambda d: str(d).removeprefix("torch."))
def test_gradient_of_eig(dtype: torch.dtype, ocl_device: str) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        values, vectors = torch.linalg.eig(x)
        return [values, vectors.abs()]

    x = torch.randn(4, 4, dtype=dtype, device=ocl_device, requires_grad=True)
    assert torch.autograd.gradcheck(torch.compile(function, backend="ocl"), (x,), fast_mode=True)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", COMPLEX, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_logcumsumexp_of_complex_numbers(dim: int, dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    """The imaginary part has PyTorch's multiple of 2 pi."""
    torch.manual_seed(1)
    check(lambda x: torch.logcumsumexp(x, dim), 9 * torch.randn(5, 6, 7, dtype=dtype), compiled, ocl_device)


def test_logcumsumexp_of_a_long_row(ocl_device: str) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 30000, dtype=torch.complex64)
    ours, exact = torch.logcumsumexp(x.to(ocl_device), 1), torch.logcumsumexp(x.to(torch.complex128), 1)
    torch.testing.assert_close(ours.cpu().to(torch.complex128), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("special", [complex(-INF, 2), complex(INF, 2), complex(NAN, 2)], ids=str)
def test_logcumsumexp_of_special_numbers(special: complex, ocl_device: str) -> None:
    x = torch.tensor([special, special if special.real < 0 else 1, 2 - 1j, 1j], dtype=torch.complex64)
    ours, theirs = (torch.view_as_real(torch.logcumsumexp(a, 0).cpu()) for a in (x.to(ocl_device), x))
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_gradient_of_logcumsumexp(ocl_device: str) -> None:
    x = torch.randn(3, 5, dtype=torch.complex128, device=ocl_device, requires_grad=True)
    function = torch.compile(lambda a: torch.logcumsumexp(a, 1), backend="ocl")
    assert torch.autograd.gradcheck(function, (x,), fast_mode=True)


def test_logcumsumexp_of_other_lengths(ocl_device: str) -> None:
    """A symbolic length: the kernel is called from Python, with copies of what the plan keeps in another order."""
    function = torch.compile(lambda x: torch.logcumsumexp(x + 1, 1), backend="ocl", dynamic=True)
    for n in (5, 8):
        x = torch.randn(2, n, dtype=torch.complex64)
        torch.testing.assert_close(function(x.to(ocl_device)).cpu(), torch.logcumsumexp(x + 1, 1))
