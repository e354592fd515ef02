# benchmarks/page.py: writes docs/performance.md, and the means in README.md and docs/comparison.md, from benchmarks/results/*.json.
"""python benchmarks/page.py            writes the page, and what other pages quote of it
python benchmarks/page.py --check    exits with 1 if they differ from what would be written (tests/device/test_docs.py)

A result file is what `--save` of `torch-ocl bench` and of the programs of this folder writes; `title`, `notes` and
`device`, a better name of the device, may be added by hand. A file without date, commit, device, driver, torch or the
settings of a side is refused. Older files have `old`, a sentence that says what is wrong with them: they are shown at the
end, and no mean contains them. `published` is the commit that published their numbers, and its date. `tables` holds numbers
that other programs measured: a title, the columns, the rows, and `mean_columns`, the columns whose geometric mean is added.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from page_tables import (
    KINDS,
    Comparison,
    Row,
    all_rows,
    comparison_tables,
    comparisons,
    hand_table,
    mean,
    notes,
    overlap_table,
    side_lines,
    table,
    title_of_side,
)

from torch_ocl_compile.bench.origin import missing
from torch_ocl_compile.bench.results import FORMAT, READABLE, expanded
from torch_ocl_compile.bench.sides import PRECISIONS, is_ours

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
# Pages that quote the means, and how they link to the page.
QUOTES = {ROOT / "README.md": "docs/performance.md", ROOT / "docs" / "comparison.md": "performance.md"}
BEGIN, END = "<!-- python benchmarks/page.py -->\n", "<!-- end -->\n"

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
NAMES = {
    "networks": "Networks",
    "operations": "Operations",
    "memory": "Peak memory",
    "startup": "Start",
    "layers": "Layers",
    "overlap": "Two streams",
    "collectives": "Collectives",
    "copies": "Copies between devices",
    "parallel": "Several GPUs",
    "fft": "Fourier transforms",
    "flex_attention": "FlexAttention",
    "sparse": "Sparse tensors",
    "decode": "Decoding",
}
KEYS = list(NAMES)


def read(path: Path) -> Row:
    content: Row = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") not in READABLE:
        raise SystemExit(
            f"{path}: format {content.get('format')!r}, expected {FORMAT}; write it with `torch-ocl bench models --save`"
        )
    content = expanded(content)
    lacking = [] if content.get("old") else missing(content)
    if lacking:
        raise SystemExit(f"{path} does not say: {', '.join(lacking)}\n  do: measure again with --save")
    return content


def devices_of(content: Row) -> list[Row]:
    """Returns the settings of the rows of ocl, one for each device and driver."""
    found = {}
    for row in all_rows(content):
        settings = row.get("settings") or {}
        if row["side"] == "ocl" and settings:
            found[settings["device"], settings["driver"]] = settings
    return list(found.values())


def device_name(content: Row) -> str:
    return content.get("device") or ", ".join(s["device"] for s in devices_of(content)) or "not recorded"


def title_of(content: Row) -> str:
    if content.get("title"):
        return str(content["title"])
    sections = [NAMES[key] for key in KEYS if content.get(key)]
    precisions = list(dict.fromkeys(PRECISIONS[row["precision"]] for row in all_rows(content) if "precision" in row))
    return ", ".join([f"{' and '.join(sections)}: {device_name(content)}", *precisions])


def origin_lines(content: Row) -> list[str]:
    """Returns a table of date, commit, device, driver and versions, and the command."""
    if content.get("old"):
        published = content.get("published") or {}
        when = content.get("when") or f"published {published.get('date', 'nowhere')}"
        commit = content.get("commit") or f"not recorded; published in {published.get('commit', 'no commit')}"
        cells: list[list[object]] = [[when, commit, device_name(content), content.get("torch") or "not recorded"]]
        lines = [f"**Old:** {content['old']}", "", *table(["date", "commit", "device", "torch"], cells)]
    else:
        rows: list[list[object]] = [[content["when"], content["commit"], s["device"], s["driver"], s["opencl"], content["torch"]]
                                    for s in devices_of(content)]  # fmt: skip
        lines = table(["date", "commit", "device", "driver", "OpenCL", "torch"], rows)
        others = {}
        for row in all_rows(content):
            s = row["settings"]
            versions = ", ".join(
                f"{name} {s[key]}" for name, key in (("CUDA", "cuda"), ("cuDNN", "cudnn")) if s.get(key)
            )
            others[f"{s['device']}, {s['driver']}" + (f", {versions}" if versions else "")] = row["side"]
        lines += [f"The other sides ran on {text}." for text, side in others.items() if not side.startswith("ocl")]
        lines += [""]
    settings = content["settings"]
    if settings.get("rounds") and settings.get("calls"):
        lines += [f"{settings['rounds']} rounds of {settings['calls']} calls.", ""]
    if content.get("command"):
        lines += ["```sh", content["command"], "```", ""]
    return lines


def network_means(content: Row) -> list[list[object]]:
    """Returns a row of the summary for each precision of whole networks: device, precision, other sides, number of networks,
    and the geometric means of inference and training."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    kind = next(kind for kind in KINDS if kind.section == "networks")
    for members in comparisons(content, kind).values():
        row = next(iter(members[0].sides.values()))
        if row["protocol"] == "resident":
            groups[row["precision"], row["mode"]] = [member for member in members if member.ratio is not None]
    lines = []
    for precision in dict.fromkeys(precision for precision, _ in groups):
        found = [groups.get((precision, mode), []) for mode in ("inference", "training")]
        sides = {side for members in found for member in members for side in member.sides if not is_ours(side)}
        against = " and ".join(title_of_side(side) for side in sorted(sides))
        cells: list[object] = [device_name(content), PRECISIONS[precision], against, max(map(len, found))]
        lines.append([*cells, *(mean(member.ratio for member in members) for members in found)])
    return lines


