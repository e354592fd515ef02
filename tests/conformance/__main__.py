# tests/conformance/__main__.py: runs PyTorch's op_db and module_db, compares with expectations, and writes the table.
"""python -m tests.conformance run   --out results.json [--device ocl:0] [--jobs 2] [--match regex] [--all-samples] [--minutes 8]
python -m tests.conformance check    results.json ...     fails if results differ from expected.csv or on_cpu.csv
python -m tests.conformance accept   results.json ...     writes on_cpu.csv: ops that run on the CPU now are expected to
python -m tests.conformance keep     results.json ...     keeps what is published of results, in tests/conformance/results
python -m tests.conformance table                         writes docs/conformance.md, README.md and docs/limits.md from there
python -m tests.conformance supported                     writes docs/supported.md from what is expected

A run has complex64 only where --dtypes names it.

Results name their date, commit, driver and versions. `keep` joins results of one runtime, for example of different types.
A run that is interrupted, or stopped by --minutes or --seconds (exit status 3), continues where it stopped when it is called again,
unless our code or torch has changed."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import long_runs
from tests.conformance import expected, kept, table
from tests.conformance.workers import Task, run_all
from tests.worker_process import ROOT

STOPPED = 3


def tasks(match: str, dtypes: list[str], directions: list[str], fp64: bool) -> list[Task]:
    """Returns the tasks, gradients first: they take longest, and at the end of a run all workers should be busy."""
    from tests.conformance import cases

    found = []
    for case in cases.cases(fp64, dtypes):
        if re.search(match, case.name) and (not dtypes or case.name.rsplit(":", 1)[1] in dtypes):
            found.append((case.name, cases.FORWARD))
            if case.has_gradient:
                found.append((case.name, cases.BACKWARD))
    return sorted((t for t in found if t[1] in directions), key=lambda t: t[1])


class Journal:
    """A file with the outcomes so far: a line that describes the run, then one line of JSON for each outcome."""

    def __init__(self, path: Path, what: dict[str, Any]) -> None:
        self.outcomes: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines and lines[0] == json.dumps(what):
            for line in lines[1:]:
                try:
                    self.outcomes.append(json.loads(line))
                except ValueError:  # The last line is incomplete if the run was interrupted while writing it.
                    break
        else:
            path.write_text(json.dumps(what) + "\n", encoding="utf-8")
        if self.outcomes:
            print(f"goes on behind {len(self.outcomes)} cases of {path}", flush=True)
            kept = [json.dumps(o) for o in self.outcomes]
            path.write_text("\n".join([json.dumps(what), *kept]) + "\n", encoding="utf-8")
        self.path = path
        self.file = path.open("a", encoding="utf-8")

    def add(self, outcome: dict[str, Any]) -> None:
        self.outcomes.append(outcome)
        self.file.write(json.dumps(outcome) + "\n")
        self.file.flush()

    def done(self) -> set[Task]:
        return {(o["case"], o["direction"]) for o in self.outcomes}


def newest_source() -> float:
    """Returns the time at which our code last changed, the built extension included (seconds since the epoch)."""
    folders = [ROOT / "torch_ocl_compile", ROOT / "tests" / "conformance"]
    files = [f for folder in folders for suffix in ("*.py", "*.so") for f in folder.rglob(suffix)]
    return max(f.stat().st_mtime for f in files)


def run(options: argparse.Namespace) -> int:
    import torch

    from benchmarks.harness.origin import commit

    found = runtime_of(options.device)
    chosen = tasks(options.match, options.dtypes, options.directions, found.has_fp64)
    samples = "all" if options.all_samples else "0"
    what = {"runtime": found.name, "torch": torch.__version__, "all_samples": options.all_samples}
    what |= {"commit": commit(), "driver": found.driver, "opencl": found.opencl}
    dtypes = " ".join(options.dtypes) or "all types"
    which = f", {options.match}" if options.match else ""
    long = long_runs.begin(f"conformance, {dtypes}{which}", options.device, "cases", options)
    seconds = 60 * options.minutes or options.seconds
    journal = Journal(Path(options.out + ".partial"), {**what, "match": options.match, "source": newest_source()})
    left = [t for t in chosen if t not in journal.done()]
    begun = said = time.monotonic()
    for outcome in run_all(left, [options.device, samples], options.jobs, options.limit, seconds):
        journal.add(outcome)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            say(journal.outcomes, len(chosen), begun)
    say(journal.outcomes, len(chosen), begun)
    if not {*chosen} <= journal.done():
        print(f"stopped after {seconds:.0f} s; the same command goes on", flush=True)
        return STOPPED
    wanted = {*chosen}
    ordered = sorted((o for o in journal.outcomes if (o["case"], o["direction"]) in wanted),
                     key=lambda o: (o["case"], o["direction"] != "forward"))  # fmt: skip
    what["when"] = time.strftime("%Y-%m-%d %H:%M")
    Path(options.out).write_text(json.dumps({**what, "outcomes": ordered}, indent=1), encoding="utf-8")
    journal.path.unlink()
    wrong = expected.check([{**what, "outcomes": ordered}])
    failed = sum(o["status"] == "fail" for o in ordered)
    note = f"{failed} cases do not pass, as {expected.EXPECTED.name} says" if failed and not wrong else ""
    long.end(len(ordered), [line.split(" ")[0] for line in wrong], note=note)
    return 0


def say(outcomes: list[dict[str, Any]], number: int, begun: float) -> None:
    failed = sum(o["status"] == "fail" for o in outcomes)
    print(f"{len(outcomes)}/{number} cases, {failed} fail, {time.monotonic() - begun:.0f} s", flush=True)


@dataclass(frozen=True)
class Runtime:
    name: str  # Of the device and its platform.
    driver: str
    opencl: str
    has_fp64: bool


def runtime_of(device: str) -> Runtime:
    import torch

    import torch_ocl_compile  # noqa: F401

    found = torch.ocl.get_device_properties(device)
    driver, _, opencl = found.driver.partition(", ")
    return Runtime(f"{found.name} ({found.platform_name})", driver, opencl, found.has_fp64)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = made.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run")
    command.add_argument("--out", required=True)
    command.add_argument("--device", default="ocl:0")
    command.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    command.add_argument("--match", default="", help="regular expression on kind:entry:dtype")
    command.add_argument("--dtypes", nargs="*", default=[])
    command.add_argument("--directions", nargs="*", default=["forward", "backward"])
    command.add_argument("--all-samples", action="store_true")
    command.add_argument("--limit", type=float, default=300, help="seconds a case")
    command.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    long_runs.add_options(command)
    for name in ("check", "accept", "keep"):
        command = commands.add_parser(name)
        command.add_argument("results", nargs="+")
        if name == "keep":
            for field in ("when", "commit", "driver", "opencl"):
                command.add_argument(f"--{field}", help="for results that do not say it")
    commands.add_parser("table")
    commands.add_parser("supported")
    return made


def main() -> int:
    options = parser().parse_args()
    if options.command == "run":
        return run(options)
    if options.command == "table":
        table.write()
        return 0
    if options.command == "supported":
        from tests.conformance import supported

        supported.write()
        return 0
    results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in options.results]
    if options.command == "accept":
        expected.write_on_cpu(results)
        return 0
    if options.command == "keep":
        given = {name: value for name in ("when", "commit", "driver", "opencl") if (value := getattr(options, name))}
        print(*kept.keep(results, given), sep="\n")
        return 0
    wrong = expected.check(results)
    print("\n".join(wrong) if wrong else "as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
