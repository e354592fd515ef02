# tests/device/tools/test_commands.py: commands that use a device: what they print, write and return (others: test_cli.py).
from __future__ import annotations

import functools
import itertools
import json
import sys
import zipfile
from typing import Any

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks.harness import results, sides
from torch_ocl_compile import _C, cache_file, config
from torch_ocl_compile.cli import main
from torch_ocl_compile.tuning import table

pytestmark = pytest.mark.sampled()  # Runs on the first device only: commands do not depend on the runtime.

MODEL = """
import sys, torch
device = sys.argv[1]
compiled = torch.compile(lambda x: torch.relu(x @ x).sum(), backend="ocl")
x = torch.ones(20, 20, device=device, requires_grad=True)
print("before")
compiled(x).backward()
if "break" in sys.argv:
    raise ValueError("a mistake")
print("after", x.grad.sum().item())
"""
FUNCTIONS = """
import torch
def pair():
    return torch.nn.Linear(6, 3).to("ocl"), torch.ones(2, 6, device="ocl")
def nothing():
    return 7
def on_the_host():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(4, 8)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "functions_of_test_commands.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    with config.override(cache_dir=str(tmp_path / "cache")):
        config.configure_core()
        table.forget()
        yield
    sys.modules.pop("functions_of_test_commands", None)
    config.configure_core()
    table.forget()


@pytest.fixture
def run(capsys):
    """Runs a command in this process; returns (status, stdout, stderr)."""

    def run(*arguments: object, **group: Any) -> tuple[int, str, str]:
        torch._dynamo.reset()
        capsys.readouterr()
        status = main(list(map(str, arguments)), **group)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def bench(run):
    """Runs `python -m benchmarks` in this process."""
    return functools.partial(run, group=benchmarks.command, name="python -m benchmarks")


def test_devices(ocl_device, run):
    status, out, _ = run("devices")
    names = [torch.ocl.get_device_name(i) for i in range(torch.ocl.device_count())]
    assert status == 0 and all(f"ocl:{i} " in out and name in out for i, name in enumerate(names))
    status, out, _ = run("devices", "--json")
    found = json.loads(out)
    assert (
        status == 0
        and [d["name"] for d in found["devices"]] == names
        and found["problems"] == torch.ocl.device_problems()
    )


def test_explain_a_script(ocl_device, run):
    status, out, err = run("explain", "model.py", ocl_device)
    assert status == 0 and not err
    assert "before\n" in out and "after " in out
    assert "forward_" in out and "backward_" in out and "aten.mm.default, aten.relu.default" in out
    status, out, err = run("explain", "--json", "model.py", ocl_device)
    found = json.loads(out)
    assert status == 0 and "after" in err, "the program's own output is not among the JSON"
    assert [graph["label"].split("_")[0] for graph in found["graphs"]] == ["forward", "backward"]
    assert all(graph["kernels"] and graph["launches"] == len(graph["kernels"]) for graph in found["graphs"])
    assert found["eager_in_graphs"] == found["eager_outside"] == {}


def test_explain_writes_a_page(ocl_device, run, tmp_path):
    pytest.importorskip("vl_convert")
    status, out, err = run("explain", "--html", "report.html", "model.py", ocl_device)
    page = (tmp_path / "report.html").read_text()
    assert status == 0 and not err and "the page is report.html" in out
    assert "<title>model.py" in page and "model.py:4" in page and 'data-chart="roofline"' in page
    status, out, err = run("explain", "--html", "missing/report.html", "model.py", ocl_device)
    assert status == 2 and "there is no folder 'missing'" in err
    status, out, _ = run("explain", "--json", "--html", "report.html", "functions_of_test_commands:pair")
    kernels = json.loads(out)["graphs"][0]["kernels"]
    assert status == 0 and all(kernel["time_us"] > 0 and kernel["why_no_more"] for kernel in kernels)


def test_explain_without_the_packages_of_the_page(ocl_device, run, tmp_path, monkeypatch):
    """The command names the missing package before it runs the program."""
    monkeypatch.delitem(sys.modules, "torch_ocl_compile.report.page", raising=False)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    status, out, err = run("explain", "--html", "report.html", "model.py", ocl_device)
    assert status == 1 and not out and not (tmp_path / "report.html").exists()
    assert err == "torch-ocl: the report's page needs vl_convert; do: pip install torch-ocl-compile[report]\n"


def test_explain_a_function(ocl_device, run):
    status, out, _ = run("explain", "functions_of_test_commands:pair")
    assert status == 0 and "aten.addmm" in out
    status, out, err = run("explain", "functions_of_test_commands:nothing")
    assert (
        status == 1
        and err.startswith("torch-ocl: functions_of_test_commands:nothing compiled nothing")
        and err.count("\n") == 1
    )


def test_explain_says_what_ran_on_the_cpu(ocl_device, run, tmp_path):
    (tmp_path / "falls_back.py").write_text(
        "import sys, torch\n"
        "x = torch.eye(40, device=sys.argv[1])\n"
        "torch.compile(lambda x: torch.linalg.eigvals(x).real + 1, backend='ocl')(x)\n"
    )
    status, out, _ = run("explain", "--json", "falls_back.py", ocl_device)
    found = json.loads(out)
    assert status == 0 and any(
        "linalg_eig" in reason for reason in {**found["eager_in_graphs"], **found["eager_outside"]}
    )


@pytest.mark.parametrize("command", ["explain", "trace"])
def test_a_program_that_fails(command, ocl_device, run, tmp_path):
    """The exit status is 1. trace still writes the launches from before the failure."""
    status, out, err = run(command, "model.py", ocl_device, "break")
    assert status == 1 and "before" in out and "after" not in out
    assert err == "torch-ocl: model.py:9: ValueError: a mistake\n"
    assert "Traceback" in run("--debug", command, "model.py", ocl_device, "break")[2]
    if command == "trace":
        assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > 3


def test_trace(ocl_device, run, tmp_path):
    status, out, _err = run("trace", "--output", "own.json", "--json", "model.py", ocl_device)
    said = json.loads(out)
    events = json.loads((tmp_path / "own.json").read_text())["traceEvents"]
    kernels = [e for e in events if e["ph"] == "X"]
    assert status == 0 and len(kernels) == said["launches"] >= 4
    index = torch.device(ocl_device).index
    assert {e["pid"] for e in kernels} == {index}
    assert any("aten.mm.default, aten.relu.default" in e["args"]["computes"] for e in kernels)
    for row in {e["tid"] for e in kernels}:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in kernels if e["tid"] == row)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(own)), (
            "kernels of a row follow each other"
        )
    assert sum(r["calls"] for r in said["kernels"]) == len(kernels)
    assert sum(r["share"] for r in said["kernels"]) == pytest.approx(1)
    status, out, _ = run("trace", "--top", 1, "model.py", ocl_device)
    assert status == 0 and out.count("%") == 1 and "launches in trace.json" in out


def test_trace_of_nothing(ocl_device, run, tmp_path):
    (tmp_path / "empty.py").write_text("")
    status, _, err = run("trace", "empty.py")
    assert status == 1 and "ran no kernel" in err and err.count("\n") == 1


def test_a_full_disk_for_files(ocl_device, run):
    for arguments in (("trace", "--output", "/dev/full", "model.py", ocl_device), ("cache", "export", "/dev/full")):
        status, _, err = run(*arguments)
        assert (status, err) == (1, "torch-ocl: No space left on device\n"), arguments


# The cache


@pytest.fixture
def filled(ocl_device, tmp_path):
    """Makes a cache with the kernels of a device and of another driver, and with a measured choice. Returns the
    device's index."""
    index = torch.device(ocl_device).index
    _C.exec.cache_store("kernels", _C.exec.store_prefix(index) + "one", b"\0binary\xff" * 100)
    _C.exec.cache_store("kernels", _C.exec.store_prefix(index) + "two", b"other")
    _C.exec.cache_store("kernels", "0123456789abcdef-three", b"of another driver")
    table.save(
        table.table_of(index), "a problem", {"choice": "gemm_item tile=6x4", "model_choice": "gemm_item tile=2x4"}
    )
    return index


