# tests/fuzz/__main__.py: runs random programs on one device and compares with PyTorch on the CPU.
"""python -m tests.fuzz --count 20000 --seed 1 --device ocl:0 --jobs 2 --out build/fuzz

It prints a summary by kind and exits with 1 on a failure. A failure is shrunk and written to OUT/<kind>/ as a script
that needs only torch and torch_ocl_compile. A seed and a count select the same programs on every machine (for one
version of torch and of Hypothesis). `--from SEED:BATCH` goes on at a batch of a seed; `--from last` goes on with the
recorded run until it has COUNT programs. `--seed fresh` draws a seed and prints it. The output ends with the scripts of
the first failing programs.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests import long_runs
from tests.fuzz.program import PARTS, Program
from tests.fuzz.redraw import redraw
from tests.fuzz.runner import CRASH, TIMEOUT, Run, Worker
from tests.fuzz.script import script
from tests.fuzz.shrink import shrink
from tests.fuzz.worker import Source, batch_size

FRESH = "fresh"
SCRIPTS = 3
FINE = ("ok", "skipped", "as torch without us")


class Report:
    """Counts outcomes and writes failures to files."""

    def __init__(self, run: Run, shrinks: int, shrink_s: float) -> None:
        self.run, self.shrinks, self.shrink_s = run, shrinks, shrink_s
        self.kinds: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        self.unstable = self.done = 0
        self.made_s = self.cpu_s = 0.0
        self.alike: Counter[str] = Counter()
        # (kind, file, text)
        self.files: list[tuple[str, str, str]] = []
        # (kind, batch)
        self.failing: list[tuple[str, int]] = []
        self.worker = Worker(run.device, run.limit_s, run.out / "shrink.log")
        self.started = self.said = time.monotonic()

    def take(self, outcome: dict[str, Any]) -> None:
        self.done += 1
        self.kinds[outcome["kind"]] += 1
        self.unstable += bool(outcome.get("unstable"))
        self.made_s += outcome.get("made_s", 0.0)
        self.cpu_s += outcome.get("cpu_s", 0.0)
        self.fallbacks.update(outcome.get("fallbacks", ()))
        self.parts.update(outcome.get("parts", ()))
        if outcome["kind"] not in FINE:
            self.failing.append((outcome["kind"], outcome["batch"]))
            self._failure(outcome)
        if time.monotonic() - self.said > 10:
            self.said = time.monotonic()
            print(self.line(), flush=True)

    def line(self) -> str:
        seconds = time.monotonic() - self.started
        failed = sum(n for kind, n in self.kinds.items() if kind not in FINE)
        return f"{self.done} programs, {failed} fail, {seconds:.0f} s, {60 * self.done / seconds:.0f} a minute"

    def _failure(self, outcome: dict[str, Any]) -> None:
        alike = f"{outcome['kind']}: {_without_numbers(outcome['text'])}"
        self.alike[alike] += 1
        program = self._program(outcome)
        if program is None:
            self.files.append((outcome["kind"], "", f"batch {outcome['batch']}: {outcome['text']}"))
            print(f"{outcome['kind']}: batch {outcome['batch']}: {outcome['text']}", flush=True)
            return
        text = outcome["text"]
        if self.shrinks > 0 and self.alike[alike] <= 3:
            self.shrinks -= 1
            program, text = self._shrunk(program, outcome)
        place = f"{self.run.seed}_{outcome['batch']}" + ("" if outcome["member"] is None else f"_{outcome['member']}")
        path = self.run.out / re.sub(r"\W+", "_", outcome["kind"]) / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        more = f" --more {parts}" if (parts := os.environ.get("TORCH_OCL_FUZZ_MORE")) else ""
        how = f"python -m tests.fuzz --seed {self.run.seed} --first {outcome['batch']} --count 1 --device {self.run.device}{more}"
        path.write_text(script(program, f"{outcome['kind']}: {text}", how))
        self.files.append((outcome["kind"], str(path), text))
        print(f"{outcome['kind']}: {path}: {text[:200]}", flush=True)

    def _program(self, outcome: dict[str, Any]) -> Program | None:
        """Returns the failing program. It is generated again if its process crashed or hung before it could report it."""
        if outcome["program"] is not None:
            return Program.from_dict(outcome["program"])
        if outcome["kind"] not in (CRASH, TIMEOUT):
            return None
        made = self.worker.ask({"seed": self.run.seed, "batch": outcome["batch"], "show": True})
        member = outcome["member"] or 0
        # Generating the program may be what crashes.
        found = made[member]["program"] if member < len(made) else None
        return Program.from_dict(found) if found else None

    def _shrunk(self, program: Program, outcome: dict[str, Any]) -> tuple[Program, str]:
        last = [outcome["text"]]
        kind, words = outcome["kind"], _without_numbers(outcome["text"])[:80]

        def fails(smaller: Program, oracle: bool = False) -> bool:
            found = self.worker.ask({"program": smaller.as_dict(), "oracle": oracle}, 30 if kind == TIMEOUT else 0)[0]
            alike = found["kind"] == kind and ("Error" not in words or _without_numbers(found["text"])[:80] == words)
            if alike:
                last[0] = found["text"]
            return alike

        if outcome["member"] is not None or batch_size(self.run.seed, outcome["batch"]) == 1:
            redrawn = redraw(
                Source(), self.run.seed, outcome["batch"], outcome["member"] or 0, fails, self.shrink_s / 3
            )
            program = redrawn or program
        small = shrink(program, fails, self.shrink_s)
        return (small, last[0]) if fails(small, oracle=True) else (program, outcome["text"])

    def summary(self) -> str:
        lines = [f"seed {self.run.seed} on {self.run.device}: {self.line()}"]
        lines += [f"  {count:6d} {kind}" for kind, count in self.kinds.most_common()]
        lines.append(f"  {self.unstable} with elements that prove nothing; workers grew to {self.run.most_mb} MB")
        lines.append(f"  {self.cpu_s:.0f} s of processor time, of which {self.made_s:.0f} s for drawing")
        lines.append("  with " + ", ".join(f"{part} {n}" for part, n in self.parts.most_common()))
        if self.fallbacks:
            lines.append("  fallbacks: " + ", ".join(f"{op} {n}" for op, n in self.fallbacks.most_common(12)))
        lines += [f"  {kind}: {path or 'no script'}: {text[:150]}" for kind, path, text in self.files]
        return "\n".join(lines)

    def scripts(self, count: int) -> str:
        """Returns the scripts of the first failing programs under a headline."""
        found = len(self.failing)
        how = f"python -m tests.fuzz --seed {self.run.seed} --count {count} --device {self.run.device}"
        line = f"{found} of {self.done} random programs fail"
        texts = [
            f"{path or 'no script'}: {text}\n{Path(path).read_text() if path else ''}"
            for _, path, text in self.files[:SCRIPTS]
        ]
        frame = "=" * len(line)
        return "\n".join([frame, line, frame, f"again: {how}", *texts])

    def status(self) -> int:
        """Returns the exit status: 1 if a program fails, or if none of twenty is right, as where the extension does not
        load."""
        return int(self.failed or (self.done >= 20 and self.kinds["ok"] == 0))

    @property
    def failed(self) -> bool:
        return any(kind not in FINE for kind in self.kinds)


def _without_numbers(text: str) -> str:
    """Returns the part of a message that two failures with the same cause share."""
    if "Error" in text:
        return re.sub(r"\d+", "#", text)[:160]
    kinds = re.sub(r"[\d.]+(e[-+]\d+)?", "#", text.split(";")[0])
    return re.sub(r"\(.*", "", kinds)


def _device(text: str) -> str:
    """Returns the name of a device. A wrong name would fail without this project too, so that each program would count
    as torch's failure."""
    if not re.fullmatch(r"ocl:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no device such as ocl:0")
    return text


