# tests/coverage.py: counts the cases that `make test` runs and those that exist, for the table in docs/testing.md.
"""python -m tests.coverage            prints the table
python -m tests.coverage --write    writes it into docs/testing.md (tests/device/tools/test_docs.py compares)

The counts come from pytest's collection, rounded to two digits. test_docs.py accepts a difference of a tenth, so
that a few new tests do not make the page stale.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- python -m tests.coverage --write -->", "<!-- end -->"

# Row of the table -> regular expression for the paths of its test files. The first row that matches a path counts it.
GROUPS = {
    "our table of ops: each op, its gradient, each dtype": r"device/ops/test_ops\.py",
    "PyTorch's `op_db` and `module_db`": r"device/ops/test_opinfo\.py",
    "whole networks, forward and all gradients": r"device/networks/test_(models|networks|timm|transformers)\.py",
    "kernels and their templates, alone": r"device/kernels/test_(rows_\w+|halves|kernels|maths|pairs|tensor_cores)\.py",
    "everything else on a device": r"device/",
    "the compiler without a device": r"(no_device|fuzz)/",
}


class Counting:
    """A pytest plugin that counts the cases of a collection by (group, device, whether the case runs)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int, bool]] = Counter()

    def add(self, items: list[Any], runs: bool) -> None:
        for item in items:
            path = item.path.relative_to(ROOT / "tests").as_posix()
            group = next(name for name, pattern in GROUPS.items() if re.match(pattern, path))
            device = item.callspec.params.get("ocl_device", "ocl:0") if hasattr(item, "callspec") else "ocl:0"
            self.counts[group, int(str(device).removeprefix("ocl:")), runs] += 1

    def pytest_deselected(self, items: list[Any]) -> None:
        self.add(items, False)

    def pytest_collection_finish(self, session: Any) -> None:
        self.add(session.items, True)


def count() -> Counter[tuple[str, int, bool]]:
    counting = Counting()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main(["--collect-only", "-q", str(ROOT / "tests")], plugins=[counting])
    if status != 0:
        raise SystemExit(said.getvalue())
    return counting.counts


def rounded(number: int) -> str:
    """Formats a number rounded to two significant digits: 7180 -> 7,200."""
    digits = 10 ** max(0, len(str(number)) - 2)
    return f"{(number + digits // 2) // digits * digits:,}"


def table(counts: Counter[tuple[str, int, bool]]) -> str:
    lines = [
        "| what | cases for each device | run on the first device | run on every further device |",
        "|---|--:|--:|--:|",
    ]

    def row(name: str, groups: list[str]) -> str:
        first, other = ([sum(counts[g, device, runs] for g in groups) for runs in (False, True)] for device in (0, 1))
        return f"| {name} | {rounded(sum(first))} | {rounded(first[1])} | {rounded(other[1]) if sum(other) else '-'} |"

    lines += [row(name, [name]) for name in GROUPS]
    return "\n".join([*lines, row("all", list(GROUPS))]) + "\n"


def agree(made: str, page: str) -> bool:
    """Compares two tables: the words are equal, and each pair of counts differs by at most a tenth."""
    count = r"(?<= )[\d,]+(?= \|)"
    if re.sub(count, "", made) != re.sub(count, "", page):
        return False
    pairs = [[int(text.replace(",", "")) for text in re.findall(count, side)] for side in (made, page)]
    return all(abs(a - b) <= max(a, b) / 10 for a, b in zip(*pairs, strict=True))


def on_page() -> str:
    """Returns the table that the page contains."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN + "\n")[2].partition(END)[0]


def main() -> None:
    made = table(count())
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.replace(BEGIN + "\n" + on_page() + END, BEGIN + "\n" + made + END), encoding="utf-8")
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
