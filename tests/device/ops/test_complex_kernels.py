# tests/device/ops/test_complex_kernels.py: ops of complex numbers run wholly on the device, and give what PyTorch gives on the CPU.
from __future__ import annotations

from typing import Any

import pytest
import torch

from torch_ocl_compile import config

torch.manual_seed(0)
Z = torch.randn(5, 4, dtype=torch.complex128)
W = torch.randn(5, 4, dtype=torch.complex128)
X = torch.randn(5, 4, dtype=torch.float64)
I = torch.tensor([[0, 3, 1, 1], [4, 4, 2, 0]])  # noqa: E741

# z, w: complex; x: real; i: indices.
FUNCTIONS: dict[str, Any] = {
    "add": lambda z, w, x, i: z + w,
    "add a number": lambda z, w, x, i: z + (1 - 2j),
    "add a real tensor": lambda z, w, x, i: x + z,
    "sub scaled": lambda z, w, x, i: torch.sub(z, w, alpha=2 - 1j),
    "mul": lambda z, w, x, i: z * w,
    "real times i": lambda z, w, x, i: x * 1j,
    "div": lambda z, w, x, i: z / w,
    "number over": lambda z, w, x, i: 2 / z,
    "conj": lambda z, w, x, i: z.conj() * w,
    "abs": lambda z, w, x, i: z.abs(),
    "complex": lambda z, w, x, i: torch.complex(x, x + 1),
    "polar": lambda z, w, x, i: torch.polar(x, x + 1),
    "parts": lambda z, w, x, i: (z.real * z.imag, torch.view_as_real(z * w) + 1),
    "view_as_complex": lambda z, w, x, i: torch.view_as_complex(torch.stack([x, x + 1], -1)) * z,
    "compare": lambda z, w, x, i: (z == w, z != z.clone(), torch.isnan(z / 0), torch.isfinite(z)),
    "where": lambda z, w, x, i: torch.where(x > 0, z, w),
    "where real": lambda z, w, x, i: torch.where(x > 0, z, x),
    "convert": lambda z, w, x, i: (x.to(z.dtype) * z, z.to(torch.complex64), z.real.to(torch.complex64)),
    "cat": lambda z, w, x, i: (torch.cat([z, w], 1), torch.stack([z, w]), torch.cat([z, x])),
    "sums": lambda z, w, x, i: (z.sum(), z.sum(1), z.mean(0, keepdim=True), z.cumsum(1)),
    "views": lambda z, w, x, i: (z.t() + 1, z[1:, ::2] * 2, z.flip(0), z.roll(1, 0), z.reshape(2, 10) * 2),
    "index": lambda z, w, x, i: (z[i[0]], z.gather(0, i), z.index_select(0, i[0])),
    "pad": lambda z, w, x, i: torch.nn.functional.pad(z, (1, 2), value=3),
    "create": lambda z, w, x, i: (torch.full_like(z, 1 + 2j), torch.zeros_like(z), torch.ones_like(z) * 3),
    "masked_fill": lambda z, w, x, i: z.masked_fill(x > 0, 1j),
    "matrix products": lambda z, w, x, i: (z @ w.t(), z.mH @ w, z @ w[0], torch.einsum("ij,ij->i", z, w)),
    "batched product": lambda z, w, x, i: (torch.bmm(z.expand(3, 5, 4), w.mT.expand(3, 4, 5)), z[None].conj() @ w.mH[None]),
    "addmm": lambda z, w, x, i: torch.addmm(w[:, :1], z, w.mT, beta=2j, alpha=1 - 1j),
    "dot": lambda z, w, x, i: (torch.dot(z[0], w[0]), torch.vdot(z[0], w[0]), torch.outer(z[0], w[:, 0].conj())),
    "products": lambda z, w, x, i: (z.prod(), z.prod(1), z.prod(0, keepdim=True), z.cumprod(0)),
    "long products": lambda z, w, x, i: ((z / z.abs()).repeat(20, 1).prod(0), (z / z.abs()).repeat(20, 1).cumprod(0)),
    "norms": lambda z, w, x, i: (z.norm(), torch.linalg.vector_norm(z, 1, 1), torch.linalg.matrix_norm(z), z.std(0), z.var()),
    "truth": lambda z, w, x, i: (z.any(), (z * 0).all(1), torch.logical_and(z, w * 0)),
    "powers": lambda z, w, x, i: (z**2, z**-1.5, z**w, 2**z, x**z),
    "lerp": lambda z, w, x, i: (torch.lerp(z, w, 0.3), torch.addcmul(z, w, z, value=2j), torch.addcdiv(z, w, z)),
    "roots": lambda z, w, x, i: (z.sqrt(), z.rsqrt(), z.reciprocal(), z.angle(), z.sgn()),
    "logarithms": lambda z, w, x, i: (z.log(), z.log2(), z.log10(), z.log1p(), z.expm1(), z.exp()),
    "circular": lambda z, w, x, i: (z.sin(), z.cos(), z.tan(), z.asin(), z.acos(), z.atan()),
    "hyperbolic": lambda z, w, x, i: (z.sinh(), z.cosh(), z.tanh(), z.asinh(), z.acosh(), z.atanh(), z.sigmoid()),
    "foreach": lambda z, w, x, i: (*torch._foreach_mul([z, w], [w, z]), *torch._foreach_exp([z, w])),
    "scatter": lambda z, w, x, i: (
        z.scatter(0, i, w[:2]), z.scatter_add(0, i, w[:2]), z.index_add(0, i[0], w[:4]), z.index_put((i[0],), w[:4], True)
    ),
    "scatter that reduces": lambda z, w, x, i: (
        z.scatter(0, i, w, reduce="multiply"), z.scatter(-1, i.t()[:2, :1] % 4, 2 - 1j, reduce="multiply"),
        z.scatter(0, i, w, reduce="add"), z.scatter(0, i[:, :2], 3, reduce="add"), z.scatter(0, i[:0], 3, reduce="multiply"),
    ),
    "ldexp": lambda z, w, x, i: (torch.ldexp(z, w), torch.ldexp(z, i[0, 1]), torch.ldexp(x, w)),
}  # fmt: skip


