# tests/long_runs.py: records of long runs, for the table in docs/testing.md; their limit of time, and where they go on.
"""python -m tests.long_runs write              writes the table into docs/testing.md
python -m tests.long_runs merge FILE...      takes over the rows of other files, for example from a machine with a GPU
python -m tests.long_runs run --what NAME --device ocl:0 --record [FILE] -- COMMAND...
                                             runs a command, counts the tests that it reports, and records the result

A long run has these options: `--minutes M` begins nothing new after M minutes, `--from PLACE` goes on at a place that an
earlier run printed, `--from last` goes on where the recorded run ended, and `--record` writes a row into FILE
(tests/long_runs.json). A row is replaced by the next run of the same name on the same device; a run that goes on where
the row ends is added to it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "long_runs.json"
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- python -m tests.long_runs write -->", "<!-- end -->"
LAST = "last"

Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser, place: str = "", minutes: float = 0.0) -> None:
    """Adds --minutes and --record, and --from if the run can go on: `place` says where."""
    limit = "; 0: go on to the end" if minutes == 0 else ""
    parser.add_argument("--minutes", type=float, default=minutes, help=f"begin nothing new after so long{limit}")
    parser.add_argument("--record", nargs="?", type=Path, const=DATA, metavar="FILE",
                        help=f"write the result into FILE ({DATA.relative_to(ROOT)})")  # fmt: skip
    if place:
        parser.add_argument(
            "--from", dest="place", metavar="PLACE", help=f"go on at {place}, or where the last run ended"
        )


@dataclass
class Run:
    """A long run that has begun: its limit of time, and what is recorded at its end."""

    what: str
    # The names of the devices, as in the table.
    device: str
    # What is counted, as "programs".
    unit: str
    minutes: float
    record: Path | None
    # Where the run begins. The place where it ends has the same form.
    place: str = ""
    # What the recorded run counted so far, if this run goes on with it.
    done: int = 0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def over(self) -> bool:
        """True if the time is used up: nothing new is begun."""
        return self.minutes > 0 and self.seconds() > 60 * self.minutes

    def end(self, count: int, failures: list[str], ended: str = "", note: str = "") -> None:
        """Records what was run. `failures` names each failure in a few words, `note` says what else was measured."""
        if ended:
            print(f"goes on with --from {ended}", flush=True)
        if self.record is None:
            return
        import torch

        from benchmarks.harness.origin import commit

        row = {"what": self.what, "device": self.device, "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}
        row |= {"commit": commit() or "unknown", "torch": torch.__version__}
        row |= {"count": count, "unit": self.unit, "seconds": round(self.seconds()), "failures": failures, "note": note}
        add(self.record, [row | {"first": self.place, "next": ended}])


def begin(what: str, device: str, unit: str, options: argparse.Namespace) -> Run:
    """Begins a run on a device such as ocl:0, or on several (ocl:0,ocl:1). `options` are those of `add_options`."""
    place, done = getattr(options, "place", None) or "", 0
    # Without a record, the process needs no torch.
    name = device_names(device) if options.record or place == LAST else device
    if place == LAST:
        row = recorded(options.record or DATA, what, name)
        if row is None:
            raise SystemExit(f"--from {LAST}: no run of {what!r} on {name} is recorded in {options.record or DATA}")
        place, done = row["next"], row["count"]
    return Run(what, name, unit, options.minutes, options.record, place, done)


def device_names(device: str) -> str:
    """Returns "Intel(R) Xeon(R) (Intel(R) OpenCL)" for ocl:0, and such names joined with "and" for ocl:0,ocl:1."""
    import torch

    import torch_ocl_compile  # noqa: F401

    found = [torch.ocl.get_device_properties(one) for one in device.split(",")]
    return " and ".join(f"{p.name} ({p.platform_name})" for p in found)


def read(path: Path) -> list[Row]:
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return rows


def key(row: Row) -> tuple[str, str]:
    return row["what"], row["device"]


def recorded(path: Path, what: str, device: str) -> Row | None:
    return next((row for row in read(path) if key(row) == (what, device)), None)


def joined(old: Row, new: Row) -> Row:
    """Returns one row for a run and the run that went on where it ended."""
    row = new | {"count": old["count"] + new["count"], "seconds": old["seconds"] + new["seconds"]}
    row |= {"failures": old["failures"] + new["failures"], "first": old["first"]}
    commits = dict.fromkeys([*old["commit"].split(" to "), new["commit"]])
    return row | {"commit": " to ".join(list(commits)[:: max(1, len(commits) - 1)])}


def merged(rows: list[Row], more: list[Row]) -> list[Row]:
    """Returns the rows with those of `more`: a run that goes on is joined to its row, otherwise the newer row stays."""
    found = {key(row): row for row in rows}
    for row in more:
        old = found.get(key(row))
        if old and row["first"] and row["first"] == old["next"]:
            found[key(row)] = joined(old, row)
        elif old is None or row["when"] >= old["when"]:
            found[key(row)] = row
    return sorted(found.values(), key=key)


def add(path: Path, more: list[Row]) -> None:
    """Writes rows into a file, and the page if it is the file of the repository. Several runs may end together."""
    from benchmarks.harness.results import text_of

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        rows = merged(json.loads(file.read() or "[]"), more)
        file.truncate(0)
        file.write(text_of(rows))
    if path.resolve() == DATA:
        write_page()


def table(rows: list[Row]) -> str:
    lines = ["| run | device | count | result | date | commit | torch |", "|---|---|--:|---|---|---|---|"]
    for row in rows:
        result = "; ".join([said(row["failures"]), *filter(None, [row["note"]])]).replace("|", "/")
        device = re.sub(r"\((R|TM)\)|@ [\d.]+GHz|\bCPU\b", "", row["device"])
        lines.append(f"| {row['what']} | {' '.join(device.split())} | {row['count']:,} {row['unit']} | {result} "
                     f"| {row['when'][:10]} | `{row['commit']}` | {row['torch']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def said(failures: list[str]) -> str:
    """Returns the failures in a few words. Equal names are counted."""
    if not failures:
        return "no failure"
    counts = Counter(failures)
    names = [name + (f" ({counts[name]} times)" if counts[name] > 1 else "") for name in counts]
    return f"{len(failures)} fail: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"


def on_page() -> str:
    """Returns the table that the page contains."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN + "\n")[2].partition(END)[0]


