# tests/device/runtime/test_first_use.py: torch stays as it is in a process that imports this package and uses the CPU only.
from __future__ import annotations

from textwrap import dedent

import pytest

from tests.device.own_process import run_python

STATE = """
    import types
    import torch
    from torch.fx import _symbolic_trace

    def state():
        return type(_symbolic_trace) is types.ModuleType, torch.backends.mha.get_fastpath_enabled()

    assert state() == (True, True), state()
    torch.ocl.device_count(), torch.ocl.is_available()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    torch.accelerator.current_stream()
    torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    assert state() == (True, True), state()
"""

# The first use of a device -> the program that uses it.
USES = {
    "a new tensor": "torch.ones(2, device=device)",
    "a copy": "torch.ones(2).to(device)",
    "a module": "torch.nn.Linear(2, 2).to(device)",
    "a loaded tensor": "torch.save(torch.ones(2), 'x.pt'); torch.load('x.pt', map_location=device)",
    "a compiled function": "torch.compile(lambda: torch.ones(2, device=device) + 1, backend='ocl')()",
    "a generator": "torch.manual_seed(0); torch.rand(3, device=device)",
    "a storage": "torch.UntypedStorage(8, device=device); torch.ones(2, device=device)",
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_of_a_device_adapts_torch(ocl_device, tmp_path, use):
    status, _, err = run_python(
        f"import os\nos.chdir({str(tmp_path)!r})\ndevice = {ocl_device!r}\n{dedent(STATE)}\n{USES[use]}\n"
        "assert state() == (False, False), state()"
    )
    assert status == 0, err[-2000:]


def test_the_backend_adapts_torch(ocl_device):
    """A compiled function keeps the check of the flag as it finds it when torch.compile is called."""
    status, _, err = run_python(
        dedent(STATE) + "torch.compile(lambda x: x + 1, backend='ocl')\nassert state() == (False, False), state()"
    )
    assert status == 0, err[-2000:]


def test_the_fast_path_of_torch_runs_on_the_cpu():
    """The fast path is an op of its own, which a profile shows."""
    program = dedent(STATE) + dedent("""
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    with torch.profiler.profile() as profile, torch.inference_mode():
        layer(torch.randn(2, 3, 16))
    names = {event.name for event in profile.events()}
    assert "aten::_transformer_encoder_layer_fwd" in names, names
    """)
    status, _, err = run_python(program)
    assert status == 0, err[-2000:]
