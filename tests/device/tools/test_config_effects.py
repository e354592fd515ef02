# tests/device/tools/test_config_effects.py: setting an option has an effect, or is an error.
import warnings

import pytest
import torch

from tests.device.own_process import FELL_BACK, run_python
from torch_ocl_compile import config
from torch_ocl_compile.compile import debug
from torch_ocl_compile.errors import ConfigError, FallbackError


def compiled_passes(device, **options):
    """Returns (name, milliseconds, verified) of the passes over a small graph."""
    torch._dynamo.reset()
    torch.compile(lambda x: x.exp().sum(), backend="ocl", options=options)(torch.ones(4, device=device))
    return debug.records()[-1].plan.timings()["passes"]


def test_verify_holds_for_a_compile(ocl_device):
    assert not any(verified for *_, verified in compiled_passes(ocl_device))
    assert any(verified for *_, verified in compiled_passes(ocl_device, verify=True))
    with config.override(verify=True):
        assert any(verified for *_, verified in compiled_passes(ocl_device))
        assert not any(verified for *_, verified in compiled_passes(ocl_device, verify=False))


def test_eager(ocl_device):
    x = torch.ones(5, 3, device=ocl_device)
    torch.ocl.reset_fallback_counts()
    with config.override(eager="cpu", warn_fallback=False):
        x.cosh()
        assert torch.ocl.fallback_counts() == {"aten::cosh.out": 1}
    x.cosh()
    assert torch.ocl.fallback_counts() == {"aten::cosh.out": 1}


def test_warn_fallback(ocl_device):
    x = torch.ones(5, 3, device=ocl_device)

    def messages():
        torch.ocl.reset_fallback_counts()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.sinh()
        return [str(w.message) for w in caught if FELL_BACK in str(w.message)]

    with config.override(eager="cpu", warn_fallback=True):
        assert len(messages()) == 1
        config.set("warn_fallback", False)
        assert not messages()


def test_fallback_reaches_eager_ops(ocl_device):
    x = torch.ones(2, 2, dtype=torch.complex64, device=ocl_device)
    large = torch.eye(40, dtype=torch.complex64, device=ocl_device)
    torch.ocl.reset_fallback_counts()
    with config.override(fallback="error", eager="compile", warn_fallback=False):
        with pytest.raises(
            FallbackError,
            match=r"(?s)aten::linalg_eig\S* on \(complex64\[40, 40\].*fallback=error.*why: +aten.linalg_eig.*do: ",
        ):
            torch.linalg.eig(large)
        with pytest.raises(
            FallbackError,
            match=r"(?s)aten::native_batch_norm.*why: +.*native_batch_norm.*no lowering.*or use other ops$",
        ):
            torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        assert (torch.ones(2, 3, device=ocl_device).cosh() > 1).all(), "ops with kernels run"
        # The error is PyTorch's own, not one of this project.
        with pytest.raises(RuntimeError, match="mat1 and mat2") as raised:
            torch.ones(2, 3, device=ocl_device) @ torch.ones(2, 3, device=ocl_device)
        assert not isinstance(raised.value, FallbackError)
    assert torch.ocl.fallback_counts() == {}
    with config.override(fallback="eager", warn_fallback=False):
        torch.linalg.eig(large)
    assert torch.ocl.fallback_counts(), "without the option it runs on the CPU"


def test_fallback_in_the_environment(ocl_device):
    status, _, err = run_python(
        f"import torch; torch.linalg.eig(torch.eye(40, dtype=torch.complex64, device='{ocl_device}'))",
        TORCH_OCL_FALLBACK="error",
    )
    assert status == 1 and "FallbackError: aten::linalg_eig" in err, err


def test_disable_takes_names_of_capabilities(ocl_device):
    x = torch.ones(4, device=ocl_device)
    with pytest.raises(Exception, match=r"ConfigError: .* 'disable': 'nonsense' is no execution level") as raised:
        torch.compile(lambda x: x + 1, backend="ocl", options={"disable": "nonsense"})(x)
    assert isinstance(raised.value.inner_exception, ConfigError)
    torch._dynamo.reset()
    every = "item,group,warp,warpgroup"
    assert torch.compile(lambda x: x + 1, backend="ocl", options={"disable": every})(x).sum() == 8


def test_devices_before_their_first_use(ocl_device):
    index = torch.device(ocl_device).index
    status, out, err = run_python(
        f"""
        import torch
        from torch_ocl_compile import config
        config.set("devices", "{index}")
        print(torch.ocl.device_count(), torch.ocl.get_device_properties(0).platform_name)
        try:
            config.set("devices", "0,1")
        except Exception as error:
            print(type(error).__name__, error)
        print(config.get("devices"))
        config.set("devices", "{index}")
        """,
        fresh=True,
        TORCH_OCL_DEVICES="",
    )
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == f"1 {torch.ocl.get_device_properties(ocl_device).platform_name}"
    assert lines[1].startswith("ConfigError option 'devices': '0,1' comes too late") and "TORCH_OCL_DEVICES" in lines[2]
    assert lines[3] == str(index)