def options(arguments: list[str]) -> argparse.Namespace:
    made = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--count", type=int, default=300, help="programs")
    made.add_argument("--seed", default="1", help="a text; fresh: a new one")
    made.add_argument("--first", type=int, default=0, help="the batch to begin with")
    made.add_argument(
        "--more", default="", help="parts to draw more often: " + ", ".join([*PARTS, "changing", "weights"])
    )
    made.add_argument("--device", default="ocl:0", type=_device)
    made.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
    made.add_argument("--out", type=Path, default=Path("build/fuzz"))
    made.add_argument("--limit", type=float, default=120, help="seconds a batch may take")
    made.add_argument("--shrink", type=int, default=40, help="failures to shrink at most")
    made.add_argument("--shrink-seconds", type=float, default=90, help="for each of them")
    long_runs.add_options(made, "SEED:BATCH")
    return made.parse_args(arguments)


def main(arguments: list[str]) -> int:
    given = options(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_OCL_FUZZ_MORE"] = given.more  # the worker processes read it too
    long = long_runs.begin("random programs", given.device, "programs", given)
    if long.place:
        given.seed, given.first = long.place.rsplit(":", 1)[0], int(long.place.rsplit(":", 1)[1])
        given.count -= long.done
    elif given.seed == FRESH:
        given.seed = secrets.token_hex(4)
    long.place = f"{given.seed}:{given.first}"
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="torch_ocl_fuzz_") as cache:
        os.environ.setdefault("TORCH_OCL_CACHE_DIR", cache)
        run = Run(
            given.seed, given.count, given.device, given.jobs, given.out, given.first, given.limit, 60 * given.minutes
        )
        report = Report(run, given.shrink, given.shrink_seconds)
        for outcome in run.outcomes():
            report.take(outcome)
        report.worker.stop()
    summary = report.summary()
    (given.out / "summary.txt").write_text(summary + "\n")
    print(summary)
    long.end(report.done, [f"{kind} ({run.seed}:{batch})" for kind, batch in report.failing], f"{run.seed}:{run.next}")
    if report.failed:
        print(report.scripts(given.count))
    return report.status()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
