# tests/no_device/measuring/test_figures.py: each figure of README.md and docs/ has a source, and agrees with it.
"""A figure is a percentage, a factor, a decimal in a table, or a number with a unit of time, memory or rate. It comes from one of

- a generated page, or a block between `<!-- python ... -->` and `<!-- end -->`; these are compared with their files,
- figures.json: a constant (`file` contains `text`), a number that was `published` with a commit before results had files, or `why`
  it is no measurement.

A new figure belongs into a result file. `published` is for the old ones alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import kept, table

ROOT = Path(__file__).resolve().parents[3]
SOURCES = json.loads((Path(__file__).parent / "figures.json").read_text(encoding="utf-8"))
# Pages that a program writes as a whole, and the test that compares them.
GENERATED = {
    "docs/performance.md": "test_results_pages below",
    "docs/conformance.md": "test_conformance_pages below",
    "docs/command_line.md": "test_cli.py",
    "docs/options.md": "test_config.py",
    "docs/supported.md": "test_site.py",
}
MOST_PUBLISHED = 8  # Old figures without a result file. There must not be more.
FIGURE = re.compile(
    r"(?<=\| )\d+\.\d+(?= \|)|"  # a cell of a table
    r"\d[\d.,]* ?%|\b\d[\d.,]* times\b|\b\d[\d.,]* ?(?:ms|us|µs|s|seconds|minutes|hours|[GMTK]i?B(?:/s)?|[TG]FLOP/s|GFLOP)\b"
)
BLOCKS = re.compile(r"<!-- python .*?<!-- end -->|```.*?```", re.S)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def figures(text: str) -> list[str]:
    """Returns the figures of a page outside of its generated blocks and its code."""
    return FIGURE.findall(BLOCKS.sub("", text))


def test_each_figure_has_a_source():
    known = {(source["page"], source["figure"]) for source in SOURCES}
    found = {(page.relative_to(ROOT).as_posix(), figure) for page in pages() for figure in figures(page.read_text())}
    found = {(page, figure) for page, figure in found if page not in GENERATED}
    assert not found - known, (
        f"name the source in {Path(__file__).with_name('figures.json').name}: {sorted(found - known)}"
    )
    assert not known - found, f"these are on no page any more: {sorted(known - found)}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: f"{source['page']} {source['figure']}")
def test_a_figure_agrees_with_its_source(source):
    kinds = [kind for kind in ("file", "published", "why") if source.get(kind)]
    assert len(kinds) == 1, source
    if kinds == ["file"]:
        assert source["text"] in (ROOT / source["file"]).read_text(encoding="utf-8"), source


def test_no_new_figure_is_without_a_result_file():
    assert sum("published" in source for source in SOURCES) <= MOST_PUBLISHED


def test_packages_table():
    from benchmarks import packages

    found = json.loads(packages.RESULTS.read_text(encoding="utf-8"))
    assert packages.on_page() == packages.block(found), "python -m benchmarks.packages --write"
    assert all(found[name] for name in ("when", "commit", "torch", "cpu", "threads"))


def test_stale_figures_are_found():
    text = "| H200 | 2.34 | 1.91 |\nIt is 1.9 times as fast, in 40 ms and 2 %.\n<!-- python a.py -->\n99.3 %\n<!-- end -->\n"
    text += "```\n5 s\n```\n7 MiB"
    assert figures(text) == ["2.34", "1.91", "1.9 times", "40 ms", "2 %", "7 MiB"]


def test_conformance_pages():
    for path, text in table.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python -m tests.conformance table"


def test_results_pages():
    subprocess.run([sys.executable, "-m", "benchmarks.page", "--check"], cwd=ROOT, check=True)


def outcome(case: str, direction: str, status: str = "pass", **more: object) -> dict:
    found = {"status": status, "reason": "wrong values", "eager": {}, "samples": 4, "made": 1500}
    return {"case": case, "direction": direction} | found | more


RUN = {"runtime": "a CPU (Intel(R) OpenCL)", "torch": "2.13.0", "all_samples": False, "when": "2026-11-25 06:00",
       "commit": "abc1234", "driver": "1.2", "opencl": "OpenCL 3.0"}  # fmt: skip


def test_kept_results_are_counted_and_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    first = RUN | {"outcomes": [
        outcome("op:a:float32", "forward"), outcome("op:a:float32", "backward", "fail"), outcome("op:b:float32", "forward"),
        outcome("op:c:float32", "forward", eager={"eager aten::sort: no kernel": 1}),
        outcome("op:d:float32", "forward", "skip")]}  # fmt: skip
    second = RUN | {"when": "2026-11-25 07:00", "outcomes": [outcome("op:a:bool", "forward", made=0)]}
    (path,) = kept.keep([first, second], {})
    (found,) = kept.read()
    assert path.name == "intel.json" and found["commit"] == "abc1234"
    assert found["counts"] == [
        {"kind": "op", "dtype": "float32", "number": 3, "forward": [3, 3], "backward": [0, 1], "both": 2, "device": 1,
         "samples": {"forward": [12, 4500], "backward": [4, 1500]}},
        {"kind": "op", "dtype": "bool", "number": 1, "forward": [1, 1], "backward": [0, 0], "both": 1, "device": 1,
         "samples": {"forward": [4, None], "backward": [0, 0]}},
    ]  # fmt: skip
    assert found["failing"] == [["a", "float32 backward", "wrong values"]] and found["on_cpu"] == [
        ["c", "float32", ["aten.sort"]]
    ]
    text = table.page([found])
    assert "| 2026-11-25 06:00 | abc1234 | 2.13.0 | 1.2 | OpenCL 3.0 |" in text
    assert (
        "| op_db | float32 | 3 | 3 (100.0 %) | 0 (0.0 %) | 2 (66.7 %) | 1 (33.3 %) | 12 of 4,500 | 4 of 1,500 |" in text
    )
    assert "Up to 4 samples of each entry ran forward" in text and "| op_db | bool | 1 | 1 (100.0 %) | - |" in text
    assert "12 of 4,500 samples forward and 4 of 1,500 backward" in table.sentence(found)
    assert "66.7 % pass forward and backward" in table.sentence(found)
    with pytest.raises(SystemExit, match="differ in commit"):
        kept.keep([first, second | {"commit": "def5678"}], {})


@pytest.mark.parametrize("name", kept.FIELDS)
def test_results_must_say_where_they_come_from(tmp_path, monkeypatch, name):
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    lacking = RUN | {"outcomes": [outcome("op:a:float32", "forward")]}
    lacking[name] = None
    with pytest.raises(SystemExit, match=f"lack {name}"):
        kept.keep([lacking], {})
