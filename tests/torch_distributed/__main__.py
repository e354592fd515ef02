# tests/torch_distributed/__main__.py: runs PyTorch's own tests of torch.distributed and compares with what is expected.
"""python -m tests.torch_distributed [--match REGEX] [--sample N] [--jobs N] [--log FOLDER]

Each test runs in two processes with one device each. Tests that torch skips with NCCL too are counted as skipped. expected.txt
has a line for each test that fails, with the reason. It is an error if a test without a line fails, or one with a line
passes. `--sample N` runs every Nth test that is expected to pass."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import fork_server

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RANKS = 2
SECONDS = 120
LIST = "from tests.torch_distributed.suite import test_names; import torch_ocl_compile; print(*test_names())"


def environment(folder: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    given = {
        "PYTHONPATH": path, "BACKEND": "ocl", "WORLD_SIZE": str(RANKS), "TEMP_DIR": folder, "MASTER_ADDR": "127.0.0.1",
        "INIT_METHOD": f"file://{folder}/init_dir/shared_init_file", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return {**os.environ, **given}


def names() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIST], env=environment("/tmp"), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def expected() -> dict[str, str]:
    """Returns test -> why it fails."""
    lines = (HERE / "expected.txt").read_text().splitlines()
    rows = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {name: reason.strip() for name, _, reason in rows}


def run(test: str) -> tuple[str, str]:
    """Runs one test. Returns ("passed" or "skipped" or "failed", what the processes printed)."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir", "init_dir"):
            os.mkdir(f"{folder}/{part}")
        processes, logs = [], [Path(folder, f"log{rank}") for rank in range(RANKS)]
        for rank, path in enumerate(logs):
            with open(path, "w") as log:
                arguments = ["-m", "tests.torch_distributed.rank", test, str(rank)]
                out = log.fileno()
                processes.append(fork_server.start(arguments, environment(folder), cwd=ROOT, stdout=out, stderr=out))
        codes = []
        for process in processes:
            try:
                codes.append(process.wait(SECONDS))
            except subprocess.TimeoutExpired:
                codes.append(-9)
        for process in processes:
            process.kill()
        text = "".join(
            f"--- rank {rank}: {code}\n{path.read_text()[-6000:]}"
            for rank, (code, path) in enumerate(zip(codes, logs, strict=True))
        )
    # torch's tests exit with a code above 71 to say why they are skipped.
    skips = [code for code in codes if 71 < code < 120]
    skipped = len(skips) == RANKS or "skipping test" in text
    return ("skipped" if skipped else "failed" if any(codes) else "passed"), text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_distributed", description=__doc__)
    parser.add_argument("--match", default="", help="a regular expression for names of tests")
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", type=Path, help="folder for what failed tests print")
    given = parser.parse_args()
    known = expected()
    chosen = [name for name in names() if re.search(given.match, name)]
    if given.sample > 1:
        chosen = [name for name in chosen if name not in known][:: given.sample]
    counts: Counter[str] = Counter()
    wrong = []
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, (outcome, text) in zip(chosen, pool.map(run, chosen), strict=True):
            counts[outcome] += 1
            surprise = (outcome == "failed") != (name in known)
            if surprise:
                wrong.append(name)
                print(
                    f"{name} {outcome}" + (f", but was expected to fail: {known[name]}" if name in known else ""),
                    flush=True,
                )
            if given.log and outcome != "passed":
                given.log.mkdir(parents=True, exist_ok=True)
                (given.log / f"{outcome}_{name}").write_text(text)
            elif surprise:
                print(text[-2000:])
    print(f"{dict(counts)} in {time.monotonic() - began:.0f} s; {len(wrong)} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