def summary(files: list[Row]) -> list[str]:
    rows = [row for content in files for row in network_means(content)]
    lines = ["## Summary", ""]
    if not rows:
        return [*lines, "No run of whole networks with the present code is published.", ""]
    lines += ["Geometric means over networks of the ratio to the fastest other side, one row for each run:", ""]
    return lines + table(["device", "precision", "other sides", "networks", "inference", "training"], rows)


def slower(files: list[Row]) -> list[str]:
    """Returns a table of the cases in which another side is better, the worst first."""
    found = []
    for content in files:
        for kind in KINDS:
            for title, members in comparisons(content, kind).items():
                for member in members:
                    if member.ratio is not None and round(member.ratio, 2) < 1 and kind.section != "layers":
                        word = "times the rate" if kind.more_is_better else f"times the {kind.unit}"
                        factor = member.ratio if kind.more_is_better else 1 / member.ratio
                        found.append((member.ratio, [device_name(content), title, member.case, title_of_side(member.best),
                                                     f"{factor:.2f} {word}"]))  # fmt: skip
    rows: list[list[object]] = [list(row) for _, row in sorted(found, key=lambda item: item[0])]
    lines = ["## Where ocl is slower, or needs more", ""]
    if not rows:
        return [*lines, "In no case of the runs above that are not old.", ""] if files else []
    return [*lines, "All cases in which another side is better, the worst first:", "",
            *table(["device", "table", "case", "best other side", "ocl has"], rows)]  # fmt: skip


def page(files: list[Row]) -> str:
    current = [content for content in files if not content.get("old")]
    lines = [HEAD, *summary(current), *slower(current)]
    for content in [*current, *(content for content in files if content.get("old"))]:
        lines += [f"## {title_of(content)}", "", *origin_lines(content), *notes(content)]
        lines += comparison_tables(content) + overlap_table(content) + side_lines(content)
        for given in content.get("tables", []):
            lines += hand_table(given)
    return "\n".join(lines).rstrip("\n") + "\n"


def headline(files: list[Row], link: str) -> str:
    """Returns what README.md and docs/comparison.md say: the means of runs against both eager PyTorch and Inductor."""
    rows = [row for content in files if not content.get("old") for row in network_means(content)]
    chosen = [
        [row[0], row[1], row[3], *row[4:]]
        for row in rows
        if row[2] == "Inductor and eager" or row[2] == "eager and Inductor"
    ]
    if not chosen:
        return f"[Performance]({link}) has measured times beside those of eager PyTorch and Inductor.\n"
    lines = [
        "Time of the faster of eager PyTorch and Inductor, divided by the time of this backend. Above 1, this backend is faster;",
        f"below 1, slower. Geometric means over whole networks; [performance]({link}) has every number with its conditions.",
        "",
        *table(["device", "precision", "networks", "inference", "training"], chosen),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def with_headline(text: str, made: str) -> str:
    """Returns a page with its headline replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"a page needs the lines {BEGIN!r} and {END!r}"
    return before + begin + made + end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    files = [read(path) for path in sorted(RESULTS.glob("*.json"))]
    # Files with whole networks come first.
    files.sort(key=lambda content: not content["networks"])
    made = {PAGE: page(files)}
    for path, link in QUOTES.items():
        made[path] = with_headline(path.read_text(encoding="utf-8"), headline(files, link))
    for path, text in made.items():
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date: python benchmarks/page.py")


if __name__ == "__main__":
    main()
