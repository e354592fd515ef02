# benchmarks/ddp.py: training with DistributedDataParallel and FSDP2: one bare rank, one wrapped rank, two ranks; ocl, CUDA, CPU.
"""`python -m benchmarks.ddp --network resnet50 gpt2 --save ddp.json` starts the processes itself. Where torch has CUDA devices, the same
runs are made with CUDA and NCCL. `--sides ocl cpu` compares with torch's tensors on the CPU and gloo: then each rank has one core, and ocl
must be a CPU device. With --repeat, the sides take turns, and the run with the median time counts.

`--network llama --precisions bf16 --runs fsdp-2` trains a Llama of 1.1 billion weights, which FSDP2 gathers in bf16 (gpt2's in fp32).

A run is a process for each rank, which all time the same steps. **items** are images, or tokens of gpt2 and llama. **efficiency** is the
rate over that of one bare rank times the ranks. **overlap** is the share of the communication under which the device computes: 1 - (idle
time of the device in a step, beyond that of one wrapped rank) / (time of the same collectives without other work). The idle time is read
from a profile of one step: from the first kernel to the last one, without the times in which a kernel runs. Kernels of NCCL count as idle.

If a process fails, its output is printed: what it did last, and after a signal the stacks of all its threads. --logs writes the whole
output of each failed run to a file."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import networks
from benchmarks.harness.side import settings_in_effect

RUNS = (("bare", 1), ("ddp", 1), ("ddp", 2), ("fsdp", 2))
BUCKET_BYTES = 25 << 20  # DistributedDataParallel's
# Side -> device, backend of torch.compile, name in the results.
SIDES: dict[str, tuple[str, str | None, str]] = {
    "ocl": ("ocl", "ocl", "ocl"),
    "cuda": ("cuda", None, "eager"),
    "cuda-inductor": ("cuda", "inductor", "inductor"),
    "cpu": ("cpu", None, "eager"),
    "cpu-inductor": ("cpu", "inductor", "inductor"),
}
PRECISIONS = {"fp32": "highest", "bf16": "bf16"}  # their names in result files
COMMUNICATION = {"ocl": "cpu:gloo,ocl:ocl", "cuda": "cpu:gloo,cuda:nccl", "cpu": "gloo"}


def wrapped(model: nn.Module, how: str, backend: str | None, half: bool) -> Callable[..., Any]:
    if how == "fsdp":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if half else None, reduce_dtype=torch.float32)
        blocks: Any = model.get_submodule(str(model.blocks))
        for block in blocks:
            block.compile(backend=backend) if backend else None
            fully_shard(block, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)
    parallel = model if how == "bare" else nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return torch.compile(parallel, backend=backend) if backend else parallel


class Trainer:
    """One rank. `step` trains on one batch."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.kind, backend, _ = SIDES[given.side]
        if given.one_core:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
            torch.set_num_threads(1)
        if self.kind == "ocl":  # On CUDA's side it would register its device as torch's accelerator.
            import torch_ocl_compile  # noqa: F401

        self.module = torch.get_device_module(self.kind)
        number = 0 if given.one_core else int(os.environ["LOCAL_RANK"]) % self.module.device_count()
        self.device = torch.device("cpu") if self.kind == "cpu" else torch.device(self.kind, number)
        self.module.set_device(self.device)
        torch.backends.cudnn.allow_tf32 = False  # ocl computes fp32 in fp32.
        dist.init_process_group(COMMUNICATION[self.kind])
        torch.manual_seed(0)
        model, x, classes = networks.make(given.name, given.batch, given.size)
        self.model, self.x = model.to(self.device), x.to(self.device)
        self.labels = torch.randint(classes, (x.numel() if x.dtype == torch.int64 else len(x),)).to(self.device)
        say("wrap the model")
        self.run = wrapped(self.model, given.how, backend, half=given.name == "llama" and given.precision == "bf16")
        # Torch has no rule that divides fused optimizers' ops over sharded parameters.
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=given.how != "fsdp")

    def step(self) -> Tensor:
        self.optimizer.zero_grad()
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.given.precision == "bf16"):
            loss = F.cross_entropy(self.run(self.x).float(), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def milliseconds(self) -> float:
        for number in range(4):
            say(f"step {number} of warm-up")
            self.step()
        times = []
        for number in range(self.given.rounds):
            say(f"round {number}")
            self.module.synchronize()
            dist.barrier(device_ids=None)
            began = time.perf_counter()
            for _ in range(self.given.steps):
                self.step()
            self.module.synchronize()
            times.append((time.perf_counter() - began) / self.given.steps * 1e3)
        return statistics.median(times)

    def idle_ms(self) -> float:
        """The time in a step in which no kernel runs, between the first and the last one."""
        say("profile")
        found = []
        for _ in range(3):
            spans = sorted(self.spans())
            end, idle = spans[0][0], 0.0
            for start, stop in spans:
                idle, end = idle + max(0.0, start - end), max(end, stop)
            found.append(idle)
        return statistics.median(found)

    def spans(self) -> list[tuple[float, float]]:
        """Start and end of each kernel of a step, in milliseconds."""
        self.module.synchronize()
        if self.kind == "ocl":
            with self.module.record(timing=True) as launches:
                self.step()
                self.module.synchronize()
            return [(launch.start_ns / 1e6, launch.end_ns / 1e6) for launch in launches]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.step()
            self.module.synchronize()
        return [
            (event.time_range.start / 1e3, event.time_range.end / 1e3)
            for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and "nccl" not in event.name
        ]

    def communication_ms(self) -> float:
        """The time of a step's collectives, one after the other on an idle device."""
        say("collectives alone")
        left = sum(p.numel() for p in self.model.parameters()) * 4
        buckets = [
            torch.zeros(min(BUCKET_BYTES, left - at) // 4, device=self.device) for at in range(0, left, BUCKET_BYTES)
        ]
        times = []
        for _ in range(6):
            self.module.synchronize()
            dist.barrier()
            began = time.perf_counter()
            for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
                work.wait()
            self.module.synchronize()
            times.append((time.perf_counter() - began) * 1e3)
        return min(times[1:])


def say(what: str) -> None:
    """Tells the parent process what comes next. The parent prints it if this process fails."""
    print(f"rank {os.environ['RANK']}: {what}", file=sys.stderr, flush=True)


def rank(given: argparse.Namespace) -> None:
    """Runs as one rank. The first one prints the result."""
    torch._C._set_print_stack_traces_on_fatal_signal(True)  # type: ignore[attr-defined]
    trainer = Trainer(given)
    row: dict[str, Any] = {"ms": trainer.milliseconds()}
    if given.how == "ddp" and trainer.kind != "cpu":
        row |= {"idle_ms": trainer.idle_ms(), "communication_ms": trainer.communication_ms()}
    row["loss"] = trainer.step().item()
    if dist.get_rank() == 0:
        settings = settings_in_effect(SIDES[given.side][2], trainer.device, PRECISIONS[given.precision])
        items = dist.get_world_size() * given.batch * (trainer.x.shape[1] if given.name in networks.TOKENS else 1)
        print("row " + json.dumps(row | {"items": items / row["ms"] * 1e3, "settings": settings}), flush=True)
    say("end")
    dist.destroy_process_group()


def report_failure(run: str, output: str, logs: Path | None) -> None:
    """Prints the end of a run's output, and the beginning of the stacks that a signal left in it."""
    print(f"{run} failed:\n{output[-4000:]}", flush=True)
    if (signal := output.find(", PID: ")) >= 0:
        print(f"the first stack:\n{output[max(0, signal - 1000) : signal + 4000]}", flush=True)
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{run.replace(' ', '-')}.txt").write_text(output)


def started(
    given: argparse.Namespace, side: str, name: str, precision: str, how: str, ranks: int
) -> dict[str, Any] | None:
    """Starts the processes of one run. Returns its row, and None if it failed."""
    batch = given.batch or {"gpt2": 8, "llama": 4}.get(name, 64)
    words = ["--name", name, "--side", side, "--precision", precision, "--how", how, "--batch", str(batch)]
    words += ["--size", str(given.size), "--steps", str(given.steps), "--rounds", str(given.rounds)]
    words += ["--one-core"] if given.one_core else []
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        "-m",
        "benchmarks.ddp",
    ]
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
    environment |= {} if side == "ocl" else {"TORCH_OCL_AUTOLOAD": "never"}
    run = f"{side} {name} {precision} {how} {ranks}"
    with subprocess.Popen(
        [*command, "--rank", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=given.limit)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its processes.
            output, _ = process.communicate()
            report_failure(run, f"{output}\nnot done after {given.limit} s", given.logs)
            return None
    lines = [line for line in output.splitlines() if line.startswith("row ")]
    if process.returncode != 0 or not lines:
        report_failure(run, output, given.logs)
        return None
    found: dict[str, Any] = json.loads(lines[0][4:])
    row = {"side": side, "model": name, "precision": PRECISIONS[precision], "batch": batch, "how": how, "ranks": ranks}
    return row | found


def compare(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Adds efficiency and overlap, from the runs of the same network and side before it."""
    alike = [r for r in rows if all(r[key] == row[key] for key in ("side", "model", "precision"))]
    bare = next((r for r in alike if r["how"] == "bare"), None)
    row["efficiency"] = row["items"] / (row["ranks"] * bare["items"]) if bare else None
    alone = next((r for r in alike if r["how"] == "ddp" and r["ranks"] == 1), None)
    row["overlap"] = None
    if row["how"] == "ddp" and row["ranks"] > 1 and alone and "idle_ms" in row:
        exposed = max(0.0, row["idle_ms"] - alone["idle_ms"])
        row["overlap"] = max(0.0, 1 - exposed / row["communication_ms"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", nargs="+", default=["resnet50", "gpt2"])
    parser.add_argument("--precisions", nargs="+", default=["fp32"], choices=("fp32", "bf16"))
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES))
    parser.add_argument("--repeat", type=int, default=1, help="times that each run is made")
    parser.add_argument("--runs", nargs="+", default=[f"{how}-{ranks}" for how, ranks in RUNS], help="such as ddp-2")
    parser.add_argument("--batch", type=int, default=0, help="samples of each rank")
    parser.add_argument("--size", type=int, default=224, help="of images")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run")
    parser.add_argument("--save", type=Path, help="write a result file, after each run")
    parser.add_argument("--logs", type=Path, help="a folder for the output of runs that fail")
    for name in ("--name", "--side", "--precision", "--how"):  # of the processes that this program starts
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--rank", "--one-core"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return rank(given)
    from benchmarks.harness import results
    from benchmarks.harness.origin import origin

    source, rows = origin(), []
    sides = given.sides or (
        ["ocl", "cuda"] if torch.backends.cuda.is_built() and torch.cuda.device_count() else ["ocl"]
    )
    given.one_core = any(SIDES[side][0] == "cpu" for side in sides)
    print("network     precision run     side            ms a step     items/s  efficiency  overlap", flush=True)
    for name in given.network:
        for precision in given.precisions:
            for run in given.runs:
                how, _, ranks = run.partition("-")
                if how == "fsdp" and name not in networks.TOKENS:
                    continue
                made: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
                for side in sides * given.repeat:
                    if row := started(given, side, name, precision, how, int(ranks)):
                        made[side].append(row)
                for found in made.values():
                    if not found:
                        continue
                    row = sorted(found, key=lambda one: one["ms"])[len(found) // 2]
                    side = row["side"]
                    compare(rows, row)
                    rows.append(row)
                    shares = [
                        f"{row[key]:10.1%}" if row[key] is not None else f"{'':>10}"
                        for key in ("efficiency", "overlap")
                    ]
                    print(f"{name:<11} {precision:<9} {run:<7} {side:<14} {row['ms']:>10.2f} {row['items']:>11.0f}  {shares[0]} {shares[1]}"
                          f"  loss {row['loss']:.4f}", flush=True)  # fmt: skip
                    if given.save:
                        settings = {"steps": given.steps, "rounds": given.rounds, "size": given.size}
                        results.write(results.result(source, settings, parallel=rows), given.save)
    return None


if __name__ == "__main__":
    main()
