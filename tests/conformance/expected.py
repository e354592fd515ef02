# tests/conformance/expected.py: the cases that are known not to pass, and those that Inductor compiles: data with reasons.
"""expected.csv: kind, entry, dtypes (by spaces), direction, where (part of the runtime's name, * for all), reason.
inductor.txt: the entries which pass with backend="inductor" on the CPU in float32, one a line."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
EXPECTED, INDUCTOR = FOLDER / "expected.csv", FOLDER / "inductor.txt"


@dataclass(frozen=True)
class Row:
    kind: str
    entry: str
    dtypes: str
    direction: str
    where: str
    reason: str

    def covers(self, case: str, direction: str, runtime: str) -> bool:
        kind, entry, dtype = case.split(":")
        return (
            (self.kind, self.entry, self.direction) == (kind, entry, direction)
            and dtype in self.dtypes.split()
            and (self.where == "*" or self.where.lower() in runtime.lower())
        )


@cache
def rows() -> dict[tuple[str, str], list[Row]]:
    """By kind and entry."""
    found: dict[tuple[str, str], list[Row]] = {}
    with EXPECTED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["kind"], row["entry"]), []).append(Row(**row))
    return found


def reason_for(case: str, direction: str, runtime: str) -> str:
    """Why this is expected to fail; "" if it is to pass."""
    kind, entry, _ = case.split(":")
    for row in rows().get((kind, entry), []):
        if row.covers(case, direction, runtime):
            return row.reason
    return ""


def unexpected(runtime: str, outcomes: Iterable[dict[str, Any]]) -> list[str]:
    lines = []
    for o in outcomes:
        known = reason_for(o["case"], o["direction"], runtime)
        if o["status"] == "fail" and not known:
            lines.append(f"{o['case']} {o['direction']}: {o['reason']}")
        elif o["status"] == "pass" and known:
            lines.append(f"{o['case']} {o['direction']} passes; take its row out of {EXPECTED.name}")
    return lines


def inductor_entries() -> set[str]:
    """ "op:add", ...; empty if the list has not been made."""
    if not INDUCTOR.exists():
        return set()
    return {line for line in INDUCTOR.read_text().splitlines() if line and not line.startswith("#")}


def write_inductor(results: list[dict[str, Any]]) -> None:
    """The entries whose every direction passes in float32."""
    passed: dict[str, bool] = {}
    for result in results:
        for o in result["outcomes"]:
            entry, dtype = o["case"].rsplit(":", 1)
            if dtype == "float32" and o["status"] != "skip":
                passed[entry] = passed.get(entry, True) and o["status"] == "pass"
    head = f"# Entries that pass with backend='inductor' on the CPU, torch {results[0]['torch']}; python -m tests.conformance list"
    INDUCTOR.write_text("\n".join([head, *sorted(e for e, ok in passed.items() if ok)]) + "\n")
