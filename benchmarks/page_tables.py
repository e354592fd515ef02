# benchmarks/page_tables.py: the tables of docs/performance.md and its folder, made from the rows of one result file.
"""Every table compares `ocl` with the best other side: its ratio is above 1 where ocl is better."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.harness.results import sides_of, way_of
from benchmarks.harness.sides import PRECISIONS, SIDES, is_ours

Row = dict[str, Any]
MIB = 2**20


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


def mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(statistics.geometric_mean(known), 2) if known else None


def title_of_side(side: str) -> str:
    return SIDES[side].title if side in SIDES else side


class Comparison(NamedTuple):
    """The rows of one case, by side. `best` is the best other side, `ratio` how much better ocl is (None: not compared)."""

    case: str
    sides: dict[str, Row]
    best: str
    ratio: float | None


class Kind(NamedTuple):
    """One kind of rows: the section of the result file, how rows are grouped into tables, what a case is, and the value that is
    compared. `more_is_better`: a rate, not a time or a size. `needs`: rows without this value are left out."""

    section: str
    group: Callable[[Row], str]
    case: Callable[[Row], str]
    value: Callable[[Row], float]
    unit: str
    more_is_better: bool = False
    needs: str = "side"


def _network(row: Row) -> str:
    return f"{row['model']}, batch {'not recorded' if row['batch'] is None else row['batch']}"


PROTOCOLS = {
    "from-host": ", each step copies its batch from the host",
    "model-alone": ", the loss and the optimizer run eagerly",
}


def _mode(row: Row) -> str:
    return f"{row['mode'].capitalize()}, {PRECISIONS[row['precision']]}{PROTOCOLS.get(row.get('protocol', ''), '')}"


def _ranks(row: Row) -> str:
    how = {"bare": "without a wrapper", "ddp": "DistributedDataParallel", "fsdp": "FSDP2"}[row["how"]]
    return f"{row['model']}, {how}, {row['ranks']} {'rank' if row['ranks'] == 1 else 'ranks'}"


COPIES = {"alone": "one copy", "row": "eight in a row", "kernels": "after a kernel and before another"}
KINDS = [
    Kind("networks", _mode, _network, lambda row: row["ms"], "ms"),
    Kind("networks", lambda row: f"Peak of device memory. {_mode(row)}", _network, lambda row: row["peak_mib"], "MiB",
         needs="peak_mib"),
    Kind("operations", lambda row: f"{row['group']}, {PRECISIONS[row['precision']]}", lambda row: row["case"],
         lambda row: row["ms"], "ms"),
    Kind("memory", lambda row: f"Peak of device memory. {_mode(row)}", _network, lambda row: row["peak_bytes"] / MIB, "MiB"),
    Kind("startup", lambda row: f"Until the first step is done, with empty caches. {_mode(row)}", _network,
         lambda row: statistics.median(row["cold_s"]), "s"),
    Kind("startup", lambda row: f"Until the first step is done, in a second process. {_mode(row)}", _network,
         lambda row: statistics.median(row["second_s"]), "s"),
    Kind("layers", lambda row: f"A step by kind of layer. {row['model']}, {row['mode']}", lambda row: row["layer"],
         lambda row: row["ms"], "ms"),
    Kind("fft", lambda row: f"Fourier transforms, {row['function']}", lambda row: " x ".join(map(str, row["shape"])),
         lambda row: row["ms"], "ms"),
    Kind("flex_attention", lambda row: f"FlexAttention, {' x '.join(map(str, row['shape']))}, {row['dtype']}",
         lambda row: row["case"], lambda row: row["ms"], "ms"),
    Kind("sparse", lambda row: f"Sparse tensors, {row['function']}", lambda row: " x ".join(map(str, row["shape"])),
         lambda row: row["ms"], "ms"),
    Kind("order", lambda row: f"Sorts and searches, {row['function']}", lambda row: f"{row['length']} elements",
         lambda row: row["ms"], "ms"),
    Kind("eager", lambda row: f"Eager ops, {row['elements']} elements", lambda row: f"{row['function']}, {row['way']}, {row['dtype']}",
         lambda row: row["ms"], "ms"),
    Kind("decode", lambda row: f"Decoding of one sequence, model {row['model']}, by the format of weights",
         lambda row: f"{row['format']}, {row['share']:.0%} of the memory bandwidth", lambda row: row["tokens_per_second"],
         "tokens/s", more_is_better=True),
    Kind("generate", lambda row: "generate() of transformers, one sequence, a Llama of 97 million weights in fp32",
         lambda row: f"{row['cache']} cache", lambda row: row["tokens_per_second"], "tokens/s", more_is_better=True),
    Kind("collectives", lambda row: row["collective"], lambda row: f"{row['bytes']} bytes", lambda row: row["gbytes"], "GB/s",
         more_is_better=True),
    Kind("copies", lambda row: f"Copies between two devices, {COPIES[row['copies']]}", lambda row: f"{row['bytes'] >> 20} MiB",
         lambda row: row["gbytes"], "GB/s", more_is_better=True),
    Kind("parallel", lambda row: f"Training with several ranks, {PRECISIONS[row['precision']]}", _ranks, lambda row: row["items"],
         "items/s", more_is_better=True),
]  # fmt: skip


def rows_of(content: Row, kind: Kind) -> list[Row]:
    rows: list[Row] = content.get(kind.section) or []
    if kind.section == "layers":
        return [row | {"layer": layer, "ms": ms} for row in rows for layer, ms in row["rows"].items()]
    return [row for row in rows if row.get(kind.needs) is not None]


def comparisons(content: Row, kind: Kind) -> dict[str, list[Comparison]]:
    """Returns the compared cases of a file by the title of their table."""
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows_of(content, kind):
        found.setdefault(kind.group(row), {}).setdefault(kind.case(row), {})[row["side"]] = row
    return {title: [compared(kind, case, sides) for case, sides in members.items()] for title, members in found.items()}


def compared(kind: Kind, case: str, sides: dict[str, Row]) -> Comparison:
    others = {side: kind.value(row) for side, row in sides.items() if not is_ours_or_unknown(side)}
    if not others or "ocl" not in sides:
        return Comparison(case, sides, "", None)
    best = (max if kind.more_is_better else min)(others, key=lambda side: others[side])
    own = kind.value(sides["ocl"])
    upper, lower = (own, others[best]) if kind.more_is_better else (others[best], own)
    return Comparison(case, sides, best, upper / lower if lower > 0 < upper else None)


def is_ours_or_unknown(side: str) -> bool:
    """Sides of other programs, such as NCCL, are other sides."""
    return side in SIDES and is_ours(side)


def comparison_tables(content: Row) -> list[str]:
    """Returns one table for each kind of rows and each group of them."""
    lines = []
    for kind in KINDS:
        for title, members in comparisons(content, kind).items():
            lines += [f"**{title}**", "", *comparison_table(kind, members)]
    return lines


def comparison_table(kind: Kind, members: list[Comparison]) -> list[str]:
    found = list(dict.fromkeys(side for member in members for side in member.sides))
    names = sorted(found, key=lambda side: list(SIDES).index(side) if side in SIDES else len(SIDES))
    columns = ["case", *(f"{title_of_side(side)}, {kind.unit}" for side in names), "ratio"]
    rows: list[list[object]] = []
    for member in members:
        values = [float(kind.value(member.sides[side])) if side in member.sides else None for side in names]
        rows.append([member.case, *values, member.ratio and round(member.ratio, 2)])
    last: list[object] = ["geometric mean", *("" for _ in names), mean(member.ratio for member in members)]
    for title, cells in further_columns(kind, members, names):
        columns.append(title)
        rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
        last.append("")
    return table(columns, [*rows, last] if len(rows) > 1 else rows)


def further_columns(kind: Kind, members: list[Comparison], names: list[str]) -> list[tuple[str, list[object]]]:
    """Returns the titles and cells of columns that one kind has: spread of networks, rates of operations."""
    columns: list[tuple[str, list[object]]] = []

    def cells(side: str, key: str, scale: float = 1.0) -> list[object]:
        known = [member.sides.get(side, {}).get(key) for member in members]
        return [None if value is None else scale * float(value) for value in known]

    if kind.section == "networks" and kind.unit == "ms":
        spreads = [
            [row["spread"] for row in member.sides.values() if row.get("spread") is not None] for member in members
        ]
        columns.append(("largest spread", [f"{max(found):.0%}" if found else None for found in spreads]))
    if kind.section == "operations":
        rates = cells("ocl", "tflops")
        columns.append(("ocl, TFLOP/s", rates) if any(rates) else ("ocl, GB/s", cells("ocl", "gbytes")))
        columns.append(("ocl, share of the peak", [f"{v:.0%}" if v else None for v in cells("ocl", "roofline")]))
    if "cold_s" in members[0].sides.get("ocl", {}):
        columns.append(("ocl, kernels built", [m.sides.get("ocl", {}).get("built") for m in members]))
    return [(title, found) for title, found in columns if any(cell is not None for cell in found)]


def overlap_table(content: Row) -> list[str]:
    rows = content.get("overlap") or []
    lines = []
    for row in rows:
        ms = row["ms"]
        cells: list[object] = [ms["first"], ms["second"], ms["one stream"], ms["two streams"]]
        lines += ["**Two graphs on two streams**", ""]
        lines += table(
            ["first graph, ms", "second graph, ms", "both on one stream, ms", "both on two streams, ms"], [cells]
        )
    return lines


def notes(content: Row) -> list[str]:
    given = content.get("notes") or []
    return [*(f"- {note}" for note in given), ""] if given else []


def all_rows(content: Row) -> list[Row]:
    """Returns all rows of a file, each section once."""
    sections = dict.fromkeys([*(kind.section for kind in KINDS), "overlap"])
    return [row for section in sections for row in content.get(section) or []]


def side_lines(content: Row) -> list[str]:
    """Returns a list of the settings of each side. Empty if the file does not record them."""
    lines = []
    for found in sides_of([row for row in all_rows(content) if row["side"] in SIDES]):
        modes = f", {' and '.join(found['modes'])}" if found["modes"] else ""
        lines.append(f"- {title_of_side(found['side'])}{modes}: `{found['settings']}`")
    ways: dict[tuple[str, str, str, str], list[str]] = {}
    for row in content.get("networks") or []:
        if not is_ours(row["side"]) and way_of(row) != "-":
            how = "was fastest with" if row.get("ways_ms") else "ran with"
            ways.setdefault((row["side"], row["mode"], how, way_of(row)), []).append(row["model"])
    for (side, mode, how, way), models in ways.items():
        lines.append(f"- {title_of_side(side)}, {mode}, {how} {way}: {', '.join(dict.fromkeys(models))}")
    return ["**Settings of the sides**", "", *lines, ""] if lines else []
