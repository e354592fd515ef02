# tests/device/runtime/test_interrupt.py: Ctrl+C while a graph is compiled.
from __future__ import annotations

import json
import random
import sys

import pytest

from tests.device.own_process import ROOT, build_worker, run_python

pytestmark = pytest.mark.needs("cpu")

# A thread sends the signal `after` seconds after the plan of the graph has been asked for. The second call needs the same kernels.
PROGRAM = """
import functools, json, os, signal, threading, time, torch
from torch_ocl_compile import _C

device, worker, after = os.environ["TEST_DEVICE"], os.environ["TEST_WORKER"], float(os.environ["AFTER"])
if worker:
    _C.exec.configure_builds = functools.partial(_C.exec.configure_builds, worker=worker)
sent = []

def send():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

begin = _C.exec.compile

def compile(*args):
    if not sent:
        threading.Timer(after, send).start()
    return begin(*args)

_C.exec.compile = compile
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(8 + i, 9 + i), torch.nn.LayerNorm(9 + i), torch.nn.GELU()) for i in range(12)]
model, x = torch.nn.Sequential(*layers), torch.randn(4, 8)
with torch.no_grad():
    expected = model(x)
    compiled, x = torch.compile(model.to(device), backend="ocl"), x.to(device)
    try:
        compiled(x)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        late = time.monotonic() - sent[0]
    error = None if worker else (compiled(x).cpu() - expected).abs().max().item()
print(json.dumps({"late": late, "error": error}))
"""


@pytest.mark.parametrize("how", ["the worker hangs", *(f"moment {i}" for i in range(3))])
def test_interrupt_while_compiling(ocl_device, tmp_path, how):
    """KeyboardInterrupt comes within two seconds, also if the driver's compiler never answers. The cache stays usable."""
    worker = ""
    if how == "the worker hangs":
        worker = str(tmp_path / "worker")
        with open(worker, "w") as script:
            script.write(f"#!/bin/sh\nexec {sys.executable} -S {ROOT / 'tests/device/runtime/crashing_worker.py'}\n")
        (tmp_path / "worker").chmod(0o700)
    after = random.Random(how).uniform(0, 2)
    status, out, err = run_python(
        PROGRAM,
        **{
            "TEST_DEVICE": str(ocl_device),
            "TEST_WORKER": worker,
            "TEST_REAL_WORKER": build_worker(),
            "AFTER": str(after),
        },
        **{
            "CRASH": "erf",
            "HOW": "hang",
            "TORCH_OCL_CACHE_DIR": str(tmp_path / "cache"),
            "TORCH_OCL_BUILD_WORKERS": "2",
        },
    )
    assert status == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    assert found["late"] < 2
    assert worker or found["error"] < 1e-4
