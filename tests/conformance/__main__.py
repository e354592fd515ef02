# tests/conformance/__main__.py: the whole of op_db and module_db: run it, compare with what is expected, write the table.
"""python -m tests.conformance run   --out results.json [--device ocl:0] [--jobs 2] [--match regex] [--all-samples]
python -m tests.conformance table    results.json ...     writes docs/conformance.md
python -m tests.conformance check    results.json ...     fails on what expected.csv does not say, both ways
python -m tests.conformance inductor --out results.json   what Inductor compiles (inductor.py): two samples, backward where there is one
python -m tests.conformance list     results.json ...     writes inductor.txt from an inductor run"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.conformance import expected, table
from tests.conformance.workers import Task, run_all


def tasks(match: str, dtypes: list[str], directions: list[str]) -> list[Task]:
    from tests.conformance import cases

    found = []
    for case in cases.cases():
        if re.search(match, case.name) and (not dtypes or case.name.rsplit(":", 1)[1] in dtypes):
            found.append((case.name, cases.FORWARD))
            if case.has_gradient:
                found.append((case.name, cases.BACKWARD))
    return [t for t in found if t[1] in directions]


def run(options: argparse.Namespace, device: str, backend: str) -> None:
    chosen = tasks(options.match, options.dtypes, options.directions)
    runtime = runtime_name(device) if backend == "ocl" else backend
    outcomes: list[dict[str, Any]] = []
    begun = said = time.monotonic()
    samples = "all" if options.all_samples else "0"
    if backend == "inductor":
        graded = {case for case, direction in chosen if direction == "backward"}
        chosen, samples = [t for t in chosen if t[1] == "backward" or t[0] not in graded], "2"
    arguments = [device, backend, samples]
    for outcome in run_all(chosen, arguments, options.jobs, options.limit):
        outcomes.append(outcome)
        if time.monotonic() - said > 20 or len(outcomes) == len(chosen):
            said = time.monotonic()
            failed = sum(o["status"] == "fail" for o in outcomes)
            print(f"{len(outcomes)}/{len(chosen)} cases, {failed} fail, {said - begun:.0f} s", flush=True)
            save(options.out, runtime, options, outcomes)
    save(options.out, runtime, options, outcomes)


def save(path: str, runtime: str, options: argparse.Namespace, outcomes: list[dict[str, Any]]) -> None:
    import torch

    what = {"runtime": runtime, "torch": torch.__version__, "all_samples": options.all_samples}
    ordered = sorted(outcomes, key=lambda o: (o["case"], o["direction"] != "forward"))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({**what, "outcomes": ordered}, indent=1))


def runtime_name(device: str) -> str:
    import torch

    import torch_ocl_compile  # noqa: F401

    found = torch.ocl.get_device_properties(device)
    return f"{found.name} ({found.platform_name})"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = made.add_subparsers(dest="command", required=True)
    for name in ("run", "inductor"):
        command = commands.add_parser(name)
        command.add_argument("--out", required=True)
        command.add_argument("--device", default="ocl:0" if name == "run" else "cpu")
        command.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
        command.add_argument("--match", default="", help="regular expression on kind:entry:dtype")
        command.add_argument("--dtypes", nargs="*", default=[] if name == "run" else ["float32"])
        command.add_argument("--directions", nargs="*", default=["forward", "backward"])
        command.add_argument("--all-samples", action="store_true")
        command.add_argument("--limit", type=float, default=300 if name == "run" else 900, help="seconds a case")
    for name in ("table", "check", "list"):
        commands.add_parser(name).add_argument("results", nargs="+")
    return made


def main() -> int:
    options = parser().parse_args()
    if options.command == "run":
        run(options, options.device, "ocl")
        return 0
    if options.command == "inductor":
        run(options, options.device, "inductor")
        return 0
    results = [json.loads(Path(path).read_text()) for path in options.results]
    if options.command == "table":
        table.write(results)
        return 0
    if options.command == "list":
        expected.write_inductor(results)
        return 0
    wrong = [line for result in results for line in expected.unexpected(result["runtime"], result["outcomes"])]
    print("\n".join(wrong) if wrong else "as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