def write_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = BEGIN + "\n" + table(read(DATA)) + END
    PAGE.write_text(text.replace(BEGIN + "\n" + on_page() + END, made), encoding="utf-8")


def tests_counted(output: str) -> int:
    """Returns the number of tests that ctest and pytest say they ran."""
    ctest = re.findall(r"tests failed out of (\d+)", output)
    pytest = re.findall(r"^(?:=+ )?(?:\d+ failed, )?(\d+) passed", output, re.MULTILINE)
    return sum(map(int, [*ctest, *pytest]))


def run_command(options: argparse.Namespace) -> int:
    """Runs a command with its output on the terminal. It is ended at the limit of time, and that is a failure."""
    run = begin(options.what, options.device, "tests", options)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    assert process.stdout is not None
    if run.minutes:
        timer = threading.Timer(60 * run.minutes, process.terminate)
        timer.daemon = True
        timer.start()
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    status = process.wait()
    failure = f"ended after {run.minutes:g} minutes" if run.over() else f"exit status {status}"
    run.end(tests_counted("".join(lines)), [failure] if status else [])
    return int(status != 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.long_runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="do", required=True)
    commands.add_parser("write")
    commands.add_parser("merge").add_argument("files", nargs="+", type=Path)
    run = commands.add_parser("run")
    run.add_argument("--what", required=True)
    run.add_argument("--device", default="ocl:0")
    add_options(run)
    run.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.do == "run":
        return run_command(options)
    if options.do == "merge":
        add(DATA, [row for path in options.files for row in read(path)])
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
