# benchmarks/startup.py: seconds until the first step is done, with empty caches and in a second process.
"""python -m benchmarks.startup --models first_op,resnet18,resnet50 --modes training --sides inductor,ocl --rounds 3

Each figure is the time of the first step of a new process minus that of a normal step. It covers tracing, compiling,
building kernels and reading caches, but not the import of torch. Each side runs alone, with separate caches. Inductor
does not freeze the weights of inference here, because that makes its start slower. The columns:
  cold s     all caches are empty, and so are the caches of the driver
  second s   a second process with the caches that the first one left
  kernels    the kernels that the first process of the side ocl compiled, and how many of these in build workers
The model first_op is x + 1 in eager mode, on the side ocl only. Its figure is the time of a whole process minus the
time of a process that only imports torch. So it includes the import of this package and the start of the device.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import torch

from benchmarks import turns
from benchmarks.harness.models import NetworkSettings
from benchmarks.harness.side import settings_in_effect

SIDES = ["inductor", "ocl"]
FIRST_OP = "first_op"
PROGRAM = """
import json, sys, time
begin = time.perf_counter()
import torch
if len(sys.argv) > 1:
    x = torch.ones(1000, device=sys.argv[1])
    assert (x + 1).sum().item() == 2000
seconds, builds = time.perf_counter() - begin, {}
if len(sys.argv) > 1:
    from torch_ocl_compile import _C
    builds = _C.exec.build_counters()
print(json.dumps({"seconds": seconds, **builds}))
"""


def first_step(side: str, name: str, mode: str, settings: NetworkSettings, caches: str) -> tuple[float, dict[str, Any]]:
    """Returns the seconds of the first step minus those of a normal step, and the side's settings and counters of built
    kernels."""
    with settings.process(side, name, mode, caches) as process:
        first = float(process.ask("first"))
        seconds = first - float(process.ask("round"))
        return seconds, {"settings": process.ask("facts")["settings"], **process.ask("builds")}


def measure(side: str, name: str, mode: str, rounds: int, settings: NetworkSettings) -> dict[str, object]:
    cold, second, found = [], [], {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as caches:
            seconds, found = first_step(side, name, mode, settings, caches)
            cold.append(seconds)
            second.append(first_step(side, name, mode, settings, caches)[0])
    return {"model": name, "mode": mode, "side": side, "batch": settings.batch, "precision": settings.precision,
            "cold_s": cold, "second_s": second, **found}  # fmt: skip


def run_op(arguments: list[str], **environment: str) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_first_op(args: argparse.Namespace) -> dict[str, object]:
    cold, second, builds = [], [], {}
    for _ in range(args.rounds):
        alone = run_op([], TORCH_DEVICE_BACKEND_AUTOLOAD="0")["seconds"]
        with tempfile.TemporaryDirectory() as caches:
            folders = {"TORCH_OCL_CACHE_DIR": f"{caches}/ocl", "POCL_CACHE_DIR": f"{caches}/pocl",
                       "CUDA_CACHE_PATH": f"{caches}/nv", "TORCH_OCL_AUTOLOAD": "always"}  # fmt: skip
            builds = run_op([args.ocl_device], **folders)
            cold.append(builds.pop("seconds") - alone)
            second.append(run_op([args.ocl_device], **folders)["seconds"] - alone)
    return {"model": FIRST_OP, "mode": "eager", "side": "ocl", "batch": 1, "precision": "highest", "cold_s": cold,
            "second_s": second, "settings": settings_in_effect("ocl", torch.device(args.ocl_device), "highest"), **builds}  # fmt: skip


def print_row(row: dict) -> None:
    cells = [f"{row['model']:16s} {row['mode']:10s} {row['side']:9s}"]
    for key in ("cold_s", "second_s"):
        cells.append(f"{statistics.median(row[key]):8.2f} ({min(row[key]):.2f} to {max(row[key]):.2f})")
    cells.append(f"  {row['built']:.0f}, {row['by_workers']:.0f} in workers" if row["side"] == "ocl" else "")
    print(" ".join(cells), flush=True)


def main() -> None:
    args = turns.parser_of_networks(__doc__, [FIRST_OP, "resnet18"], ["training"], SIDES, 3).parse_args()
    settings, file = turns.settings_of(args, freezing=False), turns.ResultFile("startup", args)
    chosen = [(name, mode, side) for name in args.models for mode in args.modes for side in args.sides]
    if FIRST_OP in args.models:
        chosen = [(FIRST_OP, "eager", "ocl"), *(case for case in chosen if case[0] != FIRST_OP)]
    for name, mode, side in chosen:
        row = measure_first_op(args) if name == FIRST_OP else measure(side, name, mode, args.rounds, settings)
        print_row(row)
        file.add(row)


if __name__ == "__main__":
    main()
