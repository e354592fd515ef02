# benchmarks/page.py: writes docs/performance.md from benchmarks/results/*.json.
"""python benchmarks/page.py            writes the page
python benchmarks/page.py --check    exits with 1 if the page differs from what would be written (tests/device/test_docs.py)

A result file is what `torch-ocl bench models --save` writes; `title` and `notes` may be added by hand. `tables`
holds numbers that other programs measured: a title, the columns, the rows, and `mean_columns`, the columns whose
geometric mean is added. `published` is there if the measured commit was not recorded: it is the commit that
published the numbers, and its date.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from torch_ocl_compile.bench.results import sides_of, way_of
from torch_ocl_compile.bench.sides import SIDES, is_ours

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
FORMAT = 1
PRECISIONS = {"highest": "fp32", "high": "TF32", "bf16": "bf16", "fp16": "fp16"}

HEAD = """\
# Performance

<!-- Written by `python benchmarks/page.py` from benchmarks/results/*.json. Change those, not this page. -->
<!-- no-run all: the commands take minutes on the device of their section -->

This page lists measured times of the backend `ocl` beside those of PyTorch. Other pages:

- [Measuring](measuring.md): how the numbers are made, and how to add yours.
- [Fast training](fast_training.md): how to make a training loop fast.
- [Tuning](tuning.md): how to measure which kernel is best for a device.

Words of the tables:

- **eager** is PyTorch without `torch.compile`. **Inductor** is `torch.compile` with PyTorch's default backend.
  Both run on CUDA where the device is an NVIDIA GPU, and on the CPU elsewhere.
- Times are milliseconds: the median of the rounds. A training step is forward, cross entropy, backward and a step of Adam.
- **ratio** is the time of the fastest other side over the time of ocl. Above 1, ocl is faster.
"""


def read(path: Path) -> dict:
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise SystemExit(
            f"{path}: format {content.get('format')!r}, expected {FORMAT}; write it with `torch-ocl bench models --save`"
        )
    return content


def number(value: object) -> str:
    """Formats a number with about three digits; a dash for a value that was not measured."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 or value == round(value, 2) else f"{value:.3g}"


def table(columns: list[str], rows: list[list[object]]) -> list[str]:
    numeric = [all(not isinstance(row[i], str) or not row[i] for row in rows) for i in range(len(columns))]
    rule = "|" + "".join("--:|" if n else "---|" for n in numeric)
    return [
        "| " + " | ".join(columns) + " |",
        rule,
        *("| " + " | ".join(number(c) for c in row) + " |" for row in rows),
        "",
    ]


def cases(networks: list[dict]) -> dict[tuple, dict[str, dict]]:
    """Returns (protocol, precision, mode, model, batch) -> side -> row of the results."""
    found: dict[tuple, dict[str, dict]] = {}
    for row in networks:
        key = tuple(row[k] for k in ("protocol", "precision", "mode", "model", "batch"))
        found.setdefault(key, {})[row["side"]] = row
    return found


def ratio(sides: dict[str, dict]) -> float | None:
    """Returns the time of the fastest other side divided by the time of ocl."""
    others = [row["ms"] for side, row in sides.items() if not is_ours(side)]
    return min(others) / sides["ocl"]["ms"] if others and "ocl" in sides else None


def mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(statistics.geometric_mean(known), 2) if known else None


def network_tables(networks: list[dict]) -> list[str]:
    """Returns one table for each protocol, precision and mode."""
    groups: dict[tuple, dict[tuple, dict[str, dict]]] = {}
    for key, sides in cases(networks).items():
        groups.setdefault(key[:3], {})[key[3:]] = sides
    lines = []
    for (protocol, precision, mode), members in groups.items():
        names = [s for s in SIDES if any(s in sides for sides in members.values())]
        spread = any(row.get("spread") is not None for sides in members.values() for row in sides.values())
        copied = ", each step copies its batch from the host" if protocol == "from-host" else ""
        lines += [f"**{mode.capitalize()}, {PRECISIONS[precision]}{copied}**", ""]
        rows: list[list[object]] = []
        for (model, batch), sides in members.items():
            found = ratio(sides)
            row: list[object] = [
                model,
                "not recorded" if batch is None else batch,
                *(sides.get(s, {}).get("ms") for s in names),
            ]
            row.append(found and round(found, 2))
            if spread:
                widest = max((r["spread"] for r in sides.values() if r.get("spread") is not None), default=None)
                row.append(None if widest is None else f"{widest:.0%}")
            rows.append(row)
        blank: list[object] = ["" for _ in names]
        ratios = [ratio(sides) for sides in members.values()]
        rows.append(["geometric mean", "", *blank, mean(ratios), *([""] if spread else [])])
        columns = [
            "network",
            "batch",
            *(f"{SIDES[s].title}, ms" for s in names),
            "ratio",
            *(["largest spread"] if spread else []),
        ]
        lines += table(columns, rows)
    return lines


def operation_table(operations: list[dict]) -> list[str]:
    """Returns the table of single operations, which `torch-ocl bench ops` measures."""
    if not operations:
        return []
    rows = [[r["group"], r["case"], r["side"], r["ms"], r["ratio"], r["tflops"], r["gbytes"]] for r in operations]
    return [
        "**Single operations**",
        "",
        *table(["group", "case", "side", "ms", "ratio to the first side", "TFLOP/s", "GB/s"], rows),
    ]


def hand_table(content: dict) -> list[str]:
    lines = [f"**{content['title']}**", ""]
    rows = [list(row) for row in content["rows"]]
    if content.get("mean_columns"):
        means = [mean([row[i] for row in rows]) if i in content["mean_columns"] else "" for i in range(len(rows[0]))]
        rows.append(["geometric mean", *means[1:]])
    lines += table(content["columns"], rows)
    return lines + notes(content)


def notes(content: dict) -> list[str]:
    given = content.get("notes") or []
    return [*(f"- {note}" for note in given), ""] if given else []


def device_of(content: dict) -> str:
    found = sorted({r["device"] for r in content["networks"] if r["side"] == "ocl"})
    return content.get("device") or ", ".join(found) or "not recorded"


def origin(content: dict) -> list[str]:
    """Returns a table of one row: date, device and commit of the measurement."""
    published = content.get("published")
    when = content.get("when") or f"published {published['date']}"
    commit = (
        f"`{content['commit']}`" if content.get("commit") else f"not recorded; published in `{published['commit']}`"
    )
    lines = ["| date | device | torch | commit |", "|---|---|---|---|"]
    lines += [f"| {when} | {device_of(content)} | {content.get('torch') or 'not recorded'} | {commit} |", ""]
    rounds = content["settings"].get("rounds")
    if rounds:
        lines += [f"{rounds} rounds of {content['settings']['calls']} calls.", ""]
    if content.get("command"):
        lines += ["```sh", content["command"], "```", ""]
    return lines


def summary(files: list[dict]) -> list[str]:
    """Returns the geometric means of the ratio, one row for each file, precision and protocol."""
    rows: list[list[object]] = []
    for content in files:
        groups: dict[tuple, dict[str, list[float]]] = {}
        others: dict[tuple, set[str]] = {}
        for (protocol, precision, mode, _, _), sides in cases(content["networks"]).items():
            found = ratio(sides)
            if found is not None:
                groups.setdefault((protocol, precision), {}).setdefault(mode, []).append(found)
                others.setdefault((protocol, precision), set()).update(s for s in sides if not is_ours(s))
        for key, modes in groups.items():
            found_modes = [modes.get(mode, []) for mode in ("inference", "training")]
            against = " and ".join(kind.title for side, kind in SIDES.items() if side in others[key])
            rows.append([device_of(content), PRECISIONS[key[1]], against, max(map(len, found_modes)),
                         *(mean(list(f)) for f in found_modes)])  # fmt: skip
    lines = [
        "## Summary",
        "",
        "Geometric means over networks of the ratio to the fastest other side, one row for each run:",
        "",
    ]
    return lines + table(["device", "precision", "other sides", "networks", "inference", "training"], rows)


def side_lines(content: dict) -> list[str]:
    """Returns a list of the settings of each side. Empty if the file does not record them."""
    found = sides_of(content["networks"])
    if not found:
        return []
    lines = [f"- {SIDES[s['side']].title}, {' and '.join(s['modes'])}: `{s['settings']}`" for s in found]
    ways: dict[tuple[str, str, str], list[str]] = {}
    for row in content["networks"]:
        if not is_ours(row["side"]):
            ways.setdefault((row["side"], row["mode"], way_of(row)), []).append(row["model"])
    for (side, mode, way), models in ways.items():
        lines.append(f"- {SIDES[side].title}, {mode}, was fastest with {way}: {', '.join(dict.fromkeys(models))}")
    return ["**Settings of the sides**", "", *lines, ""]


def page(files: list[dict]) -> str:
    lines = [HEAD, *summary(files)]
    for content in files:
        lines += [f"## {content.get('title') or device_of(content)}", "", *origin(content), *notes(content)]
        lines += network_tables(content["networks"]) + side_lines(content) + operation_table(content["operations"])
        for given in content.get("tables", []):
            lines += hand_table(given)
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    files = [read(path) for path in sorted(RESULTS.glob("*.json"))]
    # Files with whole networks come first.
    text = page(sorted(files, key=lambda content: not content["networks"]))
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is out of date: python benchmarks/page.py")


if __name__ == "__main__":
    main()