def run(function: Any, dtype: torch.dtype, device: str) -> Any:
    real = torch.float64 if dtype is torch.complex128 else torch.float32
    return function(Z.to(device, dtype), W.to(device, dtype), X.to(device, real), I.to(device))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_cpu(name: str, dtype: torch.dtype, compiled: bool, ocl_device: str) -> None:
    function = torch.compile(FUNCTIONS[name], backend="ocl") if compiled else FUNCTIONS[name]
    torch.ocl.reset_fallback_counts()
    with config.override(fallback="error"):
        ours = run(function, dtype, ocl_device)
    theirs = run(FUNCTIONS[name], dtype, "cpu")
    assert torch.ocl.fallback_counts() == {}
    for got, expected in zip(*(r if isinstance(r, tuple) else (r,) for r in (ours, theirs)), strict=True):
        torch.testing.assert_close(got.cpu().resolve_conj(), expected.resolve_conj(), check_stride=True)


@pytest.mark.parametrize(
    "name", ["long products", "products", "matrix products", "circular", "hyperbolic", "logarithms"]
)
def test_kernels_within_their_bounds(name: str, ocl_device: str) -> None:
    """The option check compares each kernel with the interpreter in fp64."""
    function = torch.compile(FUNCTIONS[name], backend="ocl", options={"check": True})
    run(function, torch.complex64, ocl_device)


GRADIENTS: dict[str, Any] = {
    "product": lambda z, w: z * w.conj(),
    "quotient": lambda z, w: z / w,
    "abs": lambda z, w: (z * w).abs(),
    "angle": lambda z, w: z.angle() * w,
    "exp": lambda z, w: (z * 0.3).exp() + w.log(),
    "sqrt": lambda z, w: z.sqrt() * w.rsqrt(),
    "tanh": lambda z, w: z.tanh() + w.sin(),
    "asin": lambda z, w: z.asin() + w.acosh(),
    "power": lambda z, w: z**2 + w ** (0.5 + 1j),
    "matmul": lambda z, w: z @ w.mH,
    "prod": lambda z, w: z.prod(0) + w.cumprod(0)[-1],
    "norm": lambda z, w: z.norm() + torch.linalg.vector_norm(w, dim=0),
    "parts": lambda z, w: torch.complex(z.real * w.imag, w.real) + torch.view_as_complex(torch.view_as_real(z) * 2),
    "index": lambda z, w: torch.cat([z[[0, 0, 2]], w.roll(1, 0).t()[:2].t()[:, :1].expand(3, 3)]),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, compiled: bool, ocl_device: str) -> None:
    torch.manual_seed(1)
    args = [torch.randn(3, 3, dtype=torch.complex128, device=ocl_device, requires_grad=True) for _ in range(2)]
    function = torch.compile(GRADIENTS[name], backend="ocl") if compiled else GRADIENTS[name]
    assert torch.autograd.gradcheck(function, args)


