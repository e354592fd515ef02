# benchmarks/models.py: whole networks, compiled and eager, in one interleaved run.
"""python benchmarks/models.py --models alexnet,resnet18 --sides eager,inductor,ocl

Every side runs the same network on the same input, in a process of its own. The sides run in turn, for --rounds rounds. Each timed
call ends with a wait for the device. Inputs lie on the device; with --from-host they lie on the host and each step copies them. A
training step is forward, cross entropy, backward and a step of Adam. The columns:
  ms        median of the rounds
  ratio     time of the first side over the time of this side
  spread    distance between the quartiles of the rounds, divided by the median
  cold s    seconds of the first call of a new process with empty caches
  warm s    the same with the caches that the cold process left
  error     largest difference of an inference's output to fp64 on the CPU, divided by the largest output"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

PRECISIONS = ("highest", "high", "bf16", "fp16")
PRECISION_HELP = "precision of all sides: fp32 (highest), fp32 with TF32 products (high), or autocast to bf16 or fp16"


class Process:
    """The process of one side. `ask("round")` sends a command and returns the answer."""

    def __init__(self, side: str, name: str, mode: str, args: argparse.Namespace, caches: str | None = None) -> None:
        settings = {"side": side, "name": name, "mode": mode, "batch": args.batch, "size": args.size, "ocl_device": args.ocl_device,
                    "threads": args.threads, "calls": args.calls, "precision": args.precision, "from_host": args.from_host}  # fmt: skip
        environment = dict(os.environ)
        if side != "ocl":
            environment["TORCH_OCL_AUTOLOAD"] = "never"
        if caches is not None:
            environment |= {
                "TORCH_OCL_CACHE_DIR": f"{caches}/ocl",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                "POCL_CACHE_DIR": f"{caches}/pocl",
                "CUDA_CACHE_PATH": f"{caches}/nv",
            }
        command = [sys.executable, str(Path(__file__).with_name("side.py")), json.dumps(settings)]
        self.log = None if args.verbose else tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe nobody reads would fill up)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )

    def ask(self, command: str):
        self.send(command)
        return self.answer()

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says why
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()

    def answer(self):
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            if self.log is not None:
                self.log.seek(0)
                print(self.log.read()[-4000:], file=sys.stderr)
            raise SystemExit(f"a side stopped with status {self.process.returncode}")
        return json.loads(answer)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()


def first_call_seconds(side: str, name: str, mode: str, args: argparse.Namespace, caches: str) -> float:
    with Process(side, name, mode, args, caches) as process:
        return float(process.ask("first"))


def compare(name: str, mode: str, args: argparse.Namespace) -> list[dict]:
    rounds: dict[str, list[float]] = {side: [] for side in args.sides}
    facts = {}
    processes = {side: Process(side, name, mode, args) for side in args.sides}
    try:
        for process in processes.values():  # all compile at once; nothing is timed yet
            process.send("first")
        for process in processes.values():
            process.answer()
        for process in processes.values():
            process.ask("round")
        for _ in range(args.rounds):
            for side, process in processes.items():
                rounds[side].append(float(process.ask("round")))
        for side, process in processes.items():
            facts[side] = process.ask("facts")
    finally:
        for process in processes.values():
            process.__exit__()
    first = statistics.median(rounds[args.sides[0]])
    rows = []
    for side, times in rounds.items():
        seconds = statistics.median(times)
        quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [seconds] * 3
        row = {"model": name, "mode": mode, "side": side, "precision": args.precision, "batch": args.batch, "ms": seconds * 1e3,
               "ratio": first / seconds, "spread": (quartiles[2] - quartiles[0]) / seconds,
               "rounds_ms": [t * 1e3 for t in times], **facts[side]}  # fmt: skip
        if args.compile_times and side != "eager":
            with tempfile.TemporaryDirectory() as caches:
                row["cold_s"] = first_call_seconds(side, name, mode, args, caches)
                row["warm_s"] = first_call_seconds(side, name, mode, args, caches)
        rows.append(row)
    return rows


def print_row(row: dict) -> None:
    nan = float("nan")
    cells = [
        f"{row['model']:16s} {row['mode']:10s} {row['side']:9s} {row['ms']:9.3f} {row['ratio']:6.2f} {row['spread']:7.1%}"
    ]
    cells += [
        f"{row.get('cold_s', nan):7.1f} {row.get('warm_s', nan):7.1f} {row['peak_mib']:9.0f} {row['error']:8.1e}  {row['device']}"
    ]
    print(" ".join(cells).replace("nan", "  -"), flush=True)


def names(text: str) -> list[str]:
    return text.split(",")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of one comparison, which compare.py has too."""
    parser.add_argument("--models", type=names, default=["alexnet", "resnet18"])
    parser.add_argument("--sides", type=names, default=["eager", "inductor", "ocl"])
    parser.add_argument("--modes", type=names, default=["inference", "training"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="image height and width")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3, help="timed calls a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--no-compile-times", dest="compile_times", action="store_false")
    parser.add_argument(
        "--from-host", action="store_true", help="the input lies on the host, a step copies it to the device"
    )
    parser.add_argument("--verbose", action="store_true", help="show what the sides print")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--precision", choices=PRECISIONS, default="highest", help=PRECISION_HELP)
    args = parser.parse_args()

    print(f"torch {torch.__version__}; batch {args.batch}, images {args.size} x {args.size}, precision {args.precision}, "
          f"{args.threads} CPU threads; "
          f"{args.rounds} interleaved rounds of {args.calls} calls, median")  # fmt: skip
    print(
        f"{'model':16s} {'mode':10s} {'side':9s} {'ms':>9s} {'ratio':>6s} {'spread':>7s} {'cold s':>7s} {'warm s':>7s} "
        f"{'peak MiB':>9s} {'error':>8s}  device"
    )
    rows = []
    for name in args.models:
        for mode in args.modes:
            for row in compare(name, mode, args):
                print_row(row)
                rows.append(row)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
