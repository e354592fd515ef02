# torch_ocl_compile/tools/bench.py: times a user's model in eager PyTorch, Inductor and this backend, in one interleaved run.
"""Each side has a process of its own, since torch has one accelerator per process. The sides run in turn, round by round, so that
a change of the machine's speed reaches all."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_ocl_compile.errors import ToolError

SIDES = ("eager", "inductor", "ocl")


class _Side:
    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name, self.log = name, tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe nobody reads would fill up)
        # torch has one accelerator: beside ocl, CUDA's tensors have no backward.
        environment = os.environ | ({} if name == "ocl" else {"TORCH_OCL_AUTOLOAD": "never"})
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("bench_side.py")), name, *arguments], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)  # fmt: skip

    def ask(self, calls: int) -> float:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says why.
            self.process.stdin.write(f"{calls}\n")
            self.process.stdin.flush()
        return float(self.answer())

    def answer(self) -> Any:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return json.loads(line)
        status = self.process.wait()
        self.log.seek(0)
        said = [line.strip() for line in self.log if line.strip()]
        raise ToolError(f"the side {self.name} ended with status {status}: {said[-1] if said else 'it said nothing'}")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


def measure(
    sides: list[str], arguments: list[str], rounds: int, calls: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Returns a row for each side: its device, the median of its rounds in milliseconds, their spread, and the time of the first
    side divided by its own. `arguments`: those of bench_side.py behind the side."""
    running = [_Side(name, arguments) for name in sides]
    try:
        say("compiling")
        devices = [side.answer() for side in running]
        times: list[list[float]] = [[] for _ in running]
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for side, found in zip(running, times, strict=True):
                found.append(side.ask(calls) * 1e3)
    finally:
        for side in running:
            side.end()
    medians = [statistics.median(found) for found in times]
    return [
        {"side": name, "device": device, "ms": ms, "ratio": medians[0] / ms, "spread": (max(found) - min(found)) / ms}
        for name, device, ms, found in zip(sides, devices, medians, times, strict=True)
    ]
