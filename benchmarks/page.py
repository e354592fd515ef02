# benchmarks/page.py: writes docs/performance.md and the means in README.md from benchmarks/results/*.json; the site has more pages.
"""python -m benchmarks.page            writes the page, and what other pages quote of it
python -m benchmarks.page --check    exits with 1 if they differ from what would be written (tests/no_device/measuring/test_figures.py)

`make docs` builds the pages behind docs/performance.md: mkdocs.yml names this file as a hook. They are not stored.
A result file is what `--save` of `python -m benchmarks` and of the programs of this folder writes; `title`, `notes` and
`device`, a better name of the device, may be added by hand. A file without date, commit, device, driver, torch or the
settings of a side is refused. Where something else was typed or changed by hand, `by_hand` says what; the pages show it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness.origin import missing
from benchmarks.harness.results import FORMAT, expanded
from benchmarks.harness.sides import PRECISIONS, is_ours
from benchmarks.page_tables import (
    KINDS,
    Comparison,
    Row,
    all_rows,
    comparison_tables,
    comparisons,
    mean,
    notes,
    number,
    overlap_table,
    side_lines,
    table,
    title_of_side,
)

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
# Pages that quote the means, and how they link to the page.
QUOTES = {ROOT / "README.md": "docs/performance.md", ROOT / "docs" / "comparison.md": "performance.md"}
BEGIN, END = "<!-- python -m benchmarks.page -->\n", "<!-- end -->\n"
WRITTEN = """\
<!-- Written by `python -m benchmarks.page` from benchmarks/results/*.json. Change those, not this page. -->
"""

HEAD = f"""\
# Performance

{WRITTEN}
This page lists measured times of whole networks with the backend `ocl`, beside those of PyTorch. Every run has its command,
its settings and its spread on the pages behind it. `make docs` builds them into the site, from `benchmarks/results`:

- [Networks, run by run](performance/networks.md), [single operations](performance/operations.md), [start](performance/start.md),
  [several devices](performance/devices.md).
- [Where ocl is slower](performance/slower.md): every case in which another side is better.
- [Measuring](measuring.md): how the numbers are made, and how to add yours. [Fast training](fast_training.md) and
  [tuning](tuning.md): what to do about them.

Words of the tables:

- **eager** is PyTorch without `torch.compile`. **Inductor** is `torch.compile` with PyTorch's default backend.
  Both run on CUDA where the device is an NVIDIA GPU, and on the CPU elsewhere.
- Times are milliseconds: the median of the rounds. A training step of a network is forward, cross entropy, backward and a step of
  Adam; with several ranks, of SGD.
- **ratio** is the time of the fastest other side over the time of ocl. Above 1, ocl is faster.
- A commit ends in `-dirty` if files of the checkout were changed. **By hand** says what of a result file no program wrote.
"""
# The pages of the folder: their titles, and the sections of result files that they show.
PARTS = {
    "networks": ("Networks, run by run", ("networks", "memory", "layers")),
    "operations": (
        "Single operations",
        ("operations", "fft", "flex_attention", "sparse", "order", "eager", "decode", "generate"),
    ),
    "start": ("Start", ("startup",)),
    "devices": ("Several devices and streams", ("parallel", "collectives", "copies", "overlap")),
}
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
    "order": "Sorts and searches",
    "eager": "Eager ops",
    "decode": "Decoding",
    "generate": "Text generation",
}
NETWORKS = next(kind for kind in KINDS if kind.section == "networks")
MODES = ("inference", "training")


def read(path: Path) -> Row:
    content: Row = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise SystemExit(
            f"{path}: format {content.get('format')!r}, expected {FORMAT}; write it with `python -m benchmarks models --save`"
        )
    content = expanded(content)
    lacking = missing(content)
    if lacking:
        raise SystemExit(f"{path} does not say: {', '.join(lacking)}\n  do: measure again with --save")
    return content


def devices_of(content: Row) -> list[Row]:
    """Returns the settings of the rows of ocl, one for each device and driver."""
    rows = [row for row in all_rows(content) if row["side"] == "ocl"]
    return list({(row["settings"]["device"], row["settings"]["driver"]): row["settings"] for row in rows}.values())


def device_name(content: Row) -> str:
    return content.get("device") or ", ".join(s["device"] for s in devices_of(content))


def title_of(content: Row) -> str:
    if content.get("title"):
        return str(content["title"])
    sections = [NAMES[key] for key in NAMES if content.get(key)]
    precisions = list(dict.fromkeys(PRECISIONS[row["precision"]] for row in all_rows(content) if "precision" in row))
    return ", ".join([f"{' and '.join(sections)}: {device_name(content)}", *precisions])


def origin_lines(content: Row) -> list[str]:
    """Returns a table of date, commit, device, driver and versions, and the command."""
    rows: list[list[object]] = [[content["when"], content["commit"], s["device"], s["driver"], s["opencl"], content["torch"]]
                                for s in devices_of(content)]  # fmt: skip
    lines = table(["date", "commit", "device", "driver", "OpenCL", "torch"], rows)
    others = {}
    for row in all_rows(content):
        s = row["settings"]
        versions = ", ".join(f"{name} {s[key]}" for name, key in (("CUDA", "cuda"), ("cuDNN", "cudnn")) if s.get(key))
        others[f"{s['device']}, {s['driver']}" + (f", {versions}" if versions else "")] = row["side"]
    lines += [f"The other sides ran on {text}." for text, side in others.items() if not side.startswith("ocl")]
    lines += [""]
    if content.get("by_hand"):
        lines += [f"**By hand:** {content['by_hand']}", ""]
    settings = content["settings"]
    if settings.get("rounds") and settings.get("calls"):
        lines += [f"{settings['rounds']} rounds of {settings['calls']} calls.", ""]
    return [*lines, "```text", content["command"], "```", ""]


class Measured(NamedTuple):
    """A compared network, and the commit and the day of its run."""

    network: Comparison
    commit: str
    date: str


# The compared networks by device and precision, then by name, then by mode.
Networks = dict[tuple[str, str], dict[str, dict[str, Measured]]]


def short(commit: str) -> str:
    number, dirty, _ = commit.partition("-dirty")
    return number[:8] + dirty


def networks_of(files: list[Row]) -> Networks:
    """Returns the networks whose inputs stay on the device. Of several runs of one, the newest counts."""
    found: Networks = {}
    for content in sorted(files, key=lambda content: str(content["when"])):
        for members in comparisons(content, NETWORKS).values():
            row = next(iter(members[0].sides.values()))
            cases = found.setdefault((device_name(content), PRECISIONS[row["precision"]]), {})
            for member in members:
                if row["protocol"] == "resident" and member.ratio is not None:
                    cases.setdefault(member.case, {})[row["mode"]] = Measured(
                        member, short(content["commit"]), content["when"][:10]
                    )
    return {key: dict(sorted(cases.items())) for key, cases in sorted(found.items()) if cases}


def network_means(files: list[Row]) -> list[list[object]]:
    """Returns a row for each device and precision: the sides that all of its networks are compared with; for inference and
    training the geometric mean and the number of networks; the days of the first and the last run."""
    lines = []
    for (device, precision), cases in networks_of(files).items():
        runs = [run for modes in cases.values() for run in modes.values()]
        common = set.intersection(*({side for side in run.network.sides if not is_ours(side)} for run in runs))
        cells: list[object] = [device, precision, " and ".join(map(title_of_side, sorted(common)))]
        for mode in MODES:
            ratios = [modes[mode].network.ratio for modes in cases.values() if mode in modes]
            cells.append(f"{number(mean(ratios))} ({len(ratios)})" if ratios else "-")
        lines.append([*cells, " to ".join(sorted({min(run.date for run in runs), max(run.date for run in runs)}))])
    return lines


SUMMARY = ["device", "precision", "compared with", "inference", "training", "dates"]


def summary(files: list[Row]) -> list[str]:
    rows = network_means(files)
    lines = ["## Summary", ""]
    if not rows:
        return [*lines, "No run of whole networks is published.", ""]
    lines += [
        "Geometric means over networks of the ratio to the fastest other side. In brackets: how many networks.",
        "",
    ]
    return lines + table(SUMMARY, rows)


def network_tables(files: list[Row]) -> list[str]:
    """Returns a table of the networks for each device and precision."""
    lines: list[str] = []
    columns = [
        "network",
        *(f"{mode}: {column}" for mode in MODES for column in ("ocl, ms", "best other, ms", "ratio")),
        "commit",
        "date",
    ]
    last = ""
    for (device, precision), cases in networks_of(files).items():
        rows: list[list[object]] = []
        for case, modes in cases.items():
            cells = [cell for mode in MODES for cell in network_cells(modes.get(mode))]
            origins = zip(*((run.commit, run.date) for run in modes.values()), strict=True)
            rows.append([case, *cells, *(", ".join(dict.fromkeys(values)) for values in origins)])
        lines += [f"## {device}", ""] if device != last else []
        lines += [f"**{precision}**", "", *table(columns, rows)]
        last = device
    return lines


def network_cells(run: Measured | None) -> list[object]:
    if run is None:
        return ["", "", ""]
    member = run.network
    assert member.ratio is not None
    other = f"{number(float(member.sides[member.best]['ms']))} {title_of_side(member.best)}"
    return [float(member.sides["ocl"]["ms"]), other, round(member.ratio, 2)]


def operation_means(files: list[Row]) -> list[str]:
    """Returns a table of the geometric means of all other tables."""
    rows: list[list[object]] = []
    for name in ("operations", "start", "devices"):
        for content in files:
            for kind in (kind for kind in KINDS if kind.section in PARTS[name][1]):
                for title, members in comparisons(content, kind).items():
                    ratios = [member.ratio for member in members if member.ratio is not None]
                    if ratios:
                        behind = sum(round(ratio, 2) < 1 for ratio in ratios)
                        link = f"[{title}](performance/{name}.md)"
                        rows.append(
                            [link, device_name(content), len(ratios), mean(ratios), behind, content["when"][:10]]
                        )
    if not rows:
        return []
    return ["## Beside networks", "", "Geometric means of the ratio over the cases of a table, and in how many of them ocl is slower:",
            "", *table(["table", "device", "cases", "ratio", "slower", "date"], rows)]  # fmt: skip


def slower(files: list[Row]) -> str:
    """Returns the page of the cases in which another side is better, the worst first."""
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
    lines = ["# Where ocl is slower", "", WRITTEN]
    if rows:
        lines += ["All cases in which another side is faster, or needs less memory, the worst first.",
                  "", *table(["device", "table", "case", "best other side", "ocl has"], rows)]  # fmt: skip
    else:
        lines += ["In no case of the published runs.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def page(files: list[Row]) -> str:
    return "\n".join([HEAD, *summary(files), *network_tables(files), *operation_means(files)]).rstrip("\n") + "\n"


def details(files: list[Row], part: str) -> str:
    """Returns a page of all runs of some kinds, with their commands, notes and settings."""
    title, sections = PARTS[part]
    lines = [
        f"# {title}",
        "",
        WRITTEN,
    ]
    lines += ["[Performance](../performance.md) has the summary, and the meaning of the columns.", ""]
    for content in files:
        if next(name for name in NAMES if content.get(name)) in sections:
            lines += [f"## {title_of(content)}", "", *origin_lines(content), *notes(content)]
            lines += comparison_tables(content) + overlap_table(content) + side_lines(content)
    return "\n".join(lines).rstrip("\n") + "\n"


def headline(files: list[Row], link: str) -> str:
    """Returns what README.md and docs/comparison.md say: the means."""
    rows = [row[:-1] for row in network_means(files)]
    if not rows:
        return f"[Performance]({link}) has measured times beside those of eager PyTorch and Inductor.\n"
    lines = [
        "Time of the fastest side compared with, divided by the time of this backend. Above 1, this backend is faster; below 1,",
        f"slower. Geometric means over whole networks, their number in brackets; [performance]({link}) has every network and the",
        "conditions. Where eager PyTorch is not named, it was not measured for all networks of the row.",
        "",
        *table(SUMMARY[:-1], rows),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def with_headline(text: str, made: str) -> str:
    """Returns a page with its headline replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"a page needs the lines {BEGIN!r} and {END!r}"
    return before + begin + made + end + after


def contents() -> list[Row]:
    return [read(path) for path in sorted(RESULTS.glob("*.json"))]


def stored(files: list[Row]) -> dict[Path, str]:
    """Returns the text of each page that is stored."""
    made = {PAGE: page(files)}
    for path, link in QUOTES.items():
        made[path] = with_headline(path.read_text(encoding="utf-8"), headline(files, link))
    return made


def built(files: list[Row]) -> dict[str, str]:
    """Returns the text of each page that only the site has, by its place in docs/."""
    folder = PAGE.stem
    return {f"{folder}/slower.md": slower(files)} | {f"{folder}/{part}.md": details(files, part) for part in PARTS}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the built pages to the site; mkdocs calls this."""
    from mkdocs.structure.files import File

    for place, text in built(contents()).items():
        files.append(File.generated(config, place, content=text))
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    for path, text in stored(contents()).items():
        if not args.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date: python -m benchmarks.page")


if __name__ == "__main__":
    main()
