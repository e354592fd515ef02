# benchmarks/collector.py: collects the rows of `python -m benchmarks`: progress, result file, time limit, resume.
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.origin import origin
from benchmarks.harness.results import Rows
from torch_ocl_compile.cli.parts import progress
from torch_ocl_compile.errors import ToolError

# Settings that two runs may differ in, if one goes on with the file of the other: they choose what is measured.
CHOICES = ("models", "modes", "precisions", "groups", "parts", "verbose")


class Collector:
    """Collects the rows of one section of a result file. After each step it writes the file and prints a line, so that a run
    that ends early loses nothing.

    `minutes`: nothing new begins after so many. `resume`: goes on with the file `save`, if it is there."""

    def __init__(self, section: str, settings: dict[str, Any], save: Path | None, minutes: float, resume: bool) -> None:
        self.section, self.settings, self.save, self.minutes = section, results.plain(settings), save, minutes
        self.origin, self.begin, self.rows = origin(), time.monotonic(), Rows()
        self.error: ToolError | None = None
        self.is_late = False
        if resume and save is None:
            raise ToolError("--resume goes on with the file of --save.\n  do: name it with --save")
        if resume and save is not None and save.exists():
            self.rows = self.earlier_rows(results.read(save))
            self.tell(f"goes on behind {len(self.rows)} rows of {save.name}")

    def earlier_rows(self, content: dict[str, Any]) -> Rows:
        """Returns the rows of an earlier run. ToolError if it ran with other settings, another commit or another torch."""
        before, now = (
            {"commit": found["commit"], "torch": found["torch"], **given}
            for found, given in ((content, content["settings"]), (self.origin, self.settings))
        )
        other = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key not in CHOICES]
        if other:
            raise ToolError(
                f"{self.save} was measured with another {', '.join(sorted(other))}.\n"
                "  do: give the same settings, or another file to --save"
            )
        return list(content[self.section])

    def wanted(self, *case: str) -> bool:
        """True if a case is to be measured: it is not in the file yet, and there is time."""
        is_done = any(self.case_of(row) == case for row in self.rows)
        self.is_late = self.is_late or (not is_done and time.monotonic() - self.begin > 60 * self.minutes)
        return not is_done and not self.is_late

    def case_of(self, row: dict[str, Any]) -> tuple[str, ...]:
        names = ("group", "case") if self.section == "operations" else ("model", "mode")
        return (row["precision"], *(row[name] for name in names))

    def collect(self, measure: Callable[[Callable[[str], None]], Iterable[Rows]]) -> dict[str, Any]:
        """Runs a measurement. Returns the content of the result file. An error is kept in `error`, so that the rows before
        it can be shown."""
        with progress("starting") as now:
            try:
                for rows in measure(now):
                    self.add(rows)
            except KeyboardInterrupt:
                self.tell("interrupted: these are the results so far")
            except ToolError as error:
                self.error = error
        if self.is_late:
            self.tell(f"stopped after {self.minutes:g} minutes; the same command with --resume goes on")
        return self.content()

    def add(self, rows: Rows) -> None:
        self.rows += rows
        if self.save:
            results.write(self.content(), self.save)
        if not rows:
            return
        times = [f"{row['side']} {row['ms']:.3f} ms" for row in rows if "ms" in row]
        times += [f"{row['side']} {row['peak_bytes'] / 2**20:.0f} MiB" for row in rows if "peak_bytes" in row]
        self.tell(f"{', '.join(self.case_of(rows[0]))}: {', '.join(times)}")

    def tell(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    def content(self) -> dict[str, Any]:
        return results.result(self.origin, self.settings, **{self.section: self.rows})

    def end(self) -> int:
        """Raises the error of the measurement. Returns the exit status of the command."""
        if self.save:
            results.write(self.content(), self.save)
        if self.error is not None:
            raise self.error
        return 0
