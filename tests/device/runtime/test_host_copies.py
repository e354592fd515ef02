# tests/device/runtime/test_host_copies.py: copies within a device for which there is no kernel go through the host, and say so.
from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

from torch_ocl_compile import config
from torch_ocl_compile.errors import FallbackError

Z = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
F8 = torch.arange(6.0).reshape(2, 3).to(torch.float8_e8m0fnu)
CASES: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor], str]] = {
    "fp8 to fp32": (F8, lambda x: x.to(torch.float32), "aten::copy_ from float8_e8m0fnu to float32"),
    "fp32 to fp8": (torch.ones(3), lambda x: x.to(torch.float8_e8m0fnu), "aten::copy_ from float32 to float8_e8m0fnu"),
}
ON_THE_DEVICE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "complex to half of it": lambda x: x.to(torch.complex32),
    "complex to twice of it": lambda x: x.to(torch.complex128),
    "complex to real": lambda x: x.to(torch.float16),
    "real to complex": lambda x: x.real.to(torch.complex64),
    "integer to complex": lambda x: x.real.to(torch.int32).to(torch.complex64),
    "conjugate": lambda x: x.conj().resolve_conj(),
    "conjugate to half of it": lambda x: x.conj().to(torch.complex32),
    "conjugate to real": lambda x: x.conj().to(torch.float16),
    "into a conjugate": lambda x: torch.zeros_like(x).conj().copy_(x),
    "real into a conjugate": lambda x: torch.zeros_like(x).conj().copy_(x.real),
    "into a strided tensor": lambda x: torch.zeros(4, 6, dtype=torch.complex128, device=x.device)[::2, ::2].copy_(
        x.conj()
    ),
    "negative": lambda x: torch._neg_view(x.real).resolve_neg(),
    "negative to half of it": lambda x: x.conj().imag.to(torch.float16),
    "negative of a conjugate": lambda x: torch._neg_view(x.conj()).to(torch.complex32),
}


@pytest.mark.parametrize("name", CASES)
def test_a_copy_through_the_host_is_counted_and_said_once(name: str, ocl_device: str) -> None:
    x, convert, counted = CASES[name]
    there = x.to(ocl_device)
    torch.ocl.reset_fallback_counts()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = [convert(there), convert(there)]
    assert torch.ocl.fallback_counts() == {counted: 2}
    assert [counted in str(w.message) for w in caught if "runs on the CPU" in str(w.message)] == [True]
    for y in got:
        expected = convert(x)
        assert torch.equal(y.cpu().to(torch.float32), expected.to(torch.float32))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_through_the_host_can_be_forbidden(name: str, ocl_device: str) -> None:
    x, convert, counted = CASES[name]
    there = x.to(ocl_device)
    with config.override(fallback="error"), pytest.raises(FallbackError) as error:
        convert(there)
    assert counted in str(error.value) and "on the CPU, before it is moved" in str(error.value)


@pytest.mark.parametrize("name", ON_THE_DEVICE)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_complex_copies_need_no_host(name: str, ocl_device: str) -> None:
    convert = ON_THE_DEVICE[name]
    torch.ocl.reset_fallback_counts()
    with config.override(fallback="error"):
        got = convert(Z.to(ocl_device))
    expected = convert(Z)
    assert got.dtype == expected.dtype and got.is_conj() == expected.is_conj() and got.is_neg() == expected.is_neg()
    assert torch.equal(got.cpu().to(torch.complex64), expected.to(torch.complex64))
    assert torch.ocl.fallback_counts() == {}


def test_transfers_are_no_fallbacks(ocl_device: str) -> None:
    """A copy from or to the host may convert there."""
    torch.ocl.reset_fallback_counts()
    with config.override(fallback="error"):
        for x in (F8, Z, Z.conj(), Z.conj().imag):
            assert torch.equal(x.to(ocl_device).cpu().to(torch.complex64), x.to(torch.complex64))
        assert torch.equal(F8.to(ocl_device, torch.float32).cpu(), F8.to(torch.float32))
    assert torch.ocl.fallback_counts() == {}


def test_other_strides_need_no_host(ocl_device: str) -> None:
    torch.ocl.reset_fallback_counts()
    for x in (F8, Z, torch.arange(6.0).reshape(2, 3).to(torch.bfloat16)):
        moved = x.to(ocl_device).t().contiguous()
        assert torch.equal(moved.cpu().to(torch.complex64), x.t().to(torch.complex64))
    assert torch.ocl.fallback_counts() == {}


def test_many_dimensions_need_no_host(ocl_device: str) -> None:
    """The kernel has 8 dimensions. Tensors with more are copied in parts."""
    x = torch.arange(2.0**10).reshape([2] * 10).permute(9, 0, 7, 2, 5, 4, 3, 6, 1, 8)
    torch.ocl.reset_fallback_counts()
    there = x.to(ocl_device)
    scrambled = there.permute(3, 1, 4, 0, 5, 9, 2, 6, 8, 7)
    copy = torch.empty(scrambled.shape, device=ocl_device, dtype=torch.float16)
    copy.copy_(scrambled)
    assert torch.equal(copy.cpu(), x.permute(3, 1, 4, 0, 5, 9, 2, 6, 8, 7).half())
    assert torch.ocl.fallback_counts() == {}