def test_cache_stats(filled, run):
    status, out, _ = run("cache", "stats")
    assert status == 0 and "built kernels" in out and "measured choices" in out
    found = json.loads(run("cache", "stats", "--json")[1])
    assert found["entries"] == 4 and found["tables"]["kernels"]["entries"] == 3 and found["most_bytes"] == 1024 * 2**20
    assert run("cache", "clear")[0] == 0 and json.loads(run("cache", "stats", "--json")[1])["entries"] == 0


def test_cache_off(ocl_device, run):
    with config.override(cache_size_mb=0):
        for arguments in (["stats"], ["verify"], ["clear"], ["export", "x.zip"]):
            assert run("cache", *arguments)[::2] == (1, "torch-ocl: the cache is off: TORCH_OCL_CACHE_SIZE_MB is 0\n")


def test_cache_verify_finds_damage(filled, run, tmp_path):
    assert run("cache", "verify")[:2] == (0, "0 damaged entries deleted, 4 are left\n")
    _damage(tmp_path / "cache" / "cache.sqlite")
    assert json.loads(run("cache", "verify", "--json")[1])["deleted"] == 1
    assert run("cache", "verify")[:2] == (0, "0 damaged entries deleted, 3 are left\n")


def _damage(path):
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET value='else' WHERE key LIKE '%three'")
    connection.close()


