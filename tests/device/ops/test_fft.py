# tests/device/ops/test_fft.py: Fourier transforms: errors beside torch's on the CPU, kernels for CPUs and for GPUs, gradients.
import math

import pytest
import torch

from tests.device.ops.nodes import run_checked
from torch_ocl_compile import config
from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.complex_numbers import fourier

PRIMES = [67, 71, 73, 79, 83, 89, 97, 101]
SIZES = [*range(1, 65), *PRIMES, 256, 360, 1000, 1001, 1024, 4096]
LONG = [4099, 8192, 2 * 3 * 5 * 7 * 11 * 13, 1 << 16, 1 << 18, 1 << 20]
EVERY = pytest.mark.sampled(first=16, every=24)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Returns the root mean square error relative to that of the exact numbers."""
    wide = got.to(exact.dtype)
    return ((wide - exact).abs().square().mean().sqrt() / exact.abs().square().mean().sqrt()).item()


def random(*shape: int, dtype: torch.dtype = torch.complex64, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def assert_as_exact(got: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor) -> None:
    """The error may be 1.5 times that of torch's on the CPU; for few numbers, whose errors vary, half a rounding more."""
    assert got.shape == cpu.shape
    assert [s for s, n in zip(got.stride(), got.shape, strict=True) if n > 1] == [
        s for s, n in zip(cpu.stride(), cpu.shape, strict=True) if n > 1
    ]
    found, allowed = error(got, exact), 1.5 * error(cpu, exact) + 3e-8 * min(1.0, 200 / cpu.numel())
    assert found <= allowed, f"error {found:.2e}, on the CPU {error(cpu, exact):.2e}"


def compare(function, device, *args: torch.Tensor) -> None:
    def wide(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.complex128 if x.is_complex() else torch.float64)

    got = function(*(x.to(device) for x in args))
    assert got.device.type == "ocl"
    assert_as_exact(got.cpu(), function(*args), function(*map(wide, args)))


@EVERY
@pytest.mark.parametrize("n", SIZES)
def test_lengths(ocl_device, n):
    compare(torch.fft.fft, ocl_device, random(24, n))
    compare(torch.fft.rfft, ocl_device, random(24, n, dtype=torch.float32))


@pytest.mark.parametrize("n", LONG)
def test_long_lines(ocl_device, n):
    compare(torch.fft.fft, ocl_device, random(1, n))


def test_two_dimensions(ocl_device):
    compare(torch.fft.fft2, ocl_device, random(12, 512, 512))
    compare(torch.fft.rfft2, ocl_device, random(2, 96, 120, dtype=torch.float32))


def run_node(device, family: str, x: torch.Tensor, settings: ir.FftAttrs) -> torch.Tensor:
    """Runs one Fft node. x is [o, n, p, q] in any layout."""

    def node(builder: ir.Builder, given: list[ir.Value]) -> list[ir.Value]:
        parts = fourier.halves(builder, *given) if x.is_complex() else fourier.Parts(*given, None)
        return [builder.fft(parts.re, parts.im, settings)]

    (made,) = run_checked(device, family, [torch.view_as_real(x) if x.is_complex() else x], node)
    return torch.view_as_complex(made.cpu())


def roots(rows: int, columns: int, n: int, inverse: bool) -> torch.Tensor:
    """Returns exp(-2 pi i j k / n) for each row and column; exp(2 pi i j k / n) if `inverse`."""
    turns = torch.outer(torch.arange(rows), torch.arange(columns)) % n * (1 if inverse else -1)
    return torch.polar(torch.ones(rows, columns, dtype=torch.float64), turns.double() * (2 * math.pi / n))


NODES = {
    "one number": (3, 1, 1, 1),
    "rows of a prime": (5, 13, 1, 1),
    "few rows, split among 8 lanes": (2, 192, 1, 1),
    "split among 16 lanes": (3, 512, 1, 1),
    "rows, transposed": (19, 60, 1, 1),
    "columns": (2, 48, 1, 40),
    "few columns": (3, 20, 1, 5),
    "a last block of columns": (2, 36, 1, 19),
    "two dimensions of lines": (2, 16, 3, 16),
    "two odd dimensions of lines": (2, 16, 7, 3),
    "two radices of primes": (2, 17 * 19, 1, 9),
    "a large prime": (2, 67, 1, 1),
    "columns of a large prime": (3, 71, 5, 3),
}


