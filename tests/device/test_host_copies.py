# tests/device/test_host_copies.py: copies within a device for which there is no kernel go through the host, and say so.
from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

from torch_ocl_compile import config
from torch_ocl_compile.errors import FallbackError

Z = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
F8 = torch.arange(6.0).reshape(2, 3).to(torch.float8_e4m3fn)
CASES: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor], str]] = {
    "fp8 to fp32": (F8, lambda x: x.to(torch.float32), "aten::copy_ from float8_e4m3fn to float32"),
    "fp32 to fp8": (torch.ones(3), lambda x: x.to(torch.float8_e5m2), "aten::copy_ from float32 to float8_e5m2"),
    "complex to half of it": (Z, lambda x: x.to(torch.complex32), "aten::copy_ from complex64 to complex32"),
    "real to complex": (torch.ones(3), lambda x: x.to(torch.complex64), "aten::copy_ from float32 to complex64"),
    "conjugate": (Z, lambda x: x.conj().resolve_conj(), "aten::copy_ of a conjugate view of complex64"),
    "negative": (
        torch.ones(3),
        lambda x: torch._neg_view(x).resolve_neg(),
        "aten::copy_ of a negative view of float32",
    ),
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
        as_numbers = torch.complex64 if expected.is_complex() else torch.float32
        assert torch.equal(y.cpu().to(as_numbers), expected.to(as_numbers))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_through_the_host_can_be_forbidden(name: str, ocl_device: str) -> None:
    x, convert, counted = CASES[name]
    there = x.to(ocl_device)
    with config.override(fallback="error"), pytest.raises(FallbackError) as error:
        convert(there)
    assert counted in str(error.value) and "on the CPU, before it is moved" in str(error.value)


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