def test_cache_prune(filled, run):
    assert run("cache", "prune", "--unused-for", 1)[:2] == (0, "0 old entries deleted, 4 are left\n")
    assert run("cache", "prune", "--size", 0)[:2] == (0, "4 old entries deleted, 0 are left\n")


def test_export_and_import(filled, run, tmp_path):
    device = f"ocl:{filled}"
    assert run("cache", "export", "kernels.zip", "--device", device)[:2] == (
        0,
        "2 entries of kernels, 0 compiled graphs, 0 plans of eager ops and 1 choices in kernels.zip\n",
    )
    assert run("cache", "clear")[0] == 0
    table.forget()
    assert run("cache", "import", "kernels.zip", "--device", device)[:2] == (
        0,
        "2 entries of kernels, 0 compiled graphs, 0 plans of eager ops and 1 choices from kernels.zip\n",
    )
    assert _C.exec.cache_find("kernels", _C.exec.store_prefix(filled) + "one") == b"\0binary\xff" * 100
    assert table.table_of(filled).followed()["a problem"] == "gemm_item tile=6x4"
    assert _C.exec.cache_keys("kernels") == [_C.exec.store_prefix(filled) + name for name in ("one", "two")]


def test_a_cache_that_takes_no_more(filled, run, tmp_path, monkeypatch):
    """If the cache stores only a part of the entries, the import fails and says how many it stored."""
    cache_file.export_cache(filled, tmp_path / "kernels.zip")
    store = _C.exec.cache_store
    monkeypatch.setattr(_C.exec, "cache_store", lambda table, *entry: table == "kernels" or store(table, *entry))
    status, _, err = run("cache", "import", "kernels.zip", "--device", f"ocl:{filled}")
    assert status == 1 and "took 1 of 3 entries of kernels.zip: " in err and err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"no archive", "truncated", "foreign"])
