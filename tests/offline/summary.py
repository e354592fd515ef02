# tests/offline/summary.py: the worst of each row, type and chip, and what is allowed of it (allowed.csv).
from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.offline.compilers import CHIPS, version
from tests.offline.rendering import Kernel
from tests.offline.results import KEPT, Results

ALLOWED = Path(__file__).with_name("allowed.csv")
SUMMARY = KEPT.with_name("summary.json")


@dataclass(frozen=True)
class Worst:
    """The largest needs of the kernels of a row, in a type, on a chip. Fields as in compilers.Report."""

    row: str
    type: str
    chip: str
    kernels: int
    registers: int
    spills: int
    scratch: int
    local: int
    width: int  # The smallest, and so is `waves`.
    waves: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.row, self.type, self.chip


def alike(kernel: Kernel) -> str:
    """Returns a text that is equal for kernels that differ in nothing but their name, sizes and factors.

    Macros stay: they choose the code of a hand-written kernel. In generated kernels numbers with one digit stay too, since
    loops of such lengths are unrolled."""
    name = re.search(r"(?:#define KERNEL_NAME |\bvoid )(\w+_[0-9a-f]{12})\b", kernel.text)
    lines = (kernel.text.replace(name[1], "k") if name else kernel.text).splitlines()
    digits = 2 if kernel.generated else 1
    factors = re.compile(rf"0x1\.?[0-9a-f]*p[+-]\d+|(?<![\w.])\d{{{digits},}}(?![\w.])")
    return "\n".join(line if line.startswith("#define") else factors.sub("N", line) for line in lines)


def one_of_each(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Returns what may differ in registers, in each row and type, for the same chips: of hand-written kernels the longest text,
    which has the most fused ops, and of generated kernels one of those that are alike."""
    found: dict[tuple[str, ...], Kernel] = {}
    for kernel in kernels:
        key = (kernel.row, kernel.type, str(kernel.limits), alike(kernel) if kernel.generated else "")
        if key not in found or (len(kernel.text), kernel.text) > (len(found[key].text), found[key].text):
            found[key] = kernel
    return list(found.values())


def summarise(kernels: Iterable[Kernel], chips: Iterable[str], results: Results) -> tuple[list[Worst], list[str]]:
    """Returns the worst of each row, type and chip, of the kernels that are known, and those that do not build, with the log."""
    found: dict[tuple[str, str, str], Worst] = {}
    failed = []
    for kernel in kernels:
        for chip in kernel.chips(chips):
            if not results.knows(kernel.text, chip):
                continue
            report = results.of(kernel.text, chip)
            if isinstance(report, str):
                failed.append(
                    f"{kernel.row} in {kernel.type}, of {kernel.source}, does not build for {chip}:\n{report}"
                )
                continue
            mine = Worst(kernel.row, kernel.type, chip, 1, report.registers, report.spills, report.scratch, report.local,
                         report.width, report.waves)  # fmt: skip
            found[mine.key] = _merged(found[mine.key], mine) if mine.key in found else mine
    return [found[key] for key in sorted(found)], failed


def _merged(a: Worst, b: Worst) -> Worst:
    return replace(
        a, kernels=a.kernels + b.kernels, registers=max(a.registers, b.registers), spills=max(a.spills, b.spills),
        scratch=max(a.scratch, b.scratch), local=max(a.local, b.local), width=min(a.width, b.width),
        waves=min(a.waves, b.waves),
    )  # fmt: skip


# Row, type and chip -> the spills and the bytes of scratch that are allowed. What is not in it may have none.
Limits = dict[tuple[str, str, str], tuple[int, int]]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def allowed(path: Path = ALLOWED) -> Limits:
    return {(r["row"], r["type"], r["chip"]): (int(r["spills"]), int(r["scratch"])) for r in _rows(path)}


def reasons(path: Path = ALLOWED) -> dict[tuple[str, str, str], str]:
    """Returns why each limit is there: written by hand, and kept when limits change."""
    return {(r["row"], r["type"], r["chip"]): r["reason"] for r in _rows(path)} if path.exists() else {}


def faults(worsts: Iterable[Worst], limits: Limits) -> list[str]:
    """Returns what is more than allowed."""
    wrong = []
    for w in worsts:
        spills, scratch = limits.get(w.key, (0, 0))
        if w.spills > spills or w.scratch > scratch:
            wrong.append(f"{w.row} in {w.type} on {w.chip}: {w.spills} spills and {w.scratch} bytes of scratch, and {spills} and"
                         f" {scratch} are allowed")  # fmt: skip
    return wrong


def too_generous(worsts: Iterable[Worst], limits: Limits, types: Iterable[str]) -> list[str]:
    """Returns the limits of these types that could be lower."""
    found = {w.key: (w.spills, w.scratch) for w in worsts}
    return [
        f"{row} in {type} on {chip}: allowed {limit}, found {found.get((row, type, chip), (0, 0))}"
        for (row, type, chip), limit in limits.items()
        if type in types and any(a > b for a, b in zip(limit, found.get((row, type, chip), (0, 0)), strict=True))
    ]


def raised(limits: Limits, worsts: Iterable[Worst]) -> Limits:
    """Returns limits that also allow what was found."""
    result = dict(limits)
    for w in worsts:
        spills, scratch = result.get(w.key, (0, 0))
        result[w.key] = max(w.spills, spills), max(w.scratch, scratch)
    return result


def write_allowed(limits: Limits, path: Path = ALLOWED) -> None:
    why = reasons(path)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "type", "chip", "spills", "scratch", "reason"))
        writer.writerows((*key, *limit, why.get(key, "")) for key, limit in sorted(limits.items()) if any(limit))


@dataclass(frozen=True)
class Facts:
    """What `table` and `allow` need of the last run of all parts and chips."""

    day: str
    complete: bool  # Of all kernels, not of a sample.
    programs: int  # That were wanted, each a kernel for a chip.
    compilers: dict[str, str]  # vendor -> version
    worsts: list[Worst]


def write(worsts: list[Worst], complete: bool, programs: int, path: Path = SUMMARY) -> None:
    compilers = {vendor: version(vendor) for vendor in sorted({chip.vendor for chip in CHIPS.values()})}
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = Facts(time.strftime("%Y-%m-%d"), complete, programs, compilers, worsts)
    path.write_text(json.dumps(asdict(facts), indent=1) + "\n", encoding="utf-8")


def read(path: Path = SUMMARY) -> Facts:
    facts = json.loads(path.read_text(encoding="utf-8"))
    return Facts(**{**facts, "worsts": [Worst(**row) for row in facts["worsts"]]})
