# benchmarks/packages.py: packages beside AOTInductor's: size of the file, start of a new process, time of a call.
"""python benchmarks/packages.py --models resnet50,mobilenet_v2,gpt2 --rounds 3 --output benchmarks/results/cpu_packages.json

Both sides run inference on the CPU: ours on OpenCL device 0, AOTInductor with frozen weights. The columns:
  MiB       size of the package: ours with the built kernels of the device, AOTInductor's with compiled code and weights
  save s    export and compilation
  start s   a new process: open the package, load the weights, first result. The import of torch, which only AOTInductor
            needs, is given apart
  call ms   one call with its arguments and results on the host: the best of each round; the rounds of the sides alternate
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile import package
from torch_ocl_compile.bench import networks
from torch_ocl_compile.bench.origin import origin

SIDES = ("ocl", "aoti")
PROGRAM = """
import json, sys, time
side, path, data = sys.argv[1:]
start = time.perf_counter()
if side == "ocl":
    import numpy, ocl_run
    imported = time.perf_counter()
    arguments = [numpy.load(data)]
    model = ocl_run.load(path, trust_binaries=True, cache=data + ".cache")
    call = lambda: model(*arguments)
else:
    import torch, numpy
    from torch._inductor import aoti_load_package
    imported = time.perf_counter()
    arguments = [torch.from_numpy(numpy.load(data))]
    model = aoti_load_package(path)
    call = lambda: model(*arguments)
call()
print(json.dumps({"import": imported - start, "start": time.perf_counter() - imported}), flush=True)
for line in sys.stdin:
    times = []
    end = time.perf_counter() + float(line)
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"call": min(times)}), flush=True)
"""


class Process:
    """A new process that has opened a package and called it once."""

    def __init__(self, side: str, path: Path, data: Path) -> None:
        command = [sys.executable, "-c", PROGRAM, side, str(path), str(data)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start = self.answer()

    def answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the side {self.process.args} ended")
        found: dict[str, float] = json.loads(line)
        return found

    def seconds_of_a_call(self, measured_for: float) -> float:
        assert self.process.stdin is not None
        print(measured_for, file=self.process.stdin, flush=True)
        return self.answer()["call"]

    def end(self) -> None:
        self.process.communicate()


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    if name == "gpt2":
        from transformers import GPT2Config, GPT2Model

        class Hidden(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gpt = GPT2Model(GPT2Config())

            def forward(self, ids: torch.Tensor) -> torch.Tensor:
                hidden: torch.Tensor = self.gpt(ids, use_cache=False, return_dict=False)[0]
                return hidden

        return Hidden().eval(), torch.randint(0, 50257, (1, 128))
    return getattr(networks.import_torchvision().models, name)(weights=None).eval(), torch.randn(1, 3, 224, 224)


def save(side: str, folder: Path, model: torch.nn.Module, x: torch.Tensor) -> tuple[Path, float]:
    path, start = folder / f"{side}.{'ocl' if side == 'ocl' else 'pt2'}", time.perf_counter()
    if side == "ocl":
        package.save(path, model, (x,), devices=["0"])
    else:
        with torch.no_grad():
            program = torch.export.export(model, (x,))
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})
    return path, time.perf_counter() - start


def measure(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    import numpy

    torch.manual_seed(0)
    model, x = network(name)
    row: dict[str, Any] = {"model": name}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "x.npy"
        numpy.save(data, x.numpy())
        paths = {}
        for side in SIDES:
            paths[side], saving = save(side, Path(folder), model, x)
            row[side] = {"mib": paths[side].stat().st_size / 2**20, "save_s": saving, "start_s": [], "call_ms": []}
        for _ in range(rounds):
            processes = {}
            for side in SIDES:
                processes[side] = Process(side, paths[side], data)
                row[side]["start_s"].append(processes[side].start["start"])
                row[side]["import_s"] = processes[side].start["import"]
            for side in SIDES:
                row[side]["call_ms"].append(1000 * processes[side].seconds_of_a_call(seconds))
            for process in processes.values():
                process.end()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v2,gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of calls in a round")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models.split(","):
        rows.append(measure(name, arguments.rounds, arguments.seconds))
        for side in SIDES:
            found = rows[-1][side]
            print(
                f"{name:14s} {side:5s} {found['mib']:6.1f} MiB  save {found['save_s']:6.1f} s  import {found['import_s']:.2f} s  "
                f"start {min(found['start_s']):.2f} s  call {min(found['call_ms']):.2f} ms",
                flush=True,
            )
    if arguments.output:
        facts = {**origin(), "cpus": os.cpu_count(), "threads": torch.get_num_threads(), "rows": rows}
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
