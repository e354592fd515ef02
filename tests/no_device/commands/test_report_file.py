# tests/no_device/commands/test_report_file.py: `doctor --report` with stand-ins for the process of a device: crashes, hangs, the file.
import getpass
import json
import sys
import textwrap
from pathlib import Path

import pytest

from torch_ocl_compile.cli import main
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools import device_report, report_text

HEAD = textwrap.dedent("""
    import json, os, signal, sys, time

    given = json.loads(sys.argv[1])
    STEPS = ["device: facts", "checks: one", "timings: two", "kernels: three"]

    def say(line):
        print(json.dumps(line), flush=True)

    def run(name, result):
        if name not in given["done"]:
            say({"begin": name})
            say({"end": name, "result": {**(result() or {}), "seconds": 0.1}})

    say({"steps": STEPS})
""")
GOOD = textwrap.dedent("""
    run("checks: one", lambda: {"healthy": True, "error": 1e-7, "tolerance": 1e-4, "step_ms": 1.0, "first_seconds": 2.0})
    run("timings: two", lambda: {"right": True, "error": 1e-7, "tolerance": 1e-4, "ms": 0.5})
    run("kernels: three", lambda: {"right": True, "fault": ""})
""")


@pytest.fixture
def examine(monkeypatch, tmp_path):
    """Examines one device, whose process runs the given code. Returns the report."""

    def examine(code, seconds=60.0, options=None, count=1):
        program = tmp_path / "steps.py"
        program.write_text(HEAD + code)
        monkeypatch.setattr(device_report, "PROGRAM", (str(program),))
        monkeypatch.setattr(torch_ocl, "device_count", lambda: count)
        monkeypatch.setattr(torch_ocl, "device_problems", lambda: [])
        return device_report.make(options or {}, seconds, lambda text: None)

    return examine


def test_a_good_device(examine):
    report = examine('run("device: facts", lambda: {"opencl": {"device_name": "x"}})' + GOOD)
    [found] = report["devices"]
    assert report["healthy"] and found["healthy"] and not found["faults"] and not found["not_run"]
    assert found["opencl"] == {"device_name": "x"}
    assert [row["name"] for key in ("checks", "timings", "kernels") for row in found[key]] == ["one", "two", "three"]


def test_a_crash_costs_one_step(examine):
    report = examine(
        'run("device: facts", lambda: print("about to", file=sys.stderr) or os.kill(os.getpid(), signal.SIGSEGV))'
        + GOOD
    )
    [found] = report["devices"]
    assert not report["healthy"]
    assert found["faults"] == ["device: facts: the process was ended by SIGSEGV: the driver, or a kernel, crashed"]
    assert [row["name"] for key in ("checks", "timings", "kernels") for row in found[key]] == ["one", "two", "three"]
    assert found["messages"] == ["about to"] and not found["not_run"]


def test_a_hang_costs_one_step(examine, monkeypatch):
    monkeypatch.setattr(device_report, "LONGEST_STEP", 0.5)
    [found] = examine('run("device: facts", lambda: time.sleep(100))' + GOOD)["devices"]
    assert found["faults"] == ["device: facts: it did not end within 0 seconds"] and not found["not_run"]


def test_a_device_that_always_crashes_is_given_up(examine):
    [found] = examine("os._exit(3)")["devices"]
    assert found["faults"] == ["device: start and end: the process ended with status 3"]
    assert found["not_run"] == ["device: facts", "checks: one", "timings: two", "kernels: three"]


def test_the_time_ends_between_steps_and_in_one(examine):
    slow = 'run("device: facts", lambda: {}); run("checks: one", lambda: time.sleep(100))'
    report = examine(slow, seconds=3.0)
    [found] = report["devices"]
    assert found["not_run"] == ["checks: one", "timings: two", "kernels: three"] and not found["faults"]
    assert found["seconds"] < 30 and report["healthy"]


