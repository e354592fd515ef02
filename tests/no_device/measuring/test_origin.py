# tests/no_device/measuring/test_origin.py: result files say where they come from, the page refuses others, and runs can go on.
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.collector import Collector
from benchmarks.harness import origin, results, side
from benchmarks.harness.process import SideStopped
from torch_ocl_compile import config
from torch_ocl_compile.errors import ToolError

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def page():
    """The program benchmarks/page.py, as a module."""
    from benchmarks import page

    return page


def network(model: str, name: str, ms: float, **more: object) -> dict:
    settings = side.settings_in_effect(name, torch.device("cpu"), "highest") | {"format": "contiguous", "optimizer": ""}
    if name == "ocl":
        settings |= {"opencl": "OpenCL 3.0", "driver": "1.2", "device": "a GPU"}
    return {"model": model, "mode": "inference", "precision": "highest", "protocol": "resident", "batch": 8, "side": name,
            "ms": ms, "peak_mib": None, "spread": 0.01, "settings": settings, **more}  # fmt: skip


def file_with(rows: list[dict], **more: object) -> dict:
    source = {
        "when": "2026-11-25 06:00",
        "commit": "abc1234",
        "torch": "2.13.0",
        "host": "Linux",
        "command": "torch-ocl bench",
    }
    return results.result(source, {"rounds": 3, "calls": 2}, networks=rows) | more


def test_a_new_file_lacks_nothing():
    with config.override(commit="abc1234"):
        content = results.result(
            origin.origin(), {}, networks=[network("a", name, 1.0) for name in ("eager", "inductor", "ocl")]
        )
    assert origin.missing(content) == []
    assert content["commit"] == "abc1234"


@pytest.mark.parametrize("name", [*origin.FIELDS, *origin.NEEDED, "opencl", "freezing"])
def test_the_page_names_what_a_file_lacks(page, tmp_path, name):
    content = file_with([network("a", "eager", 2.0), network("a", "ocl", 1.0)])
    if name in origin.FIELDS:
        del content[name]
    else:
        del content["networks"][1]["settings"][name]
    if name == "torch":
        content["torch"] = None
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit, match=name):
        page.read(path)


def test_a_file_has_one_line_a_row_and_settings_once(tmp_path):
    rows = [network(model, name, 1.5) for model in ("a", "b", "c") for name in ("eager", "ocl")]
    content = file_with(rows, notes=["é"])
    path = tmp_path / "run.json"
    results.write(content, path)
    text = path.read_text(encoding="utf-8")
    assert text.count('"driver"') == 2 and sum('"side"' in line for line in text.splitlines()) == len(rows)
    assert results.expanded(json.loads(text)) == content
    assert [row["settings"] for row in results.read(path)["networks"]] == [row["settings"] for row in rows]
    path.write_text(text.replace(f'"format": {results.FORMAT}', '"format": 1'))
    with pytest.raises(ToolError, match="format 1, expected"):
        results.read(path)


def test_the_page_says_where_another_side_is_faster(page):
    rows = [network("fast", "eager", 4.0), network("fast", "inductor", 8.0), network("fast", "ocl", 2.0)]
    rows += [network("slow", "eager", 4.0), network("slow", "inductor", 1.0), network("slow", "ocl", 2.0)]
    text = page.slower([file_with(rows)])
    assert "| a GPU | Inference, fp32 | slow, batch 8 | Inductor | 2.00 times the ms |" in text
    assert "fast, batch 8 | eager |" not in text
    text = page.details([file_with(rows)], "networks")
    assert "| 2026-11-25 06:00 | abc1234 | a GPU | 1.2 | OpenCL 3.0 | 2.13.0 |" in text
    text = page.page([file_with(rows)])
    assert "| slow, batch 8 | 2.00 | 1.00 Inductor | 0.50 |  |  |  | abc1234 | 2026-11-25 |" in text
    assert "| a GPU | fp32 | eager and Inductor | 1.00 (2) | - |" in page.headline([file_with(rows)], "performance.md")


