# torch_ocl_compile/tools/device_report.py: makes, writes and reads the file of `torch-ocl doctor --report`.
"""The file is text for people, then a line with MARK, then the same and more as JSON. `FORMAT` is the version of the JSON: a
number that grows when a field changes its meaning or goes away. New fields may come without it.

Each device is examined in a process of its own (report_steps.py), so a driver that crashes costs one step. Nothing in the file
names the user or the machine: of a path only the last part is kept, and of the environment only our own options.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

import torch

from torch_ocl_compile import _C, __version__
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.report_text import lines, scrubbed

FORMAT = 1
MARK = "======== the same as JSON, and more ========"
LONGEST_STEP = 60.0  # Seconds. A step that takes longer counts as one that does not end.
MOST_ENDS = 4  # Number of processes that may crash or hang on a device before its other steps are given up.
MOST_MESSAGES = 40  # Lines of standard error that are kept, the last ones.
PROGRAM = ("-m", "torch_ocl_compile.tools.report_steps")
_SECTIONS = ("device", "checks", "timings", "network", "kernels")
_BETWEEN = "device: start and end"  # Where a process is that runs no step.
_CACHES = ("TORCH_OCL_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")


def make(options: Mapping[str, object], seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Examines all devices, each for `seconds` at most. `options`: the variables of ours that are set. `say` is called with
    what is being done. Steps for which no time was left are in the list "not_run" of their device."""
    count = torch_ocl.device_count()
    devices = [_examined(index, seconds, say) for index in range(count)]
    report: dict[str, Any] = scrubbed(
        {
            "format": FORMAT,
            "made": time.strftime("%Y-%m-%d", time.gmtime()),
            "versions": {
                "torch_ocl_compile": __version__,
                "build": _C.build_id(),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "system": f"{platform.system()} {_numbers(platform.release())} {platform.machine()}",
                "libc": " ".join(platform.libc_ver()),
            },
            "options": {name: str(value) for name, value in options.items()},
            "problems": torch_ocl.device_problems(),
            "devices": devices,
            "healthy": bool(devices) and not any(found["faults"] for found in devices),
        }
    )
    return report


def _numbers(release: str) -> str:
    """Returns the numbers of a kernel's version. What follows them may be somebody's name."""
    found = re.match(r"\d+(\.\d+)*", release)
    return found[0] if found else ""


# One device


def _examined(index: int, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    start = time.monotonic()
    results: dict[str, dict[str, Any]] = {}
    steps: list[str] = []
    messages: list[str] = []
    ends = 0
    # Its own cache: times of a first call include compilation, and nobody's stored choices are followed.
    with tempfile.TemporaryDirectory() as cache:
        while ends < MOST_ENDS and (left := seconds - (time.monotonic() - start)) > 0:
            with _Process(index, list(results), cache) as process:
                complete = process.follow(results, steps, left, lambda step: say(f"ocl:{index}: {step}"))
                messages += process.messages()
            if complete:
                break
            ends += 1
    found: dict[str, Any] = {"device": f"ocl:{index}", "healthy": not faults(results)}
    for section in _SECTIONS:
        found |= _section(section, results)
    found["not_run"] = [step for step in steps if step not in results] if steps else ["all steps"]
    found["faults"] = faults(results)
    found["messages"] = messages[-MOST_MESSAGES:]
    found["seconds"] = time.monotonic() - start
    return found


def _section(section: str, results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    own = {name.partition(": ")[2]: result for name, result in results.items() if name.startswith(f"{section}: ")}
    if section == "device":
        merged: dict[str, Any] = {}
        for name, result in own.items():
            merged |= {key: value for key, value in result.items() if key not in ("seconds", "problem")}
            if result.get("problem"):
                merged[f"{name}_problem"] = result["problem"]
        return merged
    if section == "network":
        return {"network": next(iter(own.values()), None)}
    return {section: [{"name": name, **result} for name, result in own.items()]}


def faults(results: Mapping[str, dict[str, Any]]) -> list[str]:
    """Returns a line for each step that failed or gave wrong results."""
    lines = []
    for name, result in results.items():
        problem = str(result.get("problem") or result.get("fault") or "").strip()
        if problem:
            lines.append(f"{name}: {problem.splitlines()[0]}")
        elif result.get("healthy") is False or result.get("right") is False:
            error, allowed = result.get("error"), result.get("tolerance")
            size = "not finite" if error is None else f"off by {error:.0e}"
            lines.append(f"{name}: WRONG RESULTS: {size} where {allowed:.0e} is allowed")
    return lines


class _Process:
    """The process that runs the steps of a device. A thread reads its answers, so that waiting for one can end."""

    def __init__(self, index: int, done: list[str], cache: str) -> None:
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  (a pipe nobody reads would fill up)
        settings = json.dumps({"device": index, "done": done})
        self.process = subprocess.Popen(
            [sys.executable, *PROGRAM, settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **dict.fromkeys(_CACHES, cache)},
        )
        assert self.process.stdout is not None
        self.answers: Queue[str] = Queue()
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, pipe: IO[str]) -> None:
        for line in pipe:
            self.answers.put(line)
        self.answers.put("")

    def follow(
        self, results: dict[str, dict[str, Any]], steps: list[str], seconds: float, say: Callable[[str], None]
    ) -> bool:
        """Adds the results of the steps, until the process or the time ends. Returns False if another process should run the
        rest. The step in which a process ended or hung has a problem."""
        end = time.monotonic() + seconds
        running, limit = "", LONGEST_STEP
        while True:
            try:
                line = self.answers.get(timeout=max(0.0, min(limit, end - time.monotonic())))
            except Empty:
                if time.monotonic() < end:
                    results[running or _BETWEEN] = {"problem": f"it did not end within {limit:.0f} seconds"}
                    return False
                return True
            if not line:
                status = self.process.wait()
                if status or running:
                    results[running or _BETWEEN] = {"problem": _end_of(status)}
                return bool(steps) and set(steps) <= results.keys()
            answer = json.loads(line)
            if "steps" in answer:
                steps[:] = answer["steps"]
            elif "begin" in answer:
                running = answer["begin"]
                say(running)
            else:
                results[answer["end"]] = answer["result"]
                running = ""

    def messages(self) -> list[str]:
        self.errors.seek(0)
        return [line.rstrip()[:300] for line in self.errors if line.strip()]

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def _end_of(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the process was ended by {name}: the driver, or a kernel, crashed"


# The file


def write(report: Mapping[str, Any], path: Path) -> None:
    path.write_text(
        "\n".join([*lines(report), "", MARK, json.dumps(report, indent=1, allow_nan=False), ""]), encoding="utf-8"
    )


def read(path: Path) -> dict[str, Any]:
    """Returns what a file holds. ToolError if it is no report, or one of a newer format."""
    _, mark, text = path.read_text(encoding="utf-8").partition(f"\n{MARK}\n")
    try:
        report: dict[str, Any] = json.loads(text)
        version = int(report["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path} is no device report: {error if mark else 'it has no part in JSON'}") from error
    if version > FORMAT:
        raise ToolError(
            f"{path} has format {version}, and this version reads {FORMAT}.\n  do: use a newer torch_ocl_compile"
        )
    return report
