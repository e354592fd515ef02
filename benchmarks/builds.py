# benchmarks/builds.py: times networks with two or more builds of this project, in one interleaved run.
"""python -m benchmarks.builds before=OTHER/.venv/bin/python after=.venv/bin/python --models resnet18,gpt

A build is NAME=PYTHON, or NAME=PYTHON:FOLDER to put FOLDER in front of PYTHONPATH. Every build runs the networks of this
checkout in a process of its own, with caches of its own. The builds run in turn, round by round. A line has the median time
of a step in ms, the time of the first build divided by it, the error, and the number of kernels that a step launches.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

from benchmarks import turns
from benchmarks.harness.models import NetworkSettings, compare
from benchmarks.harness.process import SideProcess


@dataclass(frozen=True)
class Builds(NetworkSettings):
    """The sides are builds, by name."""

    pythons: dict[str, str] = field(default_factory=dict)
    caches: str = ""

    def started(self, side: str, given: dict[str, Any], caches: str | None) -> SideProcess:
        python, _, folder = self.pythons[side].partition(":")
        path = os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)
        return SideProcess("network_side.py", given | {"side": "ocl"}, caches=f"{self.caches}/{side}", verbose=self.verbose,
                           python=python, variables={"PYTHONPATH": path} if path else {})  # fmt: skip


def main() -> None:
    parser = turns.parser_of_networks(__doc__, ["resnet18", "gpt"], ["inference", "training"], [], 7)
    parser.add_argument("builds", nargs="+", metavar="NAME=PYTHON[:FOLDER]")
    parser.set_defaults(threads=1)
    given = parser.parse_args()
    pythons = dict(build.split("=", 1) for build in given.builds)
    file = turns.ResultFile("networks", given)
    with tempfile.TemporaryDirectory() as caches:
        settings = turns.settings_of(given, Builds, sides=list(pythons), pythons=pythons, caches=caches)
        for name, mode in itertools.product(given.models, given.modes):
            rows = compare(name, mode, settings, lambda text: None)
            file.add(*(row | {"protocol": "resident"} for row in rows))
            for row in rows:
                print(f"{name:16s} {mode:9s} {row['side']:12s} {row['ms']:9.3f} ms {row['ratio']:6.3f}  error {row['error'] or 0:.1e}"
                      f"  {row['launches']} launches", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
