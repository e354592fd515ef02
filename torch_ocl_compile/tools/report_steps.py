# torch_ocl_compile/tools/report_steps.py: the steps of a device report, and the process in which they run.
"""`python -m torch_ocl_compile.tools.report_steps {"device": 0, "done": [...]}` runs the steps of a device that are not
done yet. It answers with lines of JSON: {"steps": names}, then for each step {"begin": name} and {"end": name, "result":
...}. A step that fails has a result with "problem". A driver that crashes or hangs ends this process only:
device_report.py then starts another one for the rest.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.device.profile import measured_peak
from torch_ocl_compile.tools import doctor, report_timings

Step = Callable[[], dict[str, Any]]


def steps_of(index: int) -> dict[str, Step]:
    """Returns the steps of a device in their order, by name. The part of a name before ": " is the section of the report."""
    device = torch.device("ocl", index)
    return {
        "device: facts": partial(_facts, index),
        "device: peaks": partial(_peaks, index),
        **{f"checks: {check.name}": partial(_check, check, device) for check in doctor.CHECKS},
        **{f"timings: {timing.name}": partial(report_timings.measure, timing, device) for timing in report_timings.TIMINGS},
        "network: resnet18": partial(report_timings.measure_network, device),
        **{f"kernels: {kernel} {kind}": partial(_kernel, index, kernel, level, kind)
           for kernel, level, kind in _C.exec.kernels_to_check(index)},
    }  # fmt: skip


def _facts(index: int) -> dict[str, Any]:
    return {
        "properties": asdict(torch_ocl.get_device_properties(index)),
        "probes": _C.device_probes(index),
        "opencl": _C.device_facts(index),
    }


def _peaks(index: int) -> dict[str, Any]:
    peak = measured_peak(index)
    return {"peaks": {"gbytes_per_second": peak.bytes / 1e9, "gflops": peak.flops / 1e9}}


def _check(check: doctor.Check, device: torch.device) -> dict[str, Any]:
    return doctor.examine_one(check, device).row()


def _kernel(index: int, kernel: str, level: str, kind: str) -> dict[str, Any]:
    fault = _C.exec.fault_of_kernel(index, kernel, kind)
    return {"level": level, "right": not fault, "fault": fault}


def run(step: Step) -> dict[str, Any]:
    """Runs a step. An error is in the result."""
    start = time.perf_counter()
    try:
        result = step()
    except Exception as error:  # Whatever a driver does, the other steps go on.
        result = {"problem": f"{type(error).__name__}: {error}"}
    return {**result, "seconds": time.perf_counter() - start}


def main() -> None:
    # Drivers write to standard output too, which must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    given = json.loads(sys.argv[1])

    def answer(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=answers, flush=True)

    steps = steps_of(given["device"])
    answer({"steps": list(steps)})
    for name, step in steps.items():
        if name not in given["done"]:
            answer({"begin": name})
            answer({"end": name, "result": run(step)})


if __name__ == "__main__":
    main()
