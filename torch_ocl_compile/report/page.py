# torch_ocl_compile/report/page.py: writes an explanation as one HTML file, with its style, scripts, charts and sources
# inside.
"""page.html.j2 is the page, page.css its style. page.js searches, sorts and opens parts of the page. The generated
sources are highlighted here and packed; a browser unpacks them when the first source is opened.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import torch
import vl_convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CLexer

from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.report import charts
from torch_ocl_compile.report.findings import Findings
from torch_ocl_compile.report.kernels import Kernel, short

_MOST_CHARTS = 12  # this many graphs, those with the highest peaks, have a chart of their memory
_MOST_TENSORS = 12  # a kernel's row names this many tensors
_LIGHT, _DARK = "friendly", "github-dark"  # Styles of Pygments.


def render(it: Findings) -> str:
    """Returns the page's text."""
    files = resources.files("torch_ocl_compile.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (files / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"quantity": quantity, "duration": duration, "percent": percent, "short": short}
    sources = Sources()
    kernels = [_row(it, k, sources) for graph in it.graphs for k in graph.kernels]
    with_charts = sorted(it.graphs, key=lambda g: -g.memory.peak)[:_MOST_CHARTS]
    specs = {f"memory-{g.label}": charts.memory_chart(g) for g in it.graphs if g in with_charts}
    if it.roofline:
        specs["roofline"] = charts.roofline_chart(it)
    return environment.get_template("page.html.j2").render(
        it=it,
        kernels=kernels,
        summary=_summary(it, kernels),
        kinds=_by_kind(it, kernels),
        outside=_outside(it),
        specs=_inside_script(json.dumps(specs)),
        sources=sources.packed(),
        device=_device(it),
        torch_version=torch.__version__,
        style=(files / "page.css").read_text("utf-8"),
        code_styles={"light": _code_style(_LIGHT), "dark": _code_style(_DARK)},
        script=(files / "page.js").read_text("utf-8"),
        vega=_inside_script(_vega()),
    )


@cache
def _vega() -> str:
    # The annotations of this function require a snippet, but it is optional.
    bundle: Callable[..., str] = vl_convert.javascript_bundle
    return bundle()


def _inside_script(text: str) -> str:
    """Escapes a text so that nothing in a string of a script looks like the script's end."""
    return re.sub(r"<(?=/script|!--)", r"\\u003c", text, flags=re.IGNORECASE)


def _code_style(style: str) -> str:
    return str(HtmlFormatter(style=style).get_style_defs(".code"))


class Sources:
    """Highlighted texts, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def packed(self) -> str:
        """Returns the texts as base64 of the zlib stream of a JSON list."""
        lexer, formatter = CLexer(), HtmlFormatter(nowrap=True)
        listed = [highlight(text, lexer, formatter) for text in self.numbers]
        return base64.b64encode(zlib.compress(json.dumps(listed).encode(), 9)).decode()


def _row(it: Findings, k: Kernel, sources: Sources) -> dict[str, Any]:
    """Returns a kernel with the numbers that the page shows for it."""
    row: dict[str, Any] = {
        "k": k,
        "source": sources.number(k.text),
        "roof": None,
        "bound": "",
        "bandwidth": None,
        "rate": None,
    }
    row["search"] = " ".join(
        [k.graph, f"#{k.position}", k.name, k.kind, k.variant, *k.ops, *k.lines, *k.reads, *k.writes]
    ).lower()
    row["apart"] = _apart(k)
    row["reads"], row["writes"] = _counted(k.reads), _counted(k.writes)
    if it.roofline and k.time_us and k.bytes is not None and k.flops is not None:
        row["roof"] = it.roofline.least_us(k.bytes, k.flops, k.precision) / k.time_us
        row["bound"] = it.roofline.limited_by(k.bytes, k.flops, k.precision)
        row["bandwidth"] = k.bytes / k.time_us * 1e6
        row["rate"] = k.flops / k.time_us * 1e6
    return row


def _apart(k: Kernel) -> list[tuple[str, list[tuple[str, list[dict[str, Any]]]]]]:
    """Returns each reason with the neighbours for which it holds, by relation, and with the tensors that both touch."""
    reasons: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for other in k.apart:
        neighbours = reasons.setdefault(other.reason, {}).setdefault(other.relation, {})
        neighbour = neighbours.setdefault(
            other.group, {"group": other.group, "op": short(other.op), "tensors": [], "bytes": 0}
        )
        neighbour["tensors"].append(other.tensor)
        neighbour["bytes"] += other.bytes or 0
    return [
        (reason, [(relation, list(found.values())) for relation, found in relations.items()])
        for reason, relations in reasons.items()
    ]


def _counted(tensors: list[str]) -> list[str]:
    """Lists each tensor once, with its number, in the order of first occurrence. If there are too many, the last entry
    gives the number of the others.
    """
    counts = Counter(tensors)
    listed = [tensor if count == 1 else f"{count} of {tensor}" for tensor, count in counts.items()]
    return listed if len(listed) <= _MOST_TENSORS else [*listed[:_MOST_TENSORS], f"{len(listed) - _MOST_TENSORS} more"]


def _summary(it: Findings, kernels: list[dict[str, Any]]) -> dict[str, Any]:
    time = sum(g.time_us or 0 for g in it.graphs)
    roofs = [(row["roof"], row["k"].time_us) for row in kernels if row["roof"] is not None]
    return {
        "launches": len(kernels),
        "time_us": time if any(g.time_us for g in it.graphs) else None,
        "roof": sum(min(roof, 1.0) * us for roof, us in roofs) / sum(us for _, us in roofs) if roofs else None,
        "aten": sum(g.aten_nodes for g in it.graphs),
        "compile": sum(it.phases.values()),
        "eager": sum(it.eager_in_graphs.values()) + sum(it.eager_outside.values()),
        "peak": max((g.memory.peak for g in it.graphs), default=0),
    }


def _by_kind(it: Findings, kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the time by kind of kernel, the longest first."""
    times: dict[str, float] = {}
    least: dict[str, float] = {}
    launches = Counter(row["k"].kind for row in kernels)
    for row in kernels:
        kind, time = row["k"].kind, row["k"].time_us or 0.0
        times[kind] = times.get(kind, 0.0) + time
        least[kind] = least.get(kind, 0.0) + min(row["roof"] or 0.0, 1.0) * time
    whole = sum(times.values())
    return [
        {"kind": kind, "launches": launches[kind], "time_us": time, "share": time / whole, "roof": least[kind] / time}
        for kind, time in sorted(times.items(), key=lambda item: -item[1])
        if time
    ]


def _outside(it: Findings) -> list[dict[str, Any]]:
    """Returns launches of eager ops and copies, by what they compute; the longest first."""
    groups: dict[str, list[float]] = {}
    for launch in it.outside:
        groups.setdefault(launch.origin or launch.kernel, []).append(launch.time_us)
    rows = [{"computes": name, "calls": len(times), "time_us": sum(times)} for name, times in groups.items()]
    return sorted(rows, key=lambda row: -float(str(row["time_us"])))


def _device(it: Findings) -> str:
    index = it.graphs[0].device if it.graphs else torch_ocl.current_device()
    return f"ocl:{index}, {torch_ocl.get_device_name(index)}"


_PREFIXES = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]


def quantity(value: float | None, unit: str) -> str:
    """Returns a number with three digits and a unit, such as "12.3 MB". A dash if it is unknown."""
    if value is None:
        return "-"
    for factor, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * factor:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def duration(microseconds: float | None) -> str:
    if microseconds is None:
        return "-"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= 0.9995 * factor:
            return f"{_digits(microseconds / factor)} {unit}"
    return f"{_digits(microseconds)} µs"


def percent(share: float) -> str:
    """Returns a share in percent; below ten percent with one digit after the point."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _digits(value: float) -> str:
    if value == int(value) and value < 1000:
        return str(int(value))
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:,.0f}"
