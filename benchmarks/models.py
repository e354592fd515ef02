# benchmarks/models.py: whole networks, compiled and eager, in one interleaved run.
"""python benchmarks/models.py --models alexnet,resnet18 --sides eager,inductor,ocl

Every side runs the same network on the same input, in turn, for --rounds rounds; the table has the median of the rounds and
the spread (the distance of the quartiles over the median). Each timed call ends with a wait for its device. A training step is
forward, cross entropy, backward and Adam. Compile seconds are of the first call in a new process: cold with empty caches,
warm with those the cold one left. The ratio is to the first side (above 1: faster than it)."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
import networks


def baseline_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "ocl":
        torch.ocl.synchronize(device)


class Side:
    """One network on one side: `step()` runs it once, without waiting."""

    def __init__(self, side: str, name: str, mode: str, batch: int, size: int, ocl_device: str) -> None:
        self.side = side
        self.device = torch.device(ocl_device) if side == "ocl" else baseline_device()
        torch.manual_seed(0)
        model, x, classes = networks.make(name, batch, size)
        self.reference = model, x
        model = model.to(self.device)
        self.x = x.to(self.device)
        self.y = torch.randint(classes, (batch,)).to(self.device)
        backend = {"eager": None, "inductor": "inductor", "ocl": "ocl"}[side]
        run = model if backend is None else torch.compile(model, backend=backend)
        if mode == "inference":
            model.eval()

            def step():
                with torch.no_grad():
                    return run(self.x)
        else:
            model.train()
            optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-4), foreach=True)
            update = optimizer.step if backend is None else torch.compile(optimizer.step, backend=backend)

            def step():
                optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(run(self.x), self.y)
                loss.backward()
                update()
                return loss

        self.step = step

    def timed(self) -> float:
        start = time.perf_counter()
        self.step()
        synchronize(self.device)
        return time.perf_counter() - start

    def peak_mib(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 2**20
        if self.device.type == "ocl":
            return torch.ocl.max_memory_allocated(self.device) / 2**20
        return float("nan")  # the CPU's allocator keeps no statistics


def first_call_seconds(side: str, name: str, mode: str, args: argparse.Namespace, caches: str) -> float:
    """The first call in a new process that uses `caches` for its kernels."""
    environment = dict(os.environ, TORCH_OCL_CACHE_DIR=f"{caches}/ocl", TORCHINDUCTOR_CACHE_DIR=f"{caches}/inductor")
    command = [sys.executable, __file__, "--first-call", f"{side},{name},{mode}", "--batch", str(args.batch), "--size", str(args.size)]
    command += ["--ocl-device", args.ocl_device, "--threads", str(args.threads)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        print(result.stderr[-2000:], file=sys.stderr)
        return float("nan")
    return float(result.stdout.split()[-1])


def accuracy_of(side: Side) -> float:
    """Largest difference of the output to fp64 on the CPU, over the largest output; inference only."""
    model, x = side.reference
    twin = networks_copy(model)
    with torch.no_grad():
        exact = twin(x.double().cpu())
        got = side.step().double().cpu()
    return ((got - exact).abs().max() / exact.abs().max()).item()


def networks_copy(model: torch.nn.Module) -> torch.nn.Module:
    import copy

    return copy.deepcopy(model).cpu().double().eval()


def compare(name: str, mode: str, args: argparse.Namespace) -> list[dict]:
    sides = {side: Side(side, name, mode, args.batch, args.size, args.ocl_device) for side in args.sides}
    for side in sides.values():
        for _ in range(3):
            side.timed()
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for label, side in sides.items():
            side.timed()  # wakes its threads and caches after the other side
            inner = [side.timed() for _ in range(args.calls)]
            times[label].append(statistics.median(inner))
    rows = []
    first = statistics.median(times[args.sides[0]])
    for label, side in sides.items():
        ms = statistics.median(times[label])
        quartiles = statistics.quantiles(times[label], n=4) if args.rounds > 1 else [ms, ms, ms]
        row = {"model": name, "mode": mode, "side": label, "device": str(side.device), "ms": ms * 1e3, "ratio": first / ms,
               "spread": (quartiles[2] - quartiles[0]) / ms, "peak_mib": side.peak_mib(),
               "error": accuracy_of(side) if mode == "inference" else float("nan")}  # fmt: skip
        if args.compile_times and label != "eager":
            with tempfile.TemporaryDirectory() as caches:
                row["cold_s"] = first_call_seconds(label, name, mode, args, caches)
                row["warm_s"] = first_call_seconds(label, name, mode, args, caches)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--models", type=split, default=["alexnet", "resnet18"])
    parser.add_argument("--sides", type=split, default=["eager", "inductor", "ocl"])
    parser.add_argument("--modes", type=split, default=["inference", "training"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--no-compile-times", dest="compile_times", action="store_false")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-call", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.allow_tf32 = False
    if args.first_call:
        side, name, mode = args.first_call.split(",")
        prepared = Side(side, name, mode, args.batch, args.size, args.ocl_device)
        print(prepared.timed())
        return

    from torch_ocl_compile import device as ocl

    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {args.threads} threads"
    print(f"torch {torch.__version__}, baseline on {where}, ocl on {ocl.get_device_name(args.ocl_device) if 'ocl' in args.sides else '-'}")
    print(f"batch {args.batch}, {args.size} x {args.size}, fp32, {args.rounds} rounds of {args.calls} calls, interleaved; median\n")
    header = f"{'model':16s} {'mode':10s} {'side':9s} {'ms':>9s} {'ratio':>6s} {'spread':>7s} {'cold s':>7s} {'warm s':>7s} {'peak MiB':>9s} {'error':>8s}"
    print(header)
    results = []
    for name in args.models:
        for mode in args.modes:
            for row in compare(name, mode, args):
                cold, warm = row.get("cold_s", float("nan")), row.get("warm_s", float("nan"))
                print(f"{row['model']:16s} {row['mode']:10s} {row['side']:9s} {row['ms']:9.2f} {row['ratio']:6.2f} {row['spread']:7.1%} "
                      f"{cold:7.1f} {warm:7.1f} {row['peak_mib']:9.0f} {row['error']:8.1e}", flush=True)  # fmt: skip
                results.append(row)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
