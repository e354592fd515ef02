# tests/device/compiled/test_default_backend.py: torch.compile without backend= on ocl tensors.
from __future__ import annotations

import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from torch_ocl_compile.device import default_backend
from torch_ocl_compile.errors import UnsupportedError


@pytest.fixture
def first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_backend, "_warned", False)


def test_ocl_compiles_what_inductor_cannot(ocl_device: str, first_time: None) -> None:
    """With inputs on the device, made on the device, beside one on the CPU, and with gradients. One warning, at the user's line."""
    x = torch.randn(4, 8, requires_grad=True)
    on_device = x.detach().to(ocl_device).requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.compile(lambda x: x.softmax(-1).square().sum(), mode="max-autotune")(on_device).backward()
        made = torch.compile(lambda: torch.ones(4, device=ocl_device) * 2)()
        mixed = torch.compile(lambda x, y: x + y.to(x.device))(on_device, x)
    ours = [w for w in caught if 'backend="ocl"' in str(w.message)]
    assert [w.filename for w in ours] == [__file__]
    x.softmax(-1).square().sum().backward()
    torch.testing.assert_close(on_device.grad, x.grad, check_device=False)
    assert made.tolist() == [2.0] * 4
    torch.testing.assert_close(mixed, x + x, check_device=False)


@pytest.mark.filterwarnings("ignore:Inductor")
def test_flex_attention(ocl_device: str) -> None:
    """Libraries compile flex_attention without a backend."""
    q, k, v = torch.randn(3, 1, 2, 40, 16)
    got = torch.compile(flex_attention)(*(x.to(ocl_device) for x in (q, k, v)))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(got, want, check_device=False)


def test_inductor_keeps_what_is_its_own(ocl_device: str) -> None:
    inductor = ModuleType("compile_fx")
    inductor.__dict__.update(compile_fx=lambda *a, **k: (a, k), V=SimpleNamespace(aot_compilation=False))
    default_backend.register(inductor)
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    on_cpu: Any = (gm, [torch.ones(2)])
    assert inductor.compile_fx(*on_cpu, config_patches={"max_autotune": True}) == (
        on_cpu,
        {"config_patches": {"max_autotune": True}},
    )
    inductor.__dict__["V"].aot_compilation = True
    assert inductor.compile_fx(*on_cpu) == (on_cpu, {})
    with pytest.raises(UnsupportedError, match=r"package\.save"):
        inductor.compile_fx(gm, [torch.ones(2, device=ocl_device)])