def test_a_file_that_is_damaged(content, filled, run, tmp_path):
    cache_file.export_cache(filled, tmp_path / "x.zip")
    if content == "foreign":
        with zipfile.ZipFile("x.zip", "w") as archive:
            archive.writestr("header.json", "[1, 2]")
    else:
        whole = (tmp_path / "x.zip").read_bytes()
        (tmp_path / "x.zip").write_bytes(whole[: len(whole) // 2] if content == "truncated" else content)
    before = _C.exec.cache_stats()["stores"]
    status, _, err = run("cache", "import", "x.zip", "--device", f"ocl:{filled}")
    assert status == 1 and "x.zip is no file of `torch-ocl cache export`, or is damaged" in err and err.count("\n") == 1
    assert _C.exec.cache_stats()["stores"] == before


# Benchmarks


def test_bench_models(ocl_device, bench, tmp_path):
    given = ("--models", "mlp", "--rounds", 1, "--calls", 1, "--threads", 1, "--ocl-device", ocl_device)
    given += ("--modes", "inference", "--sides", "eager,ocl")
    status, out, err = bench("models", *given, "--save", "run.json", "--flops", "1e12", "--json")
    assert status == 0, err
    found, saved = json.loads(out), results.read(tmp_path / "run.json")
    rows = {(row["mode"], row["side"]): row for row in found["networks"]}
    assert set(rows) == {("inference", side) for side in ("eager", "ocl")}
    assert all(row["ms"] > 0 and row["roofline"] > 0 for row in rows.values())
    assert rows["inference", "ocl"]["error"] < 1e-5
    device = torch.ocl.get_device_properties(ocl_device)
    assert rows["inference", "ocl"]["device"] == f"{device.name} ({device.platform_name})"
    assert [row["ms"] for row in saved["networks"]] == [row["ms"] for row in found["networks"]]
    assert all(row["settings"]["threads"] == 1 for row in saved["networks"])
    assert len(found["means"]) == 2
    (tmp_path / "again.json").write_bytes((tmp_path / "run.json").read_bytes())
    status, out, _ = bench("plot", "run.json", "again.json", "--output", "chart.png")
    assert status == 0 and out.count("mlp") == 4 and "again.json: " in out and "chart in chart.png" in out
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_bench_of_a_network_that_is_none(ocl_device, bench):
    status, out, err = bench("models", "--models", "nonesuch", "--sides", "ocl", "--modes", "inference")
    assert status == 2 and "no network is called 'nonesuch'" in err and err.count("\n") == 1 and not out


def test_bench_ops(ocl_device, bench):
    given = ("--groups", "memory", "--cases", "copy", "--batch", 8, "--rounds", 1, "--calls", 1, "--threads", 1)
    status, out, err = bench("ops", *given, "--sides", "ocl", "--ocl-device", ocl_device, "--json")
    assert status == 0, err
    (row,) = json.loads(out)["operations"]
    assert row["side"] == "ocl" and row["ms"] > 0 and row["error"] < 1e-6
    status, _, err = bench("ops", "--groups", "nonesuch", "--sides", "ocl")
    assert status == 1 and "no operation matches" in err and err.count("\n") == 1


def test_bench_sides(ocl_device, bench):
    found = [side["side"] for side in json.loads(bench("sides", "--json")[1])]
    assert list(dict.fromkeys(found)) == list(sides.SIDES)
    assert found.count("eager") == 1 and found.count("ocl") == torch.ocl.device_count()


def test_bench_memory(ocl_device, bench, tmp_path):
    given = ("--models", "mlp", "--threads", 1, "--ocl-device", ocl_device)
    status, out, err = bench("memory", *given, "--modes", "training", "--save", "run.json")
    assert status == 0 and "optimizer state" in out and "2.weight, exp_avg" in out, err
    (row,) = results.read(tmp_path / "run.json")["memory"]
    assert sum(row["parts"].values()) == row["peak_bytes"] > 0
    if not torch.cuda.is_available():
        status, _, err = bench("memory", *given, "--sides", "eager")
        assert status == 1 and "PyTorch does not count memory" in err


@pytest.mark.parametrize("mode, precision", [("inference", "bf16"), ("training", "fp32")])
def test_bench_of_a_model(ocl_device, run, mode, precision):
    given = ("--sides", "eager,ocl", "--rounds", 2, "--calls", 1, "--device", ocl_device)
    status, out, err = run(
        "bench", "functions_of_test_commands:on_the_host", *given, "--mode", mode, "--precision", precision, "--json"
    )
    assert status == 0, err
    eager, ocl = json.loads(out)
    assert (eager["side"], ocl["side"]) == ("eager", "ocl") and ocl["device"] == torch.ocl.get_device_name(ocl_device)
    assert eager["ratio"] == 1 and ocl["ratio"] == pytest.approx(eager["ms"] / ocl["ms"]) and ocl["spread"] >= 0
    status, out, err = run("bench", "functions_of_test_commands:nothing", *given)
    assert status == 1 and not out and "the side eager ended with status 1: TypeError: " in err
