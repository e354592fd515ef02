# tests/device/tools/test_explain.py: explain(): graphs, breaks, kernels with reasons and times, memory, fallbacks, and the page's text.
from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from torch_ocl_compile import explain
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.report import explanation
from torch_ocl_compile.report.kernels import ALONE

needs_page = pytest.mark.skipif(
    find_spec("vl_convert") is None, reason="the page needs vl_convert: pip install vl-convert-python"
)
pytestmark = pytest.mark.sampled()  # Runs on the first device only: explanations do not depend on the runtime.


def network(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 2)).to(device)


def test_a_training_step(ocl_device):
    model, x = network(ocl_device), torch.ones(4, 8, device=ocl_device)
    it = explain(lambda x: model(x), x, backward=True)
    assert [graph.label.split("_")[0] for graph in it.graphs] == ["forward", "backward"]
    assert all(p.grad is None for p in model.parameters()), "gradients are dropped"
    kernels = [k for graph in it.graphs for k in graph.kernels]
    assert len(kernels) == sum(len(graph.kernels) for graph in it.graphs) > 3
    (line,) = it.model_lines
    assert line.startswith("test_explain.py:") and "model(x)" in it.model_lines[line]
    for k in kernels:
        assert k.why_no_more and all(k.why_no_more), k.name
        assert len(k.times_us) == 3 and k.time_us > 0, k.name
        assert k.bytes > 0 and k.ops and k.lines == [line] and "__kernel" in k.text and k.name in k.text, k.name
    assert not it.breaks and not it.eager_in_graphs and not it.eager_outside
    assert set(it.phases) and all(seconds >= 0 for seconds in it.phases.values())
    assert it.roofline.bandwidth > 1e8 and it.roofline.flops["f32"] > 1e8
    text = str(it)
    assert all(k.name in text for k in kernels) and "aten.addmm.default" in text


def test_what_was_fused_and_why_no_more(ocl_device):
    it = explain(network(ocl_device), torch.ones(4, 8, device=ocl_device), runs=0)
    first, norm, last = it.graphs[0].kernels
    assert first.ops == ["addmm x2"]
    assert first.fused == ["epilogue: the result is still in registers of the template"]
    assert "relu x2" in norm.ops and "inlined: relu is computed where its value is used" in norm.fused
    assert [(other.relation, other.group) for other in first.apart] == [("consumer", norm.position)]
    assert "this one reduces" in first.apart[0].reason
    assert {(other.relation, other.group) for other in norm.apart} == {
        ("producer", first.position),
        ("consumer", last.position),
    }
    assert first.time_us is None and it.roofline is None and it.graphs[0].time_us is None
    alone = explain(torch.sin, torch.ones(5, device=ocl_device), runs=0)
    assert [k.why_no_more for k in alone.graphs[0].kernels] == [[ALONE]]


@needs_page
def test_why_special_kernels_refused(tmp_path, ocl_device):
    """The object, the text, the JSON and the page name each hand-written kernel that comes first, and its reason."""
    x, w = torch.ones(1, 16, 9, 9, device=ocl_device), torch.ones(16, 16, 5, 5, device=ocl_device)
    it = explain(nn.functional.conv2d, x, w, runs=0)
    (conv,) = (k for k in it.graphs[0].kernels if k.kind == "conv_forward")
    assert any(re.fullmatch(r"winograd_\w+: refused, it is for filters of 3 x 3, not 5 x 5", r) for r in conv.refused)
    assert all(reason in str(it) for reason in conv.refused)
    assert conv.refused in [k["refused"] for g in it.as_dict()["graphs"] for k in g["kernels"]]
    doubles = torch.ones(4, 4, dtype=torch.float64, device=ocl_device)
    it = explain(torch.mm, doubles, doubles, runs=0)
    (product,) = it.graphs[0].kernels
    assert not product.variant and any("the operands are f64 and f64" in reason for reason in product.refused)
    it.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(reason in str(it) and reason in page for reason in product.refused)


