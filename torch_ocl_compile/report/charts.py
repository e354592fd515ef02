# torch_ocl_compile/report/charts.py: makes the report's charts as Vega-Lite specifications.
"""Colours and fonts are not set here: the page's script takes them from the page's style."""

from __future__ import annotations

import math
from typing import Any

from torch_ocl_compile.report.findings import Findings, Graph
from torch_ocl_compile.report.kernels import Kernel

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # A name, which nothing loads.


_UNITS = [(10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B")]


def memory_chart(graph: Graph) -> dict[str, Any]:
    """Draws the bytes in use over the launches of a graph: memory that lives through all launches, and the intermediate
    results.
    """
    memory = graph.memory
    factor, unit = next((f, u) for f, u in _UNITS if memory.peak >= f or f == 1)
    constant = [
        ("parameters", memory.parameters + memory.kept),
        ("arguments", memory.arguments),
        ("results", memory.results),
    ]
    rows = []
    for launch in range(len(memory.live) + 1):  # A step chart needs an end.
        live = memory.live[min(launch, len(memory.live) - 1)]
        for order, (what, size) in enumerate([*constant, ("intermediate", live)]):
            if size or what == "intermediate":
                rows.append({"launch": launch, "what": what, "size": round(size / factor, 3), "order": order})
    names = [what for what, _ in constant] + ["intermediate"]
    return {
        "$schema": _SCHEMA,
        "width": "container",
        "height": 190,
        "data": {"values": rows},
        "mark": {"type": "area", "interpolate": "step-after", "line": False},
        "encoding": {
            "x": {"field": "launch", "type": "quantitative", "title": "launch", "scale": {"nice": False},
                  "axis": {"tickMinStep": 1, "grid": False}},
            "y": {"field": "size", "type": "quantitative", "stack": "zero", "title": unit, "axis": {"tickCount": 5}},
            "color": {"field": "what", "type": "nominal", "sort": names, "scale": {"domain": names}, "legend": {"title": None}},
            "order": {"field": "order"},
            "tooltip": [{"field": "what", "title": "memory"}, {"field": "launch"}, {"field": "size", "title": unit, "format": ",.3~f"}],
        },
    }  # fmt: skip


def roofline_chart(it: Findings) -> dict[str, Any]:
    """Draws each measured kernel, as operations per second over operations per byte, below the limits of the device."""
    assert it.roofline is not None
    points = [_point(k) for graph in it.graphs for k in graph.kernels if k.time_us and k.bytes and k.flops]
    least = min((p["intensity"] for p in points), default=0.1) / 2
    most = max([p["intensity"] for p in points] + [1.0]) * 2
    limits = []
    for precision, peak in it.roofline.flops.items():
        ridge = peak / it.roofline.bandwidth
        for x in sorted({least, ridge, max(most, 2 * ridge)}):
            limits.append(
                {"intensity": x, "rate": min(peak, x * it.roofline.bandwidth) / 1e9, "limit": f"limit in {precision}"}
            )
    most = max(limit["intensity"] for limit in limits)
    rates = [p["rate"] for p in points] + [limit["rate"] for limit in limits]
    axes = {
        "x": {"field": "intensity", "type": "quantitative", "scale": {"type": "log", "nice": False},
              "title": "operations per byte", "axis": _log_axis(least, most)},
        "y": {"field": "rate", "type": "quantitative", "scale": {"type": "log"}, "title": "GFLOP/s",
              "axis": _log_axis(min(rates), max(rates))},
    }  # fmt: skip
    tooltip = [
        {"field": "kernel"},
        {"field": "computes"},
        {"field": "us", "title": "time, us", "format": ",.1f"},
        {"field": "rate", "title": "GFLOP/s", "format": ",.1f"},
        {"field": "intensity", "title": "operations per byte", "format": ",.3~g"},
    ]
    return {
        "$schema": _SCHEMA,
        "width": "container",
        "height": 300,
        "layer": [
            {
                "data": {"values": limits},
                "mark": {"type": "line", "strokeWidth": 1.5},
                "encoding": {**axes, "strokeDash": {"field": "limit", "legend": {"title": None, "orient": "top"}}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "opacity": 0.75},
                "encoding": {
                    **axes,
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "legend": {"title": None, "orient": "top", "columns": 4},
                    },
                    "size": {"field": "us", "type": "quantitative", "scale": {"range": [25, 500]}, "legend": None},
                    "tooltip": tooltip,
                },
            },
        ],
    }


def _log_axis(least: float, most: float) -> dict[str, Any]:
    """Makes a logarithmic axis with lines at powers of ten."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    return {"values": [10.0**power for power in powers], "format": "~g"}


def _point(k: Kernel) -> dict[str, Any]:
    assert k.time_us and k.bytes and k.flops is not None
    return {"intensity": k.flops / k.bytes, "rate": k.flops / k.time_us / 1e3, "us": round(k.time_us, 2), "kind": k.kind,
            "kernel": f"{k.graph} #{k.position}", "computes": ", ".join(k.ops[:4])}  # fmt: skip
