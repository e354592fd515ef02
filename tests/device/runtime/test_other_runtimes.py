# tests/device/runtime/test_other_runtimes.py: a few programs under Mesa's rusticl, and under Oclgrind, which finds data races.
"""Each runtime needs its own environment variables, so the programs run in a new process for each.

The tests are skipped where the runtime is not installed.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tests.device.own_process import run_python

ROOT = Path(__file__).resolve().parents[3]
NO_DEVICE = 77

# Runtime -> programs that do not work with it -> reason. If a listed program works, the test fails.
KNOWN = {
    "rusticl": {},
    "oclgrind": {},
}

PROGRAM = """
    import copy, sys, traceback
    import torch
    import torch.nn.functional as F
    import torch_ocl_compile

    torch.manual_seed(0)
    if torch.ocl.device_count() == 0:
        print("no device:", torch.ocl.device_problems())
        sys.exit(77)
    print("runs on", torch.ocl.get_device_properties(0).platform_name)

    def results(model, function, *args):
        args = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
        value = function(model, *args)
        value.backward()
        parameters = [] if model is None else list(model.parameters())
        return [t.detach().cpu() for t in [value, *(a.grad for a in args if a.requires_grad), *(p.grad for p in parameters)]]

    def check(name, model, loss, *args):
        expected = results(copy.deepcopy(model), loss, *args)
        moved = model and copy.deepcopy(model).to("ocl")
        torch._dynamo.reset()
        compiled = torch.compile(loss, backend="ocl", dynamic=False, options={"fallback": "error"})
        try:
            got = results(moved, compiled, *(a.to("ocl") for a in args))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        except Exception:
            traceback.print_exc()
            print("failed", name)
        else:
            print("passed", name)

    mlp = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    check("mlp", mlp, lambda m, x: m(x).square().sum(), torch.randn(5, 7))
    check("softmax", None, lambda m, x: (x.softmax(-1) * x).sum(), torch.randn(2, 35))
    check("reduction", None, lambda m, x: x.sum() + x.amax(0).sum() + x.var(1).sum(), torch.randn(65, 20))
    check("cross_entropy", None, lambda m, x, y: F.cross_entropy(x, y), torch.randn(4, 6), torch.tensor([0, 3, 5, 1]))
    check("conv", torch.nn.Conv2d(3, 5, 3, padding=1), lambda m, x: m(x).relu().square().sum(), torch.randn(1, 3, 6, 5))
    check("pool", None, lambda m, x: (F.max_pool2d(x, 2) * F.avg_pool2d(x, 2)).sum(), torch.randn(1, 2, 6, 8))
    places = torch.randint(0, 9, (40,))
    check("scatter", None, lambda m, x, i: (x[:9].index_put((i,), x).square() + x[:9].index_add(0, i, x)).sum(), torch.randn(40), places)
    check("sort", None, lambda m, x: (x.sort(1)[0].cumsum(0) * x.topk(7)[0][:, :1]).square().sum(), torch.randn(3, 600))
"""
NAMES = {"mlp", "softmax", "reduction", "cross_entropy", "conv", "pool", "scatter", "sort"}


def run(runtime, tmp_path, command=(), **environment):
    """Runs the programs. Fails if a program fails that is not in KNOWN, or if a program in KNOWN works."""
    program = tmp_path / "programs.py"
    program.write_text(textwrap.dedent(PROGRAM))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path, "TORCH_OCL_DEVICES": runtime, "TORCH_OCL_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, **environment},
    )
    if done.returncode == NO_DEVICE:
        pytest.skip(f"no device of {runtime}: {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"runs on {runtime}" in done.stdout.replace("Oclgrind", "oclgrind"), done.stdout
    passed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("passed ")}
    wrong = NAMES - passed - set(KNOWN[runtime])
    assert not wrong, f"{sorted(wrong)}\n{done.stderr}"
    repaired = passed & set(KNOWN[runtime])
    assert not repaired, f"works now, remove from KNOWN: {sorted(repaired)}"


@pytest.mark.needs("sweep")
def test_rusticl(tmp_path):
    run("rusticl", tmp_path, RUSTICL_ENABLE="llvmpipe")


WARNED = """
    import torch
    from torch_ocl_compile.cli import devices

    if torch.ocl.device_count() == 0:
        print("no device")
    else:
        for _ in range(2):
            torch.ones(3, device="ocl") + torch.ones(3).to("ocl")
        devices.show_devices()
"""


@pytest.mark.parametrize("hidden", ["", "1"])
def test_a_runtime_with_a_known_fault_is_named_once(tmp_path, hidden):
    environment = {"RUSTICL_ENABLE": "llvmpipe", "TORCH_OCL_DEVICES": "rusticl", "TORCH_OCL_CACHE_DIR": str(tmp_path)}
    status, out, err = run_python(WARNED, TORCH_OCL_UNTESTED=hidden or "0", **environment)
    if "no device" in out:
        pytest.skip("no rusticl: apt-get install mesa-opencl-icd")
    assert status == 0, err[-2000:]
    assert err.count("Mesa's rusticl gave wrong results") == (0 if hidden else 1), err
    assert hidden or ("ocl:0 is" in err and "docs/troubleshooting.md" in err and "TORCH_OCL_UNTESTED=1" in err)
    assert "warning: ocl:0: Mesa's rusticl gave wrong results" in " ".join(out.split())


def test_other_runtimes_have_no_known_fault(ocl_device):
    assert torch.ocl.get_device_properties(ocl_device).known_fault == ""


@pytest.mark.needs("sweep")
@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="no oclgrind: apt-get install oclgrind")
def test_oclgrind_finds_nothing(tmp_path):
    log = tmp_path / "oclgrind.log"
    # Kernels are built without optimisation: the optimiser makes LLVM vectors <n x i1>, whose elements Oclgrind 21.10
    # reads as 255 instead of 1.
    command = ["oclgrind", "--data-races", "--build-options", "-cl-opt-disable", "--log", str(log)]
    run("oclgrind", tmp_path, command)
    found = log.read_text() if log.exists() else ""
    assert not found.strip(), found[:4000]
