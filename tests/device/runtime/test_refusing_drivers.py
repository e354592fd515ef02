# tests/device/runtime/test_refusing_drivers.py: what a driver refuses, or says of itself, is respected.
"""stand_ins/refusing_driver.c makes the drivers of this machine refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.own_process import ROOT, run_python
from tests.device.runtime import stand_in_layer

pytestmark = [pytest.mark.sampled(), pytest.mark.needs("cpu")]

# Rows of the op table: reductions, products, convolutions, orders, indices, in values and gradients.
OPS = "softmax or cumsum or sort or scatter or conv2d or matmul or layer_norm or mean"

# A program has `found` for its results, and finds what all programs print.
START = """
import dataclasses, json, torch
found = {"problems": torch.ocl.device_problems(), "devices": torch.ocl.device_count()}

def attempt(call):
    try:
        return call()
    except Exception as error:
        return str(error)

def computes():
    torch.manual_seed(0)
    x, w = torch.randn(70, 300), torch.randn(300, 50)
    compiled = torch.compile(lambda x, w: (x @ w).softmax(1) + x.exp().sum(1, keepdim=True).half().float(), backend="ocl")
    with torch.ocl.record(timing=True) as launches:
        got = compiled(x.to("ocl"), w.to("ocl")).cpu().double()
    want = (x.double() @ w.double()).softmax(1) + x.double().exp().sum(1, keepdim=True)
    return {"error": ((got - want).abs() / want).max().item(), "time": sum(l.time_us for l in launches), "launches": len(launches)}

if found["devices"]:
    found["properties"] = dataclasses.asdict(torch.ocl.get_device_properties(0)) | torch_ocl_compile._C.device_probes(0)
"""
END = "\nprint(json.dumps(found))"


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    return stand_in_layer.build("refusing_driver", tmp_path)


def run(library: Path, device: str, words: str, program: str, **env: str) -> tuple[dict[str, Any], str]:
    """Runs a program on a device that is what `words` say. Returns what it found, and its messages."""
    variables = {"TORCH_OCL_DEVICES": device.split(":")[1], "TORCH_OCL_CACHE_DIR": str(library.parent / "cache")} | env
    status, out, err = run_python(
        START + program + END,
        OPENCL_LAYERS=str(library),
        OCL_STAND_IN_IS=f" {words} ",
        TORCH_OCL_UNTESTED="1",
        **variables,
    )
    assert status == 0, out + err[-3000:]
    return json.loads(out.splitlines()[-1]), err


@pytest.fixture(autouse=True)
def layers_exist(layer: Path, ocl_device: str) -> None:
    found, _ = run(layer, ocl_device, "narrow", "")
    if found["properties"]["address_bits"] != 32:
        pytest.skip("this OpenCL loader has no layers")


def test_old_platforms_are_left_out(ocl_device: str, layer: Path) -> None:
    found, _ = run(layer, ocl_device, "old", "", TORCH_OCL_DEVICES="")
    assert found["devices"] == 0
    assert any(line.endswith("has OpenCL 1.1, and 1.2 is needed: left out") for line in found["problems"]), found


def test_narrow_addresses(ocl_device: str, layer: Path) -> None:
    program = """
found["large"] = attempt(lambda: torch.empty(5 << 30, dtype=torch.uint8, device="ocl").numel())
found["result"] = computes()
"""
    found, _ = run(layer, ocl_device, "narrow", program)
    assert found["properties"]["total_memory"] < 1 << 32 and found["properties"]["max_alloc_bytes"] < 1 << 32
    assert "largest buffer" in found["large"] and "its addresses have 32 bits" in found["large"]
    assert found["result"]["error"] < 1e-3


def test_queues_without_times(ocl_device: str, layer: Path) -> None:
    program = """
found["result"] = computes()
first, second = torch.ocl.Event(enable_timing=True), torch.ocl.Event(enable_timing=True)
first.record(); second.record(); torch.ocl.synchronize()
found["elapsed"] = attempt(lambda: first.elapsed_time(second))
with torch.profiler.profile() as profile:
    torch.ones(5, device="ocl").cos().cpu()
found["profiled"] = len(profile.events())
x = torch.randn(64, 64, device="ocl")
tuned = torch.compile(lambda x: x @ x, backend="ocl", options={"max_autotune": True})
found["tuned"] = (tuned(x).cpu() - x.cpu() @ x.cpu()).abs().max().item()
found["peaks"] = torch_ocl_compile._C.measure_peaks(0)
"""
    found, err = run(layer, ocl_device, "timeless", program)
    assert not found["properties"]["queue_times"]
    assert found["result"]["error"] < 1e-3 and found["result"]["launches"] > 0 and found["result"]["time"] == 0
    assert err.count("does not tell when commands ran: recordings and profiles have no times") == 1, err
    assert "no time of an event can be had" in found["elapsed"]
    assert found["profiled"] > 0 and found["tuned"] < 1e-3 and min(found["peaks"]) > 1e6


def test_build_options_are_left_out(ocl_device: str, layer: Path) -> None:
    for process in range(2):  # The second process loads binaries.
        found, err = run(layer, ocl_device, "strict", 'found["result"] = computes()')
        assert found["result"]["error"] < 1e-3
        assert process == 1 or "the compiler refuses the options -w" in err, err


def test_single_precision_only(ocl_device: str, layer: Path) -> None:
    program = """