def test_wrong_results_are_a_fault(examine):
    code = 'run("device: facts", lambda: {})\n'
    code += 'run("checks: one", lambda: {"healthy": False, "error": None, "tolerance": 1e-4})\n'
    code += 'run("timings: two", lambda: {"right": False, "error": 0.5, "tolerance": 1e-4})\n'
    code += 'run("kernels: three", lambda: {"right": False, "fault": "gives wrong results"})'
    report = examine(code)
    assert report["devices"][0]["faults"] == [
        "checks: one: WRONG RESULTS: not finite where 1e-04 is allowed",
        "timings: two: WRONG RESULTS: off by 5e-01 where 1e-04 is allowed",
        "kernels: three: gives wrong results",
    ]


def test_the_file_is_read_back(examine, tmp_path):
    report = examine(
        'run("device: facts", lambda: {"peaks": {"gbytes_per_second": float("nan"), "gflops": 2.0}})' + GOOD
    )
    path = tmp_path / "report.txt"
    device_report.write(report, path)
    assert device_report.read(path) == report
    assert report["devices"][0]["peaks"] == {"gbytes_per_second": None, "gflops": 2.0}
    text = path.read_text().partition(device_report.MARK)[0]
    assert "==== ocl:0: unknown ====" in text and "healthy" in text and "one    right  1e-07" in text, text


@pytest.mark.parametrize("text, reason", [
    ("hello", "no part in JSON"),
    (f"\n{device_report.MARK}\n{{", "no device report"),
    (f"\n{device_report.MARK}\n{json.dumps({'format': device_report.FORMAT + 1})}", "use a newer torch_ocl_compile"),
])  # fmt: skip
def test_other_files_are_refused(text, reason, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(ToolError, match=reason):
        device_report.read(path)


def test_nothing_private_is_in_the_file(examine, tmp_path, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    monkeypatch.setenv("SECRET_OF_THE_ENVIRONMENT", "sesame")
    home = str(Path.home())
    code = f"""
print("cannot open {home}/data/x.cl of /data/alice/y.cl", "/srv/alice", file=sys.stderr)
run("device: facts", lambda: {{"problem": "no file '/home/alice/secret/kernel.cl': see {tmp_path}/dump/k.log:12"}})"""
    report = examine(code + GOOD, options={"TORCH_OCL_CACHE_DIR": "/mnt/alice/project/cache"})
    path = tmp_path / "report.txt"
    device_report.write(report, path)
    text = path.read_text()
    for private in ("alice", "secret/", "project", "sesame", str(tmp_path), *([home] if len(home) > 1 else [])):
        assert private not in text, private
    assert "kernel.cl" in text and "k.log" in text and ".../cache" in text


@pytest.mark.parametrize(
    "text", ["12 GB/s", "and/or", "https://a.b/c/d", "3 /4", "half/float", "1 / 2 / 3", "64x64 s/m"]
)
def test_other_texts_stay(text):
    assert report_text.scrubbed([text]) == [text]


def test_the_command_without_a_device(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch_ocl, "device_count", lambda: 0)
    monkeypatch.setattr(torch_ocl, "device_problems", lambda: ["libx.so: does not open"])
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--report"]) == 1
    assert "the report is torch_ocl_report.txt" in capsys.readouterr().out
    report = device_report.read(tmp_path / "torch_ocl_report.txt")
    assert report["problems"] == ["libx.so: does not open"] and report["devices"] == []
    assert "NO DEVICE WAS FOUND" in (tmp_path / "torch_ocl_report.txt").read_text()


def test_the_folder_is_looked_for_first(capsys):
    assert main(["doctor", "--report", "/nowhere/x.txt"]) == 2
    assert "there is no folder '/nowhere'" in capsys.readouterr().err


def test_the_program_is_a_module_of_ours():
    """The stand-ins above take its place."""
    flag, name = device_report.PROGRAM
    assert flag == "-m" and name in (
        f"torch_ocl_compile.tools.{p.stem}" for p in Path(device_report.__file__).parent.glob("*.py")
    )
    assert sys.executable
