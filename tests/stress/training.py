# tests/stress/training.py: `python -m tests.stress.training --steps 200000`: long training that is killed and resumed.
"""A small network trains on batches of changing size and length.

A process trains and is killed at random moments; the next process resumes from the last checkpoint. The
memory of the process and of the device, and the processor time of a step, must not grow. At the end, the same steps
without interruption must give the same bits.

A run that is stopped by `--minutes` keeps its checkpoint in a folder, and `--from FOLDER` goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests import long_runs

# The number of steps between two checkpoints.
CHECKPOINT = 500
# The number of steps between two rows of the log.
REPORT = 500
# The number of steps after which a process counts as warm: it has compiled, and filled its caches.
WARM_STEPS = 3000
# The number of MB by which the memory of a warm process may grow.
MOST_GROWTH_MB = 40.0
# The factor by which the processor time of a step may grow.
MOST_SLOWDOWN = 1.25
# What is measured of memory: column of the log -> name.
MEMORY = {"rss_mb": "the process", "device_mb": "tensors", "reserved_mb": "the allocator"}


class Network(nn.Module):
    """Reads a sequence of tokens: embedding, convolution, norm, dropout, a gated sum over time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 1)
        self.head = nn.Linear(width, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.conv(self.embedding(tokens).transpose(1, 2)).transpose(1, 2)
        x = F.dropout(F.gelu(self.norm(x)), 0.1, self.training)
        weights = torch.softmax(self.gate(x), 1)
        return self.head((weights * x).sum(1))


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Returns the tokens and labels of a step. They depend on the step number only, so each process gets the same."""
    generator = torch.Generator().manual_seed(step)
    rows, length = (int(torch.randint(2, most, (), generator=generator)) for most in (24, 20))
    tokens = torch.randint(0, 64, (rows, length), generator=generator)
    return tokens, tokens[:, 0] % 8


def train(folder: Path, until: int, device: str) -> None:
    """Runs steps up to `until`, from the checkpoint in `folder` if there is one."""
    import torch_ocl_compile  # noqa: F401

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step, path = 0, folder / "checkpoint.pt"
    if path.exists():
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.ocl.set_rng_state(state["random"].cpu(), device)
        step = state["step"]
    compiled = torch.compile(lambda m, x, y: F.cross_entropy(m(x), y), backend="ocl", dynamic=True)
    log = (folder / "log.jsonl").open("a")
    began, started = step, time.process_time()
    while step < until:
        tokens, labels = batch(step)
        loss = compiled(model, tokens.to(device), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % CHECKPOINT == 0 or step == until:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            state["random"] = torch.ocl.get_rng_state(device)
            torch.save(state, folder / "next.pt")
            os.replace(folder / "next.pt", path)
        if step % REPORT == 0:
            now = time.process_time()
            row = {"pid": os.getpid(), "step": step, "done": step - began, "loss": round(loss.item(), 4)}
            row |= {"cpu_ms": (now - started) * 1000 / REPORT, "rss_mb": resident_mb()}
            row |= {
                "device_mb": torch.ocl.memory_allocated(device) / 2**20,
                "reserved_mb": torch.ocl.memory_reserved(device) / 2**20,
            }
            print(json.dumps(row), file=log, flush=True)
            started = time.process_time()


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def supervise(folder: Path, steps: int, device: str, kills: int, long: long_runs.Run) -> None:
    """Runs processes until all steps are done or the time is over, and kills `kills` of them at random moments."""
    random_moment = random.Random(steps)
    moments = sorted(random_moment.randrange(steps // 20 + 1, steps) for _ in range(kills))
    command = [
        sys.executable,
        "-m",
        "tests.stress.training",
        "--worker",
        str(folder),
        "--steps",
        str(steps),
        "--device",
        device,
    ]
    while last_step(folder) < steps and not long.over():
        process = subprocess.Popen(command)
        while process.poll() is None:
            time.sleep(0.5)
            if long.over():
                process.kill()
            elif moments and last_step(folder) >= moments[0]:
                moments.pop(0)
                time.sleep(random_moment.random())
                process.send_signal(signal.SIGKILL)
                process.wait()
                print(f"killed after step {last_step(folder)}", flush=True)
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"a process ended with status {process.returncode}")


def rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    # The last line of a killed process may be cut off.
    return [json.loads(line) for line in lines if line.endswith("}")]


def last_step(folder: Path) -> int:
    found = rows(folder)
    return int(found[-1]["step"]) if found else 0


def problems(folder: Path) -> tuple[list[str], list[str]]:
    """Returns messages about growth of memory or time, and the measured values, for processes that became warm."""
    found, measured = [], []
    for pid in dict.fromkeys(r["pid"] for r in rows(folder)):
        warm = [r for r in rows(folder) if r["pid"] == pid and r["done"] > WARM_STEPS]
        if len(warm) < 20:
            continue
        tenth = len(warm) // 10 + 1
        early, late = warm[:tenth], warm[-tenth:]
        for key, name in MEMORY.items():
            growth = statistics.median(r[key] for r in late) - statistics.median(r[key] for r in early)
            measured.append(f"{name} {early[0][key]:.1f} to {late[-1][key]:.1f} MB in {len(warm) * REPORT} warm steps")
            if growth > MOST_GROWTH_MB:
                found.append(f"{name} grew by {growth:.0f} MB in process {pid}")
        slower = statistics.median(r["cpu_ms"] for r in late) / statistics.median(r["cpu_ms"] for r in early)
        measured.append(f"a step takes {slower:.2f} times the processor time, {late[-1]['cpu_ms']:.2f} ms")
        if slower > MOST_SLOWDOWN:
            found.append(f"a step of process {pid} became {slower:.2f} times as slow")
    return found, measured


def same_bits(device: str, steps: int = 3 * CHECKPOINT) -> bool:
    """Returns whether an interrupted run ends with the same parameters as an uninterrupted one."""
    states = []
    for stops in ([steps], [CHECKPOINT, 2 * CHECKPOINT, steps]):
        with tempfile.TemporaryDirectory() as name:
            for until in stops:
                command = [
                    sys.executable,
                    "-m",
                    "tests.stress.training",
                    "--worker",
                    name,
                    "--steps",
                    str(until),
                    "--device",
                    device,
                ]
                subprocess.run(command, check=True)
            states.append(torch.load(Path(name) / "checkpoint.pt", map_location="cpu", weights_only=True)["model"])
    return all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.training", description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    long_runs.add_options(parser, "the checkpoint in a FOLDER")
    given = parser.parse_args()
    if given.worker:
        train(Path(given.worker), given.steps, given.device)
        return 0
    long = long_runs.begin("long training", given.device, "steps", given)
    folder = Path(long.place or tempfile.mkdtemp(prefix="torch_ocl_training_"))
    before = last_step(folder)
    supervise(folder, given.steps, given.device, given.kills, long)
    steps = last_step(folder)
    found, measured = problems(folder)
    last_loss = rows(folder)[-1]["loss"] if steps else "unknown"
    print("\n".join([*measured, f"step {steps} after {long.seconds():.0f} s, loss {last_loss}"]))
    finished = steps >= given.steps
    if finished and not same_bits(given.device):
        found.append("an interrupted run ends with other parameters than an uninterrupted one")
    if finished:
        shutil.rmtree(folder)
    print("\n".join(found) if found else "flat; the interrupted run gives the same bits" if finished else "stopped")
    long.end(steps - before, found, "" if finished else str(folder), "; ".join(measured))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
