# tests/device/tools/test_device_report.py: the steps of `doctor --report` on a device, and its whole way in short.
import json
import os

import pytest
import torch

from tests.device.own_process import run_python
from torch_ocl_compile.tools import device_report, report_steps, report_timings


def result(ocl_device, name):
    found = report_steps.run(report_steps.steps_of(torch.device(ocl_device).index)[name])
    assert "problem" not in found, found
    return json.loads(json.dumps(found))


def test_facts(ocl_device):
    found, properties = result(ocl_device, "device: facts"), torch.ocl.get_device_properties(ocl_device)
    opencl = found["opencl"]
    assert found["properties"]["name"] == opencl["device_name"] == properties.name
    assert opencl["platform_name"] == properties.platform_name
    assert opencl["device_global_mem_size"] == properties.total_memory
    assert opencl["device_max_compute_units"] == properties.multi_processor_count
    assert len(opencl["device_max_work_item_sizes"].split()) >= 3
    assert int(opencl["device_max_work_item_sizes"].split()[0]) >= 1
    assert "cl_khr" in opencl["device_extensions"] and found["probes"]["vector_floats"] in (4, 8, 16)


def test_peaks_bound_the_network(ocl_device):
    peaks = result(ocl_device, "device: peaks")["peaks"]
    assert peaks["gbytes_per_second"] > 0.1 and peaks["gflops"] > 0.1


@pytest.mark.parametrize("timing", report_timings.TIMINGS, ids=lambda timing: timing.name)
def test_timings_are_right(ocl_device, timing, monkeypatch):
    monkeypatch.setattr(report_timings, "SECONDS", 0.01)
    found = result(ocl_device, f"timings: {timing.name}")
    assert found["right"] and 0 < found["error"] < found["tolerance"]
    assert found["ms"] > 0 and found["device_ms"] > 0 and found["kernels"]


def test_a_wrong_result_is_seen(ocl_device, monkeypatch):
    wrong = report_timings.Timing("wrong", ((8, 8),), _wrong_on_the_device, rows=2, cut=1)
    assert report_timings.measure(wrong, torch.device(ocl_device))["right"] is False


def _wrong_on_the_device(x):
    return x + 1e-3 if x.device.type == "ocl" else x + 0.0


def test_kernels_that_a_device_checks(ocl_device):
    names = [name for name in report_steps.steps_of(torch.device(ocl_device).index) if name.startswith("kernels: ")]
    properties = torch.ocl.get_device_properties(ocl_device)
    on_tensor_cores = [name for name in names if "_item " not in name]
    assert bool(on_tensor_cores) == (properties.has_mma or properties.has_wgmma)
    for name in names[:2]:
        found = result(ocl_device, name)
        assert found["right"] == (not found["fault"])


def test_an_unknown_kernel_is_refused(ocl_device):
    found = report_steps.run(
        lambda: report_steps._kernel(torch.device(ocl_device).index, "gemm_nothing", "warp", "fp32")
    )
    assert "no kernel gemm_nothing is checked for fp32" in found["problem"]


@pytest.mark.needs("sweep")
def test_the_whole_way_in_short(ocl_device, tmp_path):
    """The process of the device starts, answers, and ends in time. Steps that do not fit are named."""
    path, index = tmp_path / "report.txt", torch.device(ocl_device).index
    status, out, err = run_python(
        f"""
        import sys
        from torch_ocl_compile.cli import main
        sys.exit(main(["doctor", "--report", {str(path)!r}, "--minutes", "0.3"]))
        """,
        TORCH_OCL_DEVICES=str(index),
    )
    assert status == 0, out + err
    report = device_report.read(path)
    [found] = report["devices"]
    assert found["healthy"] and found["seconds"] < 60
    assert found["properties"]["name"] == torch.ocl.get_device_name(ocl_device)
    ran = [f"{key}: {row['name']}" for key in ("checks", "timings", "kernels") for row in found[key]]
    assert set(ran) | set(found["not_run"]) | {"device: facts", "device: peaks", "network: resnet18"} == set(
        report_steps.steps_of(index)
    )
    assert (
        report["options"]["TORCH_OCL_DEVICES"] == str(index) and os.path.expanduser("~") + "/" not in path.read_text()
    )
