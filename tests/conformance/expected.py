# tests/conformance/expected.py: the expectations: which cases fail and how, and what runs on the CPU.
"""expected.csv lists cases that do not pass: kind, entry, dtypes (separated by spaces), direction, where, error,
reason. `error` is a regular expression that the text of the failure must match.

on_cpu.csv lists what runs on the CPU in cases that pass: kind, entry, dtypes, where, ops (separated by "; "). A case
fails if another op moves to the CPU.

`where` is a part of "<runtime>, torch <version>", or * for all.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from torch_ocl_compile.dtypes import IR_DTYPES

FOLDER = Path(__file__).parent
EXPECTED, ON_CPU = FOLDER / "expected.csv", FOLDER / "on_cpu.csv"


@dataclass(frozen=True)
class Row:
    kind: str
    entry: str
    dtypes: str
    where: str

    def covers(self, case: str, where: str) -> bool:
        kind, entry, dtype = case.split(":")
        return (
            (self.kind, self.entry) == (kind, entry)
            and dtype in self.dtypes.split()
            and (self.where == "*" or self.where.lower() in where.lower())
        )


@dataclass(frozen=True)
class Failure(Row):
    direction: str
    error: str
    reason: str


@dataclass(frozen=True)
class OnCpu(Row):
    ops: str

    def names(self) -> set[str]:
        return set(self.ops.split("; "))


AnyRow = TypeVar("AnyRow", bound=Row)
Rows = dict[tuple[str, str], list[AnyRow]]


def _read(path: Path, row: type[AnyRow]) -> Rows[AnyRow]:
    """Returns the rows of a file by (kind, entry)."""
    found: Rows[AnyRow] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for fields in csv.DictReader(file):
            found.setdefault((fields["kind"], fields["entry"]), []).append(row(**fields))
    return found


@cache
def failures() -> Rows[Failure]:
    return _read(EXPECTED, Failure)


@cache
def on_cpu() -> Rows[OnCpu]:
    return _read(ON_CPU, OnCpu)


def where(runtime: str, torch_version: str) -> str:
    """Returns the text that the `where` of a row must be a part of."""
    return f"{runtime}, torch {torch_version}"


def failure_of(case: str, direction: str, where: str) -> Failure | None:
    """Returns the row that expects this case to fail; None if it is expected to pass."""
    kind, entry, _ = case.split(":")
    rows = failures().get((kind, entry), [])
    return next((r for r in rows if r.direction == direction and r.covers(case, where)), None)


def op_name(eager: str) -> str:
    """Returns what ran on the CPU, without the reason: "aten.cumsum.default: no lowering" -> "aten.cumsum.default".

    A copy through the host has the name of the dtype that no kernel can copy, as a node of a graph with this dtype has.
    """
    name = eager.removeprefix("eager ").replace("aten::", "aten.")
    copied = re.fullmatch(r"aten\.copy_ (?:from|of a \w+ view of) (\w+)(?: to (\w+))?", name)
    for dtype in copied.groups("") if copied else ():
        if dtype and getattr(torch, dtype) not in IR_DTYPES:
            return f"dtype torch.{dtype} has no kernels"
    if name.startswith("the whole"):
        return name.partition(": ")[2].partition(": input")[0]
    if found := re.search(r"dtype torch\.\w+ has no kernels", name):
        return found[0]
    return name.partition(":")[0]


def moved(outcome: dict[str, Any]) -> set[str]:
    """Returns the names of the ops that ran on the CPU."""
    return {op_name(eager) for eager in outcome["eager"]}


def unexpected(outcome: dict[str, Any], where: str) -> str:
    """Returns how an outcome differs from expected.csv and on_cpu.csv; "" if it agrees."""
    case, status, reason = outcome["case"], outcome["status"], outcome.get("reason", "")
    known = failure_of(case, outcome["direction"], where)
    if status == "fail" and known is None:
        return str(reason)
    if status == "fail" and known is not None:
        wanted = re.search(known.error, reason)
        return "" if wanted else f"fails otherwise than {EXPECTED.name} says (it expects {known.error!r}): {reason}"
    if status == "pass" and known is not None:
        return f"passes; take its row out of {EXPECTED.name} (it says: {known.reason})"
    if status == "pass":
        kind, entry, _ = case.split(":")
        allowed = {op for row in on_cpu().get((kind, entry), []) if row.covers(case, where) for op in row.names()}
        new = moved(outcome) - allowed
        return f"runs on the CPU, where {ON_CPU.name} does not say so: {', '.join(sorted(new))}" if new else ""
    return ""


def returned(outcomes: Iterable[dict[str, Any]], where: str) -> list[str]:
    """Returns messages about ops in on_cpu.csv that no outcome has any more. Only entries whose dtypes all ran are
    checked."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    ran: dict[tuple[str, str], set[str]] = defaultdict(set)
    for o in outcomes:
        kind, entry, dtype = o["case"].split(":")
        if o["status"] == "pass":
            seen[kind, entry] |= moved(o)
        if o["status"] != "fail":
            ran[kind, entry].add(dtype)
    lines = []
    for key, rows in on_cpu().items():
        for row in rows:
            ours = row.where == "*" or row.where.lower() in where.lower()
            gone = row.names() - seen[key]
            if ours and gone and set(row.dtypes.split()) <= ran[key]:
                lines.append(
                    f"{':'.join(key)}: {', '.join(sorted(gone))} on the device now; take it out of {ON_CPU.name}"
                )
    return lines


def check(results: list[dict[str, Any]]) -> list[str]:
    """Returns all differences between the results and the expectations, in both directions."""
    lines = []
    for result in results:
        here = where(result["runtime"], result["torch"])
        for o in result["outcomes"]:
            wrong = unexpected(o, here)
            if wrong:
                lines.append(f"{o['case']} {o['direction']}: {wrong}")
        lines += returned(result["outcomes"], here)
    return lines


def write_on_cpu(results: list[dict[str, Any]]) -> None:
    """Writes on_cpu.csv from results: one row for all runtimes if their ops are equal, else one row for each
    runtime."""
    here = {where(r["runtime"], r["torch"]): r["outcomes"] for r in results}
    rows = {r for found in on_cpu().values() for r in found if r.where != "*" and not any(r.where in h for h in here)}
    found: dict[tuple[str, str], dict[str, dict[str, set[str]]]] = defaultdict(lambda: defaultdict(dict))
    for place, outcomes in here.items():
        for o in outcomes:
            if o["status"] != "pass":
                continue
            kind, entry, dtype = o["case"].split(":")
            found[kind, entry][dtype].setdefault(place, set()).update(moved(o))
    for (kind, entry), by_dtype in found.items():
        # (place, ops) -> dtypes.
        dtypes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for dtype, by_place in by_dtype.items():
            agree = len({frozenset(ops) for ops in by_place.values()}) == 1
            for place, ops in by_place.items():
                if ops:
                    dtypes["*" if agree else place, "; ".join(sorted(ops))].append(dtype)
        for (place, ops), names in dtypes.items():
            rows.add(OnCpu(kind, entry, " ".join(dict.fromkeys(names)), place, ops))
    with ON_CPU.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["kind", "entry", "dtypes", "where", "ops"], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda r: (r.kind, r.entry, r.where, r.dtypes)):
            writer.writerow(asdict(row))