def test_pages_say_what_no_program_wrote(page):
    rows = [network("a", "eager", 4.0), network("a", "ocl", 2.0)]
    files = [file_with(rows, by_hand="The rows were typed.", commit="abc1234-dirty")]
    assert "**By hand:** The rows were typed." in page.details(files, "networks")
    text = page.page(files)
    assert "| a GPU | fp32 | eager | 2.00 (1) | - | 2026-11-25 |" in text and "| abc1234-dirty | 2026-11-25 |" in text
    assert "No run of whole networks" in page.page([]) and "|" not in page.headline([], "performance.md")


def test_the_newest_run_of_a_network_counts(page):
    old = file_with([network(name, side, ms) for name in "ab" for side, ms in (("eager", 4.0), ("ocl", 4.0))])
    new = file_with([network("a", "eager", 8.0), network("a", "ocl", 2.0)]) | {"when": "2026-11-26 06:00"}
    assert "| a GPU | fp32 | eager | 2.00 (2) | - | 2026-11-25 to 2026-11-26 |" in page.page([new, old])


def test_a_network_has_the_commit_and_the_day_of_each_mode(page):
    trained = [network("a", side, ms) | {"mode": "training"} for side, ms in (("eager", 4.0), ("ocl", 2.0))]
    old = file_with([network("a", "eager", 4.0), network("a", "ocl", 2.0)])
    new = file_with(trained, commit="def5678") | {"when": "2026-11-26 06:00"}
    assert "| abc1234, def5678 | 2026-11-25, 2026-11-26 |" in page.page([new, old])


