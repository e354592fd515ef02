# tests/no_device/commands/test_trace.py: launch records written as a Chrome trace: rows, times, names, sums by kernel.
import json

from torch_ocl_compile.device.record import LaunchRecord
from torch_ocl_compile.tools.trace import by_kernel, chrome_trace, write_trace


def launch(kernel, start, end, device=0):
    return LaunchRecord(kernel, "gemm", "aten.mm", device, (64, 1, 1), (8, 1, 1), 2, 100, 1000, start - 50, start, end)


LAUNCHES = [
    launch("b", 2000, 5000),
    launch("a", 1000, 3000),
    launch("a", 5000, 7000),
    launch("c", 500_000, 501_000, device=1),
]


def kernels(trace):
    return [e for e in trace["traceEvents"] if e["ph"] == "X"]


def test_a_device_is_a_process_and_overlap_makes_a_row():
    trace = chrome_trace(LAUNCHES, lambda index: f"device {index}")
    found = [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in kernels(trace)]
    assert found == [("a", 0, 0, 0, 2), ("b", 0, 1, 1, 3), ("a", 0, 0, 4, 2), ("c", 1, 0, 0, 1)]
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {0: "ocl:0, device 0", 1: "ocl:1, device 1"}
    arguments = kernels(trace)[0]["args"]
    assert arguments["computes"] == "aten.mm" and arguments["flops"] == 1000 and arguments["waited us"] == 0.05


def test_sums_by_kernel():
    rows = by_kernel(LAUNCHES)
    assert [(r["device"], r["kernel"], r["calls"], r["time_us"]) for r in rows] == [
        ("ocl:0", "a", 2, 4.0), ("ocl:0", "b", 1, 3.0), ("ocl:1", "c", 1, 1.0)]  # fmt: skip
    assert sum(r["share"] for r in rows) == 1
    assert by_kernel([]) == []
    (row,) = by_kernel([launch("a", 7, 7)])
    assert row["share"] == 0, "a launch without times"


def test_no_launch_is_a_trace_too(tmp_path):
    write_trace([], str, tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []
