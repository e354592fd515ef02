# tests/process_ends.py: `python -m tests.process_ends --device ocl:1 --count 300`: processes that end in different ways.
"""Each process does some work on the device and then ends, often while the work goes on. Work and end are drawn from
the number of the process. It fails if its exit status is not the expected one, if it hangs, if a message of a crash is
in its output, or if a process that it started is still there afterwards. Exits with 1 if a process failed."""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import fork_server, long_runs

# Seconds after which a process hangs.
LIMIT_S = 120
# Seconds after the end of a process in which its children may end.
CHILDREN_S = 10
CRASHED = ("Segmentation fault", "terminate called", "Fatal Python error", "double free", "malloc()", "InternalError")

START = """
import atexit, os, signal, sys, threading, time
import torch, torch_ocl_compile
device = {device!r}
os.setsid()  # The processes that this one starts belong to its session.
print(os.getpid(), flush=True)

def enqueue(rounds):
    x = torch.randn(256, 255).to(device)
    for _ in range(rounds):
        x = torch.tanh(x @ x.t() @ x)
    return [x, x.t().half().contiguous(), x.to(torch.int32)]

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(31, {width}), torch.nn.GELU(), torch.nn.LayerNorm({width})).to(device)

def train():
    model = network()
    step = torch.compile(lambda x: (model(x).softmax(1) ** 2).sum(), backend="ocl")
    step(torch.randn(17, 31, device=device)).backward()
    return model, step
"""

WORK = {
    "tensors alive": "kept = torch.ones(100, device=device)",
    "kernels enqueued": "kept = enqueue(30)",
    "kernels on a side stream": "side = torch.Stream(device)\nwith torch.ocl.stream(side):\n    kept = enqueue(30)",
    "compiled": "kept = train()\nmore = enqueue(10)",
    "a copy to the host": "kept = [x.to('cpu', non_blocking=True) for x in enqueue(10)]",
    "a thread that launches": "thread = threading.Thread(target=lambda: [enqueue(3) for _ in range(20)])\nthread.start()",
    "a thread that compiles": "thread = threading.Thread(target=train)\nthread.start()\ntime.sleep({pause})",
    "a DataLoader with workers": "data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4, num_workers=2)\n"
    "reader = iter(data)\nkept = next(reader).to(device)",
    "a forked child": "kept = enqueue(5)\nchild = os.fork()\nif child == 0:\n    del kept\n    sys.exit(0)\n"
    "assert os.waitpid(child, 0)[1] == 0",
    "a forked child that uses the CPU": "kept = enqueue(5)\nchild = os.fork()\nif child == 0:\n    torch.ones(9).sum()\n"
    "    os._exit(0)\nassert os.waitpid(child, 0)[1] == 0",
    "a child of multiprocessing": "import multiprocessing\nkept = enqueue(5)\n"
    "child = multiprocessing.get_context('fork').Process(target=torch.ones, args=(3,))\nchild.start()\nchild.join()\n"
    "assert child.exitcode == 0",
}

# Python ends by the signal, or with 1 if another thread has run a text of code (PyRun_String) after the interrupt.
INTERRUPTED = (-signal.SIGINT, 1)

# Name -> (lines, exit status or statuses).
ENDS = {
    "the last line": ("", 0),
    "an exception": ("raise RuntimeError('on purpose')", 1),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "sys.exit in a thread": ("last = threading.Thread(target=sys.exit, args=(5,))\nlast.start()\nlast.join()", 0),
    "an exception in a function of atexit": ("atexit.register(lambda: torch.zeros(2, device=device).sum().item())", 0),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)", -signal.SIGKILL),
    "Ctrl+C": ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)", INTERRUPTED),
    "a handler of SIGTERM that exits": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", 6,
    ),
    "a reference cycle": ("class Node: pass\nnode = Node()\nnode.node, node.kept = node, torch.ones(5, device=device)", 0),
    "waiting for the device": ("torch.ocl.synchronize(device)", 0),
}  # fmt: skip


def drawn(number: int) -> tuple[str, str, dict[str, str]]:
    """Returns work, end and environment of a process. Each work meets each end before one is repeated."""
    pairs = [(work, end) for work in WORK for end in ENDS]
    random.Random(number // len(pairs)).shuffle(pairs)
    work, end = pairs[number % len(pairs)]
    choice = random.Random(number)
    # An eighth of the processes finds no kernels in the cache, and starts two processes that build them.
    environment = {"TORCH_OCL_BUILD_WORKERS": "2"} if choice.random() < 0.125 else {}
    return work, end, environment


def run(number: int, device: str, cache: str) -> str:
    """Runs a process and returns what went wrong, "" for nothing."""
    work, end, environment = drawn(number)
    choice = random.Random(f"{number} values")
    with tempfile.TemporaryDirectory() as empty:
        environment |= {"TORCH_OCL_CACHE_DIR": cache, "PYTHONPATH": str(long_runs.ROOT)}
        if "TORCH_OCL_BUILD_WORKERS" in environment:
            environment |= {"TORCH_OCL_CACHE_DIR": empty, "POCL_CACHE_DIR": empty}
        lines, wanted = ENDS[end]
        program = "\n".join([START, WORK[work], lines])
        values = {
            "{device!r}": repr(device),
            "{width}": str(choice.choice((8, 13, 32))),
            "{pause}": f"{choice.random():.2f}",
        }
        for name, value in values.items():
            program = program.replace(name, value)
        try:
            done = fork_server.run(["-c", program], {**os.environ, **environment}, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"no end after {LIMIT_S} s"
        left = children_left(int(done.stdout.split()[0])) if done.stdout else []
    problems = ["it did not begin"] if not done.stdout else []
    problems += [word for word in CRASHED if word in done.stderr]
    if done.returncode not in (wanted if isinstance(wanted, tuple) else (wanted,)):
        problems.append(f"exit status {done.returncode}, not {wanted}")
    if left:
        problems.append(f"still there: {', '.join(left)}")
    return "; ".join(problems) + (f"\n{done.stderr[-1500:]}" if problems else "")


def children_left(session: int) -> list[str]:
    """Returns the processes of a session that do not end by themselves, and ends them."""
    until = time.monotonic() + CHILDREN_S
    while (found := members(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in found:
        os.kill(process, signal.SIGKILL)
    return [f"process {process}" for process in found]


def members(session: int) -> list[int]:
    """Returns the processes of a session. Those that have ended and wait for their parent do not count."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:  # It has ended.
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(folder.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.process_ends", description=__doc__)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--count", type=int, default=300, help="processes")
    long_runs.add_options(parser, "process NUMBER")
    given = parser.parse_args()
    long = long_runs.begin("process ends", given.device, "processes", given)
    long.place = long.place or "0"
    number = first = int(long.place)
    failures = []
    with tempfile.TemporaryDirectory() as cache:
        while number < first + given.count - long.done and not long.over():
            work, end, _ = drawn(number)
            if wrong := run(number, given.device, cache):
                failures.append(f"{number} ({work}, {end})")
                print(f"process {number}: {work}, then {end}: {wrong}", flush=True)
            number += 1
            if number % 20 == 0:
                print(f"{number - first} processes, {len(failures)} fail, {long.seconds():.0f} s", flush=True)
    print(f"{number - first} processes, {len(failures)} fail, {long.seconds():.0f} s")
    long.end(number - first, failures, str(number))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
