# tests/device/runtime/test_build_workers.py: kernels that are compiled in worker processes, seen from a user's program.
"""tests/cpp/test_build_pool.cpp tests workers that crash, hang or are killed."""

import json

import pytest

from tests.device.own_process import run_python

PROGRAM = """
import json, os, torch
from torch_ocl_compile import _C

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3), torch.nn.Softmax(-1))
x, device = torch.randn(4, 7), os.environ["TEST_DEVICE"]
exact = model.double()(x.double()).detach()
model = model.float().to(device)
loss = torch.compile(lambda x: model(x), backend="ocl")(x.to(device))
loss.square().sum().backward()
counters = _C.exec.build_counters()
print(json.dumps({"error": (loss.detach().cpu().double() - exact).abs().max().item(), **counters}))
"""


def run(device, folder, workers):
    status, out, err = run_python(
        PROGRAM, TEST_DEVICE=str(device), TORCH_OCL_CACHE_DIR=str(folder), TORCH_OCL_BUILD_WORKERS=str(workers)
    )
    assert status == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_kernels_are_right_and_kept(ocl_device, tmp_path, workers):
    first = run(ocl_device, tmp_path, workers)
    assert first["error"] < 1e-6
    assert first["built"] > 0
    assert first["by_workers"] == (first["built"] if workers and not first["unkept"] else 0)
    second = run(ocl_device, tmp_path, workers)
    assert second["error"] < 1e-6
    # A runtime that compiles kernels at their first launch has its own cache, and the binaries are not in ours.
    if not first["unkept"]:
        assert second["built"] == 0


@pytest.mark.needs("cpu")
def test_a_few_kernels_are_compiled_outside_of_this_process(ocl_device, tmp_path):
    """Even a few kernels are compiled by workers, so that a crash of the driver's compiler does not end this
    process."""
    found = run(ocl_device, tmp_path, -1)
    assert found["by_workers"] == (0 if found["unkept"] else found["built"])