@pytest.mark.sampled(first=16, every=24)
@pytest.mark.parametrize("family", ["item", "group"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", NODES.values(), ids=NODES)
def test_kernels(ocl_device, family, dtype, shape):
    _, n, p, _ = shape
    x = random(*shape, dtype=dtype)
    wide = x.to(torch.complex128)
    for inverse in (False, True):
        root = n * p if p > 1 else 0
        got = run_node(ocl_device, family, x, ir.FftAttrs(inverse, 0.5, root))
        exact = torch.einsum("kj,ojpq->okpq", roots(n, n, n, inverse), wide) / 2
        if root:
            exact = exact * roots(n, p, root, inverse)[..., None]
        assert error(got, exact) < (1e-15 if dtype is torch.complex128 else 2.5e-7)


@pytest.mark.parametrize("family", ["item", "group"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("n", [1, 2, 9, 60, 1024])
def test_real_lines(ocl_device, family, dtype, n):
    """Numbers 2 j and 2 j + 1 of a real line are the parts of number j, and the other way round. Without CPU kernels of these
    nodes, a CPU takes those of work-groups."""
    limit = 1e-15 if dtype is torch.complex128 else 2.5e-7
    for inverse in (False, True):
        x = random(5, n, 1, 1, dtype=dtype)
        got = run_node(ocl_device, family, x, ir.FftAttrs(inverse, 0.5, form=ir.FftForm.kFromReal))
        exact = torch.fft.rfft(torch.view_as_real(x).double().view(5, 2 * n)) / 2
        assert error(got.flatten(1), exact.conj() if inverse else exact) < limit

        x = random(5, n + 1, 1, 1, dtype=dtype)
        got = run_node(ocl_device, family, x, ir.FftAttrs(inverse, 0.5, form=ir.FftForm.kToReal))
        wide = x[:, :, 0, 0].to(torch.complex128)
        wide[:, ::n].imag = 0
        exact = torch.fft.irfft(wide if inverse else wide.conj(), n=2 * n, norm="forward") / 2
        assert error(torch.view_as_real(got).view(5, 2 * n), exact) < limit


def test_unused_imaginary_parts(ocl_device):
    """Those of the first and the last number may be anything, in any family of kernels."""
    x = random(3, 9)
    expected = torch.fft.irfft(x)
    x[:, ::8].imag = math.inf
    for family in ("item", "group"):
        torch._dynamo.reset()
        with config.override(kernel_family=family):
            there = torch.compile(torch.fft.irfft, backend="ocl", dynamic=False)
            torch.testing.assert_close(there(x.to(ocl_device)).cpu(), expected)


@pytest.mark.parametrize("family", ["item", "group"])
def test_layouts_of_a_node(ocl_device, family):
    """Lines along the outermost and along a middle dimension of memory, and lines with gaps."""
    for x in (
        random(16, 60, 3).permute(2, 0, 1)[:, :, None],
        random(3, 17, 32).permute(0, 2, 1)[:, :, None],
        random(5, 64, 2)[:, ::2, None],
    ):
        got = run_node(ocl_device, family, x, ir.FftAttrs())
        assert error(got, torch.fft.fft(x.to(torch.complex128), dim=1)) < 2.5e-7


OPS = {
    "ifft": (torch.fft.ifft, torch.complex64),
    "real": (torch.fft.fft, torch.float32),
    "ortho": (lambda x: torch.fft.fft(x, norm="ortho"), torch.complex64),
    "first dimension": (lambda x: torch.fft.fft(x, dim=0), torch.complex64),
    "padded": (lambda x: torch.fft.fft(x, n=37), torch.complex64),
    "transposed": (lambda x: torch.fft.fft2(x.transpose(0, 2)), torch.complex64),
    "conjugate": (lambda x: torch.fft.fft(x.conj()), torch.complex64),
    "irfft": (torch.fft.irfft, torch.complex64),
    "irfft odd": (lambda x: torch.fft.irfft(x, n=33, dim=1), torch.complex64),
    "hfft": (torch.fft.hfft, torch.complex64),
    "ihfft": (torch.fft.ihfft, torch.float32),
    "fftn of reals": (torch.fft.fftn, torch.float32),
    "rfftn": (torch.fft.rfftn, torch.float32),
    "irfftn": (torch.fft.irfftn, torch.complex64),
    "hfft2": (torch.fft.hfft2, torch.complex64),
}


@pytest.mark.parametrize("name", OPS)
def test_ops(ocl_device, name):
    function, dtype = OPS[name]
    x = random(6, 20, 30, dtype=dtype)
    before = torch.ocl.fallback_counts()
    compare(function, ocl_device, x)
    compare(torch.compile(function, backend="ocl", dynamic=False), ocl_device, x)
    with config.override(kernel_family="group"):
        torch._dynamo.reset()
        compare(torch.compile(function, backend="ocl", dynamic=False), ocl_device, x)
    assert torch.ocl.fallback_counts() == before


def test_short_time_transforms(ocl_device):
    def there(x, window):
        return torch.stft(x, 64, 16, window=window, return_complex=True)

    def back(y, window):
        return torch.istft(y, 64, 16, window=window, length=900)

    x, window = random(2, 900, dtype=torch.float32), torch.hann_window(64)
    compare(there, ocl_device, x, window)
    compare(back, ocl_device, there(x, window), window)


def test_results_can_be_given(ocl_device):
    x = random(4, 24)
    out = torch.empty(4, 24, dtype=torch.complex64, device=ocl_device)
    torch.fft.fft(x.to(ocl_device), out=out)
    torch.testing.assert_close(out.cpu(), torch.fft.fft(x))


def test_changing_lengths(ocl_device):
    """A kernel is made for each length: a plan with lengths as arguments would have none."""
    before = torch.ocl.fallback_counts()
    for n in range(20, 32):
        compare(torch.fft.fft, ocl_device, random(24, n))
    assert torch.ocl.fallback_counts() == before


def test_no_numbers(ocl_device):
    assert torch.fft.fft(torch.empty(0, 8, dtype=torch.complex64, device=ocl_device)).shape == (0, 8)
    assert torch.fft.rfft(torch.empty(0, 8, device=ocl_device)).shape == (0, 5)


GRADIENTS = {
    "fft": (torch.fft.fft, torch.complex128),
    "fft of reals": (torch.fft.fft, torch.float64),
    "rfft": (torch.fft.rfft, torch.float64),
    "rfft odd": (lambda x: torch.fft.rfft(x, n=7), torch.float64),
    "irfft": (lambda x: torch.fft.irfft(x, n=8), torch.complex128),
    "fft2": (torch.fft.fft2, torch.complex128),
    "irfft2": (torch.fft.irfft2, torch.complex128),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(ocl_device, name):
    function, dtype = GRADIENTS[name]
    x = random(3, 6, dtype=dtype).to(ocl_device).requires_grad_()
    assert torch.autograd.gradcheck(function, x, fast_mode=True)


def test_compiled_gradient(ocl_device):
    def loss(x):
        return (torch.fft.rfft(x).abs() ** 2).sum()

    x = random(5, 32, dtype=torch.float32)
    (expected,) = torch.autograd.grad(loss(x.requires_grad_()), x)
    y = x.detach().to(ocl_device).requires_grad_()
    (got,) = torch.autograd.grad(torch.compile(loss, backend="ocl")(y), y)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n", [2 * 67, 18 * 1024])
def test_real_lines_of_two_kernels(ocl_device, n):
    """Their halves have a large prime factor or are too long for one kernel of work-groups."""
    x = random(3, n, dtype=torch.float32)
    with config.override(kernel_family="group"):
        torch._dynamo.reset()
        compare(
            torch.compile(lambda x: torch.fft.irfft(torch.fft.rfft(x)), backend="ocl", dynamic=False), ocl_device, x
        )
        compare(torch.compile(torch.fft.rfft, backend="ocl", dynamic=False), ocl_device, x)