def git(*words: str) -> str | None:
    """Returns what git prints in this checkout. None if it fails or is not installed."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


FILES = [*sorted((BENCHMARKS / "results").glob("*.json")), BENCHMARKS / "packages.json",
         *sorted((ROOT / "tests" / "conformance" / "results").glob("*.json"))]  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_published_file_is_of_a_commit_of_the_history(path):
    """Its commit is one that everybody can check out. A run with changed files says what was changed."""
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    content = json.loads(path.read_text(encoding="utf-8"))
    number, dirty, _ = content["commit"].partition("-dirty")
    assert git("merge-base", "--is-ancestor", number, "HEAD") is not None, f"{number} is not in the history"
    assert not dirty or content.get("by_hand"), "say in `by_hand` which files were changed"


def test_every_section_has_a_table(page):
    facts = network("a", "ocl", 1.0)["settings"]

    def pair(**rows: tuple[object, object]) -> list[dict]:
        return [{"model": "a", "mode": "training", "precision": "bf16", "batch": 8, "side": name, "settings": facts,
                 **{key: value[i] for key, value in rows.items()}} for i, name in enumerate(("eager", "ocl"))]  # fmt: skip

    both = {"group": ("gemm", "gemm"), "case": ("8x8", "8x8")}
    content = file_with([]) | {
        "operations": pair(**both, ms=(2.0, 1.0), tflops=(1.0, 2.0), gbytes=(1.0, 2.0), roofline=(0.4, 0.8)),
        "memory": pair(peak_bytes=(2**20, 2**21)),
        "startup": pair(cold_s=([4.0, 5.0, 6.0], [1.0, 2.5, 3.0]), second_s=([2.0], [1.0])),
        "layers": pair(rows=({"host": 1.0, "conv": 4.0}, {"host": 1.0, "conv": 2.0})),
        "overlap": [{"side": "ocl", "settings": facts, "ms": {"first": 1.0, "second": 1.0, "one stream": 2.0, "two streams": 1.5}}],
        "collectives": [{"collective": "allreduce", "bytes": 8, "side": name, "gbytes": rate, "settings": facts}
                        for name, rate in (("ocl", 1.0), ("NCCL (CUDA)", 4.0))],
        "parallel": [{"model": "a", "precision": "bf16", "how": "fsdp", "ranks": 2, "side": name, "items": rate, "settings": facts}
                     for name, rate in (("ocl", 3.0), ("cuda", 4.0))],
    }  # fmt: skip
    assert origin.missing(content) == []
    text = page.slower([content])
    for part, (_, sections) in page.PARTS.items():
        text += page.details([content | {key: [] for key in origin.SECTIONS if key not in sections}], part)
    for line in ("| 8x8 | 2.00 | 1.00 | 2.00 | 2.00 | 80% |", "| a, batch 8 | 1.00 | 2.00 | 0.50 |", "| a, batch 8 | 5.00 | 2.50 | 2.00 |",
                 "| conv | 4.00 | 2.00 | 2.00 |", "| 1.00 | 1.00 | 2.00 | 1.50 |", "| 8 bytes | 1.00 | 4.00 | 0.25 |",
                 "| 8 bytes | NCCL (CUDA) | 0.25 times the rate |", "| eager | 2.00 times the MiB |",
                 "| a, FSDP2, 2 ranks | 3.00 | 4.00 | 0.75 |"):  # fmt: skip
        assert line in text, text


def test_the_commit(monkeypatch, tmp_path):
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    known = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    monkeypatch.delenv("TORCH_OCL_COMMIT", raising=False)
    if known:
        assert origin.commit() == known
    # Outside of a checkout, the build's file counts.
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "benchmarks" / "harness" / "origin.py"))
    monkeypatch.setattr(origin._C, "__file__", str(tmp_path / "_C.so"), raising=False)
    assert origin.commit() is None
    (tmp_path / "commit.txt").write_text("built12\n")
    assert origin.commit() == "built12"
    monkeypatch.setenv("TORCH_OCL_COMMIT", "given12-dirty")
    assert origin.commit() == "given12-dirty"


def test_a_command_has_no_paths_of_the_machine(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/a/benchmarks/__main__.py", "models", "--save", "/home/someone/run.json"])
    monkeypatch.setenv("TORCH_OCL_DISABLE", "warp")
    monkeypatch.setenv("TORCH_OCL_CACHE_DIR", "/home/someone/cache")
    assert origin.command() == "TORCH_OCL_DISABLE=warp python -m benchmarks models --save run.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks/startup.py", "--runs", "3"])
    assert origin.command() == "TORCH_OCL_DISABLE=warp python -m benchmarks.startup --runs 3"


def collector(path: Path, minutes: float = float("inf"), resume: bool = False, **settings: object) -> Collector:
    return Collector("networks", {"rounds": 3, "flops": float("nan"), **settings}, path, minutes, resume)


def test_a_run_that_fails_keeps_its_rows_and_goes_on(tmp_path, capsys):
    path = tmp_path / "run.json"
    given = {"sides": ("eager", "ocl")}

    def fails(say):
        yield [network("a", "eager", 1.0)]
        raise SideStopped("too little memory")

    with config.override(commit="abc1234"):
        first = collector(path, models=["a"], **given)
        first.collect(fails)
        assert [row["model"] for row in json.loads(path.read_text())["networks"]] == ["a"]
        with pytest.raises(ToolError, match="too little memory"):
            first.end()
        second = collector(path, resume=True, models=["b"], **given)
        assert not second.wanted("highest", "a", "inference") and second.wanted("highest", "b", "inference")
        second.collect(lambda say: iter([[network("b", "eager", 1.0)]]))
        assert [row["model"] for row in json.loads(path.read_text())["networks"]] == ["a", "b"]
    assert "highest, b, inference: eager 1.000 ms" in capsys.readouterr().err
    with config.override(commit="def5678"), pytest.raises(ToolError, match="another commit"):
        collector(path, resume=True, models=["b"], **given)
    with config.override(commit="abc1234"), pytest.raises(ToolError, match="another sides"):
        collector(path, resume=True, models=["b"], sides=("ocl",))


def test_a_time_limit_begins_nothing_new(tmp_path, capsys):
    late = collector(tmp_path / "run.json", minutes=0.0)
    assert not late.wanted("highest", "a", "inference")
    late.collect(lambda say: iter([]))
    assert "stopped after 0 minutes" in capsys.readouterr().err and late.end() == 0
