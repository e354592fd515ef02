# tests/no_device/measuring/test_bench.py: rows of benchmark results: ratios, means, merges, files, the operations of a network.
from __future__ import annotations

import json
import math

import pytest

from benchmarks.harness import models, ops, plot, results
from benchmarks.harness.models import NetworkSettings
from torch_ocl_compile.errors import ToolError


def row(model: str, side: str, ms: float, first: float, **other: object) -> dict:
    return {"protocol": "resident", "precision": "highest", "model": model, "mode": "inference", "batch": 8, "side": side, "ms": ms,
            "ratio": first / ms, "spread": 0.01, "error": float("nan"), "roofline": float("nan"), "device": "d"} | other  # fmt: skip


@pytest.fixture
def rows() -> list[dict]:
    found = [row("a", "eager", 8.0, 8.0), row("a", "inductor", 4.0, 8.0), row("a", "ocl", 2.0, 8.0)]
    found += [row("b", "eager", 1.0, 1.0), row("b", "inductor", 2.0, 1.0), row("b", "ocl", 2.0, 1.0)]
    results.add_best(found)
    return found


def test_ratios_and_means(rows):
    assert [r["against_best"] for r in rows] == [0.25, 0.5, 2.0, 2.0, 0.5, 0.5]
    means = {m["side"]: m for m in results.geometric_means(rows)}
    assert means["ocl"]["networks"] == 2
    assert means["ocl"]["ratio"] == pytest.approx(math.sqrt(4 * 0.5))
    assert means["ocl"]["against_best"] == pytest.approx(1.0)


def test_one_side_has_no_other():
    alone = [row("a", "ocl", 2.0, 2.0)]
    results.add_best(alone)
    assert math.isnan(alone[0]["against_best"]) and math.isnan(results.geometric_means(alone)[0]["against_best"])


def test_sides_of_this_project_are_not_compared_with_one_another():
    found = [row("a", "inductor", 4.0, 4.0), row("a", "ocl", 2.0, 4.0), row("a", "ocl-tuned", 1.0, 4.0)]
    results.add_best(found)
    assert [r["against_best"] for r in found] == [0.25, 2.0, 4.0]


def test_files_are_plain_json(rows, tmp_path):
    path = tmp_path / "run.json"
    content = {"format": results.FORMAT, "settings": {"flops": float("nan")}, "networks": rows, "operations": []}
    results.write(content, path)
    json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(text))
    back = results.read(path)
    assert [r["ms"] for r in back["networks"]] == [r["ms"] for r in rows] and math.isnan(back["networks"][0]["error"])
    path.write_text('{"rows": []}')
    with pytest.raises(ToolError, match="no result of `python -m benchmarks models --save`"):
        results.read(path)
    path.write_text("[")
    with pytest.raises(ToolError, match="cannot be read"):
        results.read(path)


def test_a_plot_has_panels_for_each_file(rows, tmp_path, monkeypatch):
    """Rows of two files come from different runs, whose times are not comparable, so they do not share a panel."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    titles = []
    monkeypatch.setattr(pyplot.Axes, "set_title", lambda axis, text: titles.append(text))
    plot.plot({"old": [*rows, row("a", "eager", 1.0, 1.0, mode="training")], "new": rows}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [text.split(", ")[::3] for text in titles] == [
        ["inference", "old"],
        ["training", "old"],
        ["inference", "new"],
    ]


def test_a_run_does_not_mix_builds():
    same = [
        row("a", "eager", 1.0, 1.0),
        row("a", "ocl", 1.0, 1.0, build="x"),
        row("a", "ocl-tuned", 1.0, 1.0, build="x"),
    ]
    models.check_build(same, None)
    models.check_build(same, "x")
    for rows, build in ((same, "y"), ([*same, row("a", "ocl-tuned", 1.0, 1.0, build="")], None)):
        with pytest.raises(ToolError, match="has changed during the run"):
            models.check_build(rows, build)


def test_the_work_of_a_network():
    flops, moved = models.work_of("mlp", "inference", 8, 224)
    weights = 64 * 256 + 2 * 256 * 256 + 256 * 10
    assert flops == 2 * 8 * weights
    assert moved == 4 * (weights + 3 * 256 + 10 + 8 * 64)
    training, more = models.work_of("mlp", "training", 8, 224)
    assert training == 3 * flops - 2 * 8 * 64 * 256, "the first layer needs no gradient of its input"
    assert more > 6 * moved - 4 * 8 * 64 * 6


def test_the_share_of_the_roofline():
    settings = NetworkSettings(["ocl"], flops=1e9)
    flops, moved = models.work_of("mlp", "inference", 8, 224)
    slow = row("mlp", "ocl", 2e3 * flops / 1e9, 1.0)
    assert models.fraction_of_roofline(slow, settings) == pytest.approx(0.5)
    settings = NetworkSettings(["ocl"], flops=1e9, bandwidth=moved / (flops / 1e9) / 2)
    assert models.fraction_of_roofline(slow, settings) == pytest.approx(1.0)
    assert math.isnan(models.fraction_of_roofline(slow, NetworkSettings(["ocl"])))


def test_operations_that_no_name_matches():
    with pytest.raises(ToolError, match=r"no operation matches[^$]*conv"):
        next(ops.measure(ops.OpSettings(["ocl"], ["nothing"], [])))
