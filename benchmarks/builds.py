# benchmarks/builds.py: times networks with two or more builds of this project, in one interleaved run.
"""python benchmarks/builds.py before=OTHER/.venv/bin/python after=.venv/bin/python --networks resnet18,gpt

A build is NAME=PYTHON, or NAME=PYTHON:FOLDER to put FOLDER in front of PYTHONPATH. Every build runs the networks of this
checkout in a process of its own, with caches of its own. The builds run in turn, round by round. A row has the median time
of a step in ms, the time of the first build divided by it, and the number of kernels that a step launches.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from torch_ocl_compile.bench.process import SideProcess


def started(build: str, settings: dict[str, Any], caches: str) -> tuple[str, SideProcess]:
    """Starts a build's process. `build`: NAME=PYTHON or NAME=PYTHON:FOLDER. Returns its name and the process."""
    name, _, rest = build.partition("=")
    python, _, folder = rest.partition(":")
    path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
    variables = {"PYTHONPATH": path} if path else {}
    return name, SideProcess("network_side.py", settings, caches=f"{caches}/{name}", python=python, variables=variables)


def compare(builds: tuple[str, ...], settings: dict[str, Any], rounds: int, caches: str) -> list[dict[str, Any]]:
    """Times one network with all builds. Returns a row for each."""
    with ExitStack() as stack:
        processes = dict(started(build, settings, caches) for build in builds)
        for process in processes.values():
            stack.enter_context(process)
            process.send("first")
        for process in processes.values():
            process.answer()
        for process in processes.values():
            process.ask("choose")
            process.ask("round")
        times: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(rounds):
            for name, process in processes.items():
                times[name].append(float(process.ask("round")))
        first = statistics.median(next(iter(times.values())))
        return [
            {"network": settings["name"], "mode": settings["mode"], "precision": settings["precision"], "build": name,
             "ms": 1e3 * statistics.median(found), "ratio": first / statistics.median(found),
             "launches": processes[name].ask("launches"), "rounds_ms": [1e3 * t for t in found]}
            for name, found in times.items()
        ]  # fmt: skip


@click.command(help=__doc__)
@click.argument("builds", nargs=-1, required=True)
@click.option("--networks", default="resnet18,gpt")
@click.option("--modes", default="inference,training")
@click.option("--precisions", default="highest")
@click.option("--batch", default=8)
@click.option("--rounds", default=7)
@click.option("--calls", default=3)
@click.option("--threads", default=1)
@click.option("--device", default="ocl:0")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Writes the rows to this file.")
def main(builds: tuple[str, ...], networks: str, modes: str, precisions: str, out: Path | None, **options: Any) -> None:
    console, rows = Console(), []
    with tempfile.TemporaryDirectory() as caches:
        for precision in precisions.split(","):
            for name in networks.split(","):
                for mode in modes.split(","):
                    settings = {"side": "ocl", "name": name, "mode": mode, "precision": precision, "calls": options["calls"],
                                "batch": options["batch"], "threads": options["threads"], "ocl_device": options["device"]}  # fmt: skip
                    found = compare(builds, settings, options["rounds"], caches)
                    rows += found
                    for row in found:
                        console.print(f"{name} {mode} {precision}: {row['build']} {row['ms']:.3f} ms, {row['ratio']:.3f}, "
                                      f"{row['launches']} launches")  # fmt: skip
                    if out:
                        out.write_text(json.dumps(rows, indent=1))
    table = Table("network", "mode", "precision", "build", "ms", "ratio", "launches")
    for row in rows:
        table.add_row(*(f"{row[c]:.3f}" if isinstance(row[c], float) else str(row[c]) for c in list(row)[:7]))
    console.print(table)


if __name__ == "__main__":
    main()
