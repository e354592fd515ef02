# tests/conformance/table.py: writes docs/conformance.md, and what README.md and docs/limits.md say, from the kept results.
"""All numbers are counted from the results (kept.py). The reasons are those of expected.csv, or else the observed errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance import kept
from tests.worker_process import ROOT

PAGE = ROOT / "docs" / "conformance.md"
# Pages with the counts of one runtime, and the text that follows them.
QUOTES = {
    ROOT / "README.md": ("- ", "\n  [Supported operators and models](docs/supported.md)."),
    ROOT / "docs" / "limits.md": (
        "PyTorch's own operator tests say how complete the backend is.\n",
        "\n[Conformance](conformance.md) lists the entries that fail or use the CPU.",
    ),
}
# Parts of the names of the runtimes that are quoted -> what they are called. The latest result is quoted, one with all samples
# before others.
QUOTED = {"Intel(R) OpenCL": "Intel's runtime", "Portable Computing Language": "PoCL"}
BEGIN, END = "<!-- python -m tests.conformance table -->\n", "<!-- end -->\n"
HEAD = """\
# Conformance

<!-- Written by `python -m tests.conformance table` from tests/conformance/results. -->

PyTorch describes its operators in `op_db` and its modules in `module_db`. Each entry has sample inputs, some have hundreds. A run
takes up to 4 of them forward and, where PyTorch has a derivative, up to 3 backward, spread over the first 64; with
`--all-samples` it takes all. The tables say how many samples ran, of how many that PyTorch has. A sample runs compiled with
`backend="ocl"`, and the result is compared with PyTorch on the CPU (`tests/conformance`, `tests/device/ops/test_opinfo.py`).
`make conformance` makes the results and writes this page.

- *passes*: every sample that ran gives PyTorch's dtype, shape and values. Values are compared by `assert_close` with its defaults. A
  value outside of these may have at most twice PyTorch's own error against fp64. Random results are compared in dtype and shape.
- *on the device*: the entry passes, and no op of it ran on the CPU.
- An entry is not counted if PyTorch's own samples fail on the CPU.
"""


def pages() -> dict[Path, str]:
    """Returns the text of each page that has counts of the kept results."""
    results = kept.read()
    made = {PAGE: page(results)}
    quoted = max((r for r in results if runtime(r)), key=lambda r: (bool(r["all_samples"]), r["when"]))
    for path, (before, after) in QUOTES.items():
        said = sentence(quoted) if before == "- " else sentence(quoted).replace("\n  ", "\n")
        made[path] = replaced(path.read_text(encoding="utf-8"), f"{before}{said}{after}\n", path.name)
    return made


def write() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def replaced(text: str, made: str, name: str) -> str:
    """Returns a page with another text between the two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{name} needs the lines {BEGIN!r} and {END!r}"
    return before + begin + made + end + after


def runtime(result: dict[str, Any]) -> str:
    return next((name for part, name in QUOTED.items() if part in result["runtime"]), "")


def sentence(result: dict[str, Any]) -> str:
    row = next(r for r in result["counts"] if (r["kind"], r["dtype"]) == ("op", "float32"))
    both, device = (f"{100 * row[key] / row['number']:.1f} %" for key in ("both", "device"))
    version = ".".join(result["torch"].split(".")[:2])
    ran, of = (counted(row["samples"][direction]) for direction in ("forward", "backward"))
    return (
        f"Of the {row['number']} entries of PyTorch's `op_db` in fp32, {both} pass forward and backward, and\n  {device} run entirely "
        f"on the device (torch {version}, {runtime(result)}, {result['when'][:10]}).\n"
        f"  The run took {ran} samples forward and {of} backward."
    )


def counted(samples: list[int | None]) -> str:
    ran, made = samples
    return f"{ran:,}" if made is None else f"{ran:,} of {made:,}"


def page(results: list[dict[str, Any]]) -> str:
    lines = [HEAD]
    for result in results:
        lines += [f"## {result['runtime']}, torch {result['torch']}", "", *origin(result)]
        which = (
            "All samples of each entry ran."
            if result["all_samples"]
            else "Up to 4 samples of each entry ran forward, up to 3 backward."
        )
        lines += [which, ""]
        lines += [*summary(result), *details(result)]
    return "\n".join(lines).rstrip() + "\n"


def origin(result: dict[str, Any]) -> list[str]:
    cells = [result[name] for name in ("when", "commit", "torch", "driver", "opencl")]
    by_hand = [f"**By hand:** {result['by_hand']}", ""] if result.get("by_hand") else []
    return [
        *by_hand,
        "| date | commit | torch | driver | OpenCL |",
        "|---|---|---|---|---|",
        f"| {' | '.join(cells)} |",
        "",
    ]


def summary(result: dict[str, Any]) -> list[str]:
    lines = [
        "| entries | dtype | number | pass forward | pass backward | pass both | on the device | samples forward | samples backward |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]

    def share(count: int, total: int) -> str:
        return f"{count} ({100 * count / total:.1f} %)" if total else "-"

    for row in result["counts"]:
        shares = [
            share(*row["forward"]),
            share(*row["backward"]),
            *(share(row[key], row["number"]) for key in ("both", "device")),
        ]
        shares += [counted(row["samples"][direction]) for direction in ("forward", "backward")]
        lines.append(f"| {row['kind']}_db | {row['dtype']} | {row['number']} | {' | '.join(shares)} |")
    return [*lines, ""]


def details(result: dict[str, Any]) -> list[str]:
    failing = [f"| {entry} | {places} | {why.replace('|', '/')} |" for entry, places, why in result["failing"]]
    return [
        "### Not passing",
        "",
        *(["| entry | where | why |", "|---|---|---|", *failing] if failing else ["Nothing."]),
        "",
        "### Passing, with ops that run on the CPU",
        "",
        "| entry | dtype | what runs on the CPU |",
        "|---|---|---|",
        *(f"| {entry} | {dtype} | {', '.join(ops)} |" for entry, dtype, ops in result["on_cpu"]),
        "",
    ]
