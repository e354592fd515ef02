# tests/device/test_small_matrices.py: ops whose steps depend on the data, each one kernel: rotations, running sums of exponentials.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

COMPLEX = (torch.complex64, torch.complex128)
TYPES = (torch.float32, torch.float64, *COMPLEX)


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


INF, NAN = float("inf"), float("nan")


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