def test_memory(ocl_device):
    """The graph has two intermediate results of 4 MB. The first is still needed when the second is written."""

    def chain(x):
        first = torch.cumsum(x, 0)
        second = torch.cumsum(first, 1)
        return torch.cumsum(second, 0)

    x = torch.ones(1024, 1024, device=ocl_device)
    memory = explain(chain, x, runs=0).graphs[0].memory
    size = x.numel() * 4
    assert memory.arguments == size and memory.results == size and memory.parameters == 0
    assert memory.arena >= max(memory.live) >= size
    assert memory.peak == memory.arguments + memory.results + memory.arena
    assert memory.live[memory.peak_at] == max(memory.live)
    assert {held.what for held in memory.largest} >= {"argument", "result", "intermediate"}
    assert [held.bytes for held in memory.largest] == sorted((h.bytes for h in memory.largest), reverse=True)


def test_graph_breaks_and_fallbacks(ocl_device):
    def broken(x):
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.linalg.eigvals(y).real + 1

    it = explain(broken, torch.eye(40, device=ocl_device), runs=0)
    assert [b.code for b in it.breaks] == ["torch._dynamo.graph_break()"]
    assert it.breaks[0].place.startswith("test_explain.py:") and "graph_break" in it.breaks[0].reason
    assert any("linalg_eig" in name for name in {**it.eager_in_graphs, **it.eager_outside})


@needs_page
def test_cuts(ocl_device, tmp_path):
    """A branch on the device cuts the graph: two plans, and one for each side. A type without kernels cuts it twice."""

    def cut(x):
        y = torch.cond(x.sum() > 0, lambda t: (t.exp() * 2,), lambda t: (t + 1,), (x,))[0]
        return (y.to(torch.float8_e8m0fnu).to(torch.float32) + 1).sin()

    with torch.no_grad():
        it = explain(cut, torch.ones(4, 8, device=ocl_device), runs=1)
    assert [c.op for c in it.cuts] == ["cond", *["prims.convert_element_type.default"] * 2]
    assert [c.eager for c in it.cuts] == [False, True, True]
    assert all(re.fullmatch(r"test_explain.py:\d+", c.place) for c in it.cuts)
    assert len(it.graphs) == 4 and sum(len(g.kernels) for g in it.graphs) >= 4
    assert list(it.eager_in_graphs.values()) == [2]
    assert "cut: inference" in str(it) and "dtype torch.float8_e8m0fnu has no kernels" in str(it)
    it.save(tmp_path / "report.html")
    assert "is cut here: the host runs its graphs" in (tmp_path / "report.html").read_text()


def test_symbolic_sizes(ocl_device):
    compiled = torch.compile(lambda x: torch.relu(x).sum(1), backend="ocl", dynamic=True)
    it = explain(compiled, torch.ones(6, 50, device=ocl_device), runs=1)
    kernels = it.graphs[0].kernels
    assert all(k.bytes is not None for k in kernels) and it.graphs[0].memory.arguments == 6 * 50 * 4


@needs_page
def test_the_page(ocl_device, tmp_path):
    model, x = network(ocl_device), torch.ones(4, 8, device=ocl_device)
    it = explain(model, x, backward=True, runs=1)
    it.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert len(page) < 5e6
    for kernel in (k for graph in it.graphs for k in graph.kernels):
        assert f'id="{kernel.graph}-{kernel.position}"' in page
    assert page.count("<h4>Why not more</h4>") == sum(len(graph.kernels) for graph in it.graphs)
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!#|data:)', markup), "the page asks for nothing outside of itself"
    assert "default-src 'none'" in page


@needs_page
def test_a_model_with_names_that_are_markup(ocl_device, tmp_path):
    def function(x):
        return x + 1

    function.__name__ = "</title><script>alert(1)</script>"
    explain(function, torch.ones(3, device=ocl_device), runs=0).save(tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text()


def test_a_missing_package_is_one_line(ocl_device, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_ocl_compile.report.page", raising=False)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ToolError, match=r"needs vl_convert.\n  do: pip install torch-ocl-compile\[report\]$"):
        explanation.load_page()