def hermitian(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mH + 2 * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def by_cholesky(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    lower, upper = torch.linalg.cholesky(hermitian(a)), torch.linalg.cholesky(hermitian(a), upper=True)
    return lower, upper, torch.cholesky_solve(b, lower), torch.cholesky_inverse(upper, upper=True)


def by_lu(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    factors, pivots = torch.linalg.lu_factor(a)
    adjoint = torch.linalg.lu_solve(factors, pivots, b, adjoint=True)
    solved = torch.linalg.solve(a, b), torch.linalg.inv(a), torch.linalg.det(a), *torch.linalg.slogdet(a)
    return *solved, adjoint, factors


def by_qr(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q, r = torch.linalg.qr(a)
    triangular = torch.linalg.solve_triangular(r, b, upper=True)
    ldl = torch.linalg.ldl_factor(a.detach() + a.detach().mH, hermitian=True)
    symmetric = torch.linalg.ldl_factor(a.detach() + a.detach().mT)
    solved = torch.linalg.ldl_solve(*ldl, b.detach(), hermitian=True), torch.linalg.ldl_solve(*symmetric, b.detach())
    return q, r, triangular, torch.linalg.householder_product(*torch.geqrf(a.detach())), *ldl, *symmetric, *solved


def from_the_right(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    factors, pivots = torch.linalg.lu_factor(a)
    adjoint = torch.linalg.lu_solve(factors, pivots, b.mT, left=False, adjoint=True)
    return torch.linalg.lu_solve(factors, pivots, b.mH, left=False), adjoint, torch.linalg.solve(a, b.mT, left=False)


def by_eigenvalues(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The phases of the vectors are arbitrary."""
    values, vectors = torch.linalg.eigh(hermitian(a) + 2j * torch.eye(3, device=a.device), UPLO="U")
    upper = torch.linalg.eigvalsh(hermitian(a), UPLO="U")
    return values, vectors.abs(), upper, torch.linalg.pinv(b @ b.mH, hermitian=True)


def by_singular_values(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    u, s, vh = torch.linalg.svd(b, full_matrices=False)
    whole = torch.linalg.svd(b.detach().mT).Vh.abs()
    norms = torch.linalg.matrix_norm(a, "nuc"), torch.linalg.matrix_norm(b, 2), torch.linalg.matrix_rank(b)
    return u.abs(), s, (u * s[..., None, :]) @ vh, whole[..., :2, :], torch.linalg.pinv(b), *norms


def by_least_squares(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    tall = torch.linalg.lstsq(b, a, driver="gels")
    wide = torch.linalg.lstsq(b.mT, b.mT[..., :2], driver="gels")
    return tall.solution, tall.residuals, wide.solution, torch.linalg.lstsq(b, a).solution


@pytest.mark.needs("fp64")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "function", [by_cholesky, by_lu, by_qr, from_the_right, by_eigenvalues, by_singular_values, by_least_squares]
)
@pytest.mark.sampled(first=4, every=48)
def test_factorisations(function: Any, compiled: bool, ocl_device: str) -> None:
    """Values and gradients of batches, in complex128."""
    torch.ocl.reset_fallback_counts()
    results = []
    for device in (ocl_device, "cpu"):
        torch.manual_seed(2)
        a, b = (torch.randn(2, 3, n, dtype=torch.complex128).to(device).requires_grad_() for n in (3, 2))
        call = torch.compile(function, backend="ocl") if compiled and device == ocl_device else function
        with config.override(fallback="error"):
            made = call(a, b)
            assert torch.ocl.fallback_counts() == {}
            parts = [y.resolve_conj() for y in made if y.requires_grad]
            loss = sum((torch.view_as_real(y) if y.is_complex() else y).sin().sum() for y in parts)
            loss.backward()
        results.append([y.detach().cpu().resolve_conj() for y in (*made, a.grad, b.grad)])
    assert torch.ocl.fallback_counts() == {}
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.needs("fp64")
def test_low_rank(ocl_device: str) -> None:
    """Equal and vanishing singular values. The decompositions are orthogonal, and give the matrix."""
    torch.manual_seed(0)
    q = torch.linalg.qr(torch.randn(7, 7, dtype=torch.complex128))[0]
    a = (q * torch.tensor([3.0, 3, 3, 1e-9, 1e-9, 0, 0])) @ q.mH
    with config.override(fallback="error"):
        values, vectors = (x.cpu() for x in torch.linalg.eigh(a.to(ocl_device)))
        u, s, vh = (x.cpu() for x in torch.linalg.svd(a.to(ocl_device)))
    unit = torch.eye(7, dtype=torch.complex128)
    expected = [a, a, unit, unit, unit]
    got = [(vectors * values) @ vectors.mH, (u * s) @ vh, vectors.mH @ vectors, u.mH @ u, vh @ vh.mH]
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("driver", ["gelss", "gelsd"])
def test_least_squares_by_rank(driver: str, ocl_device: str) -> None:
    """More rows than columns: there are residuals. In a compiled graph these drivers run on the CPU."""
    with config.override(fallback="error"):
        got = torch.linalg.lstsq(Z.to(ocl_device, torch.complex64), W.to(ocl_device, torch.complex64), driver=driver)
    expected = torch.linalg.lstsq(Z.to(torch.complex64), W.to(torch.complex64), driver=driver)
    torch.testing.assert_close([x.cpu() for x in got], list(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("traced_as", ["plain", "conj", "neg"])
def test_gradients_of_lazy_results(traced_as: str, ocl_device: str) -> None:
    """The gradient of a result that is a lazy conjugate, or a lazy negative, enters the backward graph without that bit."""

    def function(z: torch.Tensor) -> torch.Tensor:
        made = z.exp()
        return {"plain": made, "conj": made.conj(), "neg": made.conj().imag}[traced_as]

    given = [Z.to(device, torch.complex64).requires_grad_() for device in (ocl_device, "cpu")]
    for call, z in zip((torch.compile(function, backend="ocl"), function), given, strict=True):
        y = call(z)
        (torch.view_as_real(y.resolve_conj()) if y.is_complex() else y).sin().sum().backward()
    torch.testing.assert_close(*(z.grad.cpu().resolve_conj() for z in given))


def test_dynamic_sizes(ocl_device: str) -> None:

    def function(z: torch.Tensor) -> torch.Tensor:
        return (z.t() @ z.conj()).exp().cumsum(0) * z.shape[0]

    compiled = torch.compile(function, backend="ocl", dynamic=True)
    for n in (3, 5, 8):
        z = torch.randn(n, 4, dtype=torch.complex64) / 4
        torch.testing.assert_close(compiled(z.to(ocl_device)).cpu(), function(z))


def test_views_share_memory(ocl_device: str) -> None:
    """Results that PyTorch returns as views of one tensor, or of an argument, are such views."""

    def function(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = z * 2
        return made, made.real, torch.view_as_real(made), made.t(), made.conj(), made.conj().imag, z.imag, z[1:]

    z = Z.to(ocl_device, torch.complex64)
    made, *views = torch.compile(function, backend="ocl")(z)
    assert all(v.untyped_storage().data_ptr() == made.untyped_storage().data_ptr() for v in views[:5])
    assert all(v.untyped_storage().data_ptr() == z.untyped_storage().data_ptr() for v in views[5:])
    for got, expected in zip([made, *views], function(Z.to(torch.complex64)), strict=True):
        assert (got.is_conj(), got.is_neg(), got.stride()) == (expected.is_conj(), expected.is_neg(), expected.stride())
        torch.testing.assert_close(got.cpu().resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())
    views[0].fill_(7)
    assert (made.real == 7).all() and (views[1][..., 0] == 7).all()


def test_writes_into_arguments(ocl_device: str) -> None:

    def function(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        z.mul_(1j)  # The new parts are the old ones, exchanged.
        z.real.add_(1)
        w[1:].copy_(z[1:])
        w.imag.zero_()
        return z + w

    theirs = [x.to(torch.complex64).clone() for x in (Z, W)]
    ours = [x.to(ocl_device) for x in theirs]
    got, expected = torch.compile(function, backend="ocl")(*ours), function(*theirs)
    for a, b in zip([got, *ours], [expected, *theirs], strict=True):
        torch.testing.assert_close(a.cpu(), b)


DRAWS: dict[str, Any] = {
    "randn": lambda x: torch.randn_like(x),
    "normal": lambda x: torch.empty_like(x).normal_(0, 1),
    "rand": lambda x: (torch.rand_like(x) - (0.5 + 0.5j)) * 6**0.5,
    "uniform": lambda x: (torch.empty_like(x).uniform_() - (0.5 + 0.5j)) * 6**0.5,
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", [*DRAWS])
def test_random_parts_are_independent(name: str, compiled: bool, ocl_device: str) -> None:
    torch.manual_seed(3)
    function = torch.compile(DRAWS[name], backend="ocl") if compiled else DRAWS[name]
    with config.override(fallback="error"):
        drawn = torch.view_as_real(function(torch.zeros(100, 100, dtype=torch.complex64, device=ocl_device)).cpu())
    parts = drawn.reshape(-1, 2).T
    torch.testing.assert_close(torch.cov(parts), torch.eye(2) / 2, atol=0.03, rtol=0)
    assert parts.mean().abs() < 0.03