found["result"] = computes()
found["double"] = attempt(lambda: (torch.ones(3, dtype=torch.float64, device="ocl") + 1).tolist())
"""
    found, _ = run(layer, ocl_device, "single", program)
    assert not found["properties"]["has_fp64"]
    assert found["result"]["error"] < 1e-3
    assert "has no float64" in found["double"]


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("words", ["single", "strict timeless narrow"])
def test_op_table(ocl_device: str, layer: Path, words: str) -> None:
    """A sample of the op table."""
    command = ["pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--ocl-devices", ocl_device.split(":")[1]]
    done = subprocess.run(
        [sys.executable, "-m", *command, "tests/device/ops/test_ops.py", "-k", OPS],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"OPENCL_LAYERS": str(layer), "OCL_STAND_IN_IS": f" {words} "},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.parametrize("words", ["gpu", "gpu wrong"])
def test_a_wrong_gpu_is_not_the_first_device(ocl_device: str, layer: Path, words: str) -> None:
    """One device plays a GPU, the others are CPUs."""
    name = torch.ocl.get_device_properties(ocl_device).platform_name
    program = """
found["order"] = [torch.ocl.get_device_properties(i).order for i in range(torch.ocl.device_count())]
"""
    found, _ = run(layer, ocl_device, words, program, TORCH_OCL_DEVICES="", OCL_STAND_IN_PLATFORM=name)
    first, cpu, last = (
        "GPUs come first",
        "CPUs come after GPUs and accelerators",
        "runtimes that gave wrong results come last",
    )
    cpus = [cpu] * (torch.ocl.device_count() - 1)
    assert found["order"] == ([*cpus, last] if "wrong" in words else [first, *cpus])
    found, _ = run(layer, ocl_device, words, "")
    assert found["properties"]["order"] == "TORCH_OCL_DEVICES decides"


@pytest.mark.parametrize("words, units", [("gpu eus slices", 32), ("gpu eus", 64)])
def test_compute_units_are_not_execution_units(ocl_device: str, layer: Path, words: str, units: int) -> None:
    found, _ = run(layer, ocl_device, words, 'found["result"] = computes()')
    assert found["properties"]["multi_processor_count"] == units and found["result"]["error"] < 1e-3


@pytest.mark.parametrize("words", ["gpu", "gpu global"])
def test_local_memory_that_is_global(ocl_device: str, layer: Path, words: str) -> None:
    """Winograd's kernel keeps its transforms in local memory."""
    program = """
x, w = torch.randn(2, 64, 56, 56), torch.randn(64, 64, 3, 3)
with torch.ocl.record() as launches:
    got = torch.compile(lambda x, w: torch.conv2d(x, w, padding=1), backend="ocl")(x.to("ocl"), w.to("ocl"))
found["kernels"] = [launch.kernel for launch in launches]
want = torch.conv2d(x.double(), w.double(), padding=1)
found["error"] = ((got.cpu().double() - want).abs().max() / want.abs().max()).item()
"""
    found, _ = run(layer, ocl_device, words, program)
    assert found["properties"]["local_is_global"] == ("global" in words)
    assert any("winograd" in kernel for kernel in found["kernels"]) == ("global" not in words), found
    assert found["error"] < 1e-5


LARGE = """
x = torch.randn(11 << 19, device="ocl")  # 22 MiB
y = torch.compile(lambda x: (x * 2).cumsum(0)[-1] + x.flip(0)[7], backend="ocl")(x).item()
want = x.cpu().double()
return {"error": abs(y - (2 * want.sum() + want[-8]).item())}
"""


def test_buffers_above_the_limit(ocl_device: str, layer: Path) -> None:
    """They are made with a flag, for programs with an option; without these, an error has the limit."""
    program = "def large():\n" + "".join(f"    {line}\n" for line in LARGE.strip().splitlines())
    program += 'found["large"] = attempt(large)\nfound["result"] = computes()\n'
    found, _ = run(layer, ocl_device, "gpu small unrestricted", program)
    assert found["properties"]["unrestricted_buffers"] and found["result"]["error"] < 1e-3
    assert found["large"]["error"] < 0.1, found["large"]
    for words in ("gpu small", "gpu small lax"):
        found, _ = run(layer, ocl_device, words, program)
        assert not found["properties"]["unrestricted_buffers"] and found["result"]["error"] < 1e-3
        assert "22.00 MiB" in found["large"] and "the largest buffer of this device is 20.50 MiB" in found["large"], (
            found
        )


def test_slabs_stay_below_the_limit(ocl_device: str, layer: Path) -> None:
    """A tensor just below the limit, and many that would share slabs."""
    program = """
found["most"] = torch.ones(81 << 16, device="ocl")[-1].item()
found["many"] = sum(t.sum().item() for t in [torch.ones(3 << 20, device="ocl") for _ in range(9)])
"""
    found, _ = run(layer, ocl_device, "gpu small", program)
    assert found["most"] == 1 and found["many"] == 9 * (3 << 20)
