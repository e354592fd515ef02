# benchmarks/harness/plot.py: draws the results of networks as a bar chart.
from __future__ import annotations

from pathlib import Path
from typing import Any

from torch_ocl_compile.errors import ToolError


def plot(files: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draws the speed relative to the first side. Each file, protocol, precision and mode has a panel of its own, so no
    panel mixes runs. `files`: title of the file -> its rows. Error bars show the spread."""
    try:
        import matplotlib
    except ImportError as error:
        raise ToolError("a plot needs matplotlib.\n  do: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for title, rows in files.items():
        for row in rows:
            panels.setdefault((title, row["protocol"], row["precision"], row["mode"]), []).append(row)
    widest = max(len({(r["model"], r["batch"]) for r in members}) for members in panels.values())
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(4 + 1.2 * widest, 3 * len(panels)), squeeze=False, layout="constrained"
    )
    for axis, (key, members) in zip(axes[:, 0], panels.items(), strict=True):
        cases = list(dict.fromkeys((r["model"], r["batch"]) for r in members))
        sides = list(dict.fromkeys(r["side"] for r in members))
        width = 0.8 / len(sides)
        for i, side in enumerate(sides):
            own = [r for r in members if r["side"] == side]
            places = [cases.index((r["model"], r["batch"])) + (i - (len(sides) - 1) / 2) * width for r in own]
            heights = [r["ratio"] for r in own]
            axis.bar(places, heights, width, label=side, yerr=[r["ratio"] * r["spread"] / 2 for r in own])
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(cases)), [f"{model}\nbatch {batch}" for model, batch in cases])
        axis.set_ylabel(f"speed relative to {sides[0]}")
        axis.set_title(", ".join(reversed(key)))
        axis.legend()
    figure.savefig(path, dpi=120)
