# benchmarks/packages.py: packages beside AOTInductor's: size of the file, start of a new process, time of a call.
"""python -m benchmarks.packages --models resnet50,mobilenet_v2,gpt2 --rounds 3 --write

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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import networks
from benchmarks.harness.origin import origin
from benchmarks.harness.results import text_of
from torch_ocl_compile import package

SIDES = ("ocl", "aoti")
TITLES = {"ocl": "this project", "aoti": "AOTInductor"}
RESULTS = Path(__file__).resolve().parent / "packages.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "packages.md"
BEGIN, END = "<!-- python -m benchmarks.packages --write -->\n", "<!-- end -->"
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
    vision = networks.import_torchvision()  # Before transformers, which imports it too.
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
    return getattr(vision.models, name)(weights=None).eval(), torch.randn(1, 3, 224, 224)


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


def block(found: dict[str, Any]) -> str:
    """Returns the table of docs/packages.md."""
    lines = [
        f"Measured on {found['when']}, commit {found['commit']}, torch {found['torch']}, {found['cpu']}, {found['threads']} threads, "
        "batch 1 (GPT-2: 128 tokens).",
        "",
        "| model | side | MiB | save s | import s | start s | call ms |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in found["rows"]:
        for side in SIDES:
            r = row[side]
            figures = (r["mib"], r["save_s"], r["import_s"], min(r["start_s"]), statistics.median(r["call_ms"]))
            lines.append(f"| {row['model']} | {TITLES[side]} | " + " | ".join(f"{f:.2f}" for f in figures) + " |")
    return "\n".join(lines) + "\n"


def on_page() -> str:
    """Returns the table that stands in docs/packages.md."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def write(found: dict[str, Any]) -> None:
    RESULTS.write_text(text_of(found), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(BEGIN + on_page() + END, BEGIN + block(found) + END), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v2,gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of calls in a round")
    parser.add_argument(
        "--write", action="store_true", help="keep the results, and put the table into docs/packages.md"
    )
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
    if arguments.write:
        cpu = torch.ocl.get_device_name(0)
        write({**origin(), "cpu": cpu, "threads": torch.get_num_threads(), "rows": rows})


if __name__ == "__main__":
    main()
