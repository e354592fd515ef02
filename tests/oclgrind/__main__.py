# tests/oclgrind/__main__.py: runs every portable kernel template under Oclgrind: data races, bounds, uninitialised reads.
"""python -m tests.oclgrind [--all] [--minutes M] [--from PART]

First, each kernel runs alone, with the smallest of its cases (csrc/schedule/families/*/cases.cpp; --all: with all small ones).
For them, Oclgrind also reports reads of uninitialised memory. Then small models are compiled, forward and backward, for both
families of kernels. Each contraction, convolution and attention in them runs alone with the first choice of every template
that can do it (--all: with every choice), and as part of its graph. Exits with 1 if Oclgrind reports anything, a result is
wrong, or a portable template did not run. A run has three parts: alone, item, group. `--minutes` begins no part after so long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import long_runs
from tests.oclgrind.programs import alone
from torch_ocl_compile import _C

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("item", "group")
# Kernels are built without optimisation: the optimiser makes LLVM vectors <n x i1>, whose elements Oclgrind 21.10 reads
# as 255 instead of 1.
UNOPTIMISED = "-cl-opt-disable"
# Templates that run only alone: the compiler chooses them for images too large for Oclgrind.
ONLY_ALONE = {"winograd_group"}


def templates(part: str) -> set[str]:
    """Returns the portable kernels that a part must run."""
    if part == "alone":
        return set(alone())
    rows = [row for row in _C.exec.kernels() if row["level"] == part and row["offered"]]
    return {row["name"] for row in rows if "fp32" in row["types"]} - ONLY_ALONE


def run(part: str, everything: bool, folder: Path) -> tuple[int, list[str]]:
    """Runs kernels alone, or the models for one family of kernels. Returns how many kernels ran, and what is wrong."""
    log = folder / f"{part}.log"
    watched = ["oclgrind", "--data-races", "--build-options", UNOPTIMISED, "--log", str(log)]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCH_OCL_DEVICES": "oclgrind",
        "TORCH_OCL_CACHE_DIR": str(folder / "cache"),
        "TORCH_OCL_KERNEL_FAMILY": part if part in FAMILIES else "item",
    }
    program = [sys.executable, "-m", "tests.oclgrind.programs", *(["--all"] if everything else [])]
    if part == "alone":
        watched += ["--uninitialized", "--local-mem-size", "65536"]  # Kernels have tiles for large local memory.
        program.append("--alone")
    done = subprocess.run(
        [*watched, *program], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, check=False
    )
    print(done.stdout, end="", flush=True)
    wrong = [] if done.returncode == 0 else [f"{part}: ended with status {done.returncode}"]
    ran = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran ")}
    wrong += [f"{part}: {name} did not run" for name in sorted(templates(part) - ran)]
    return len(ran), [*wrong, *reported(log)]


def reported(log: Path) -> list[str]:
    """Returns the beginning of Oclgrind's report, or nothing if it is empty."""
    found = log.read_text(encoding="utf-8") if log.exists() else ""
    return [found[:6000]] if found.strip() else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oclgrind", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every choice of every template (hours)")
    parser.add_argument("--parts", nargs="*", default=["alone", *FAMILIES], choices=["alone", *FAMILIES])
    long_runs.add_options(parser, "a PART")
    options = parser.parse_args()
    # Oclgrind is the device of the programs, not of this process.
    long = long_runs.Run(
        "Oclgrind", "Oclgrind", "kernels and tests", options.minutes, options.record, options.place or ""
    )
    if long.place == long_runs.LAST:
        long.place = (long_runs.recorded(options.record or long_runs.DATA, long.what, long.device) or {"next": ""})[
            "next"
        ]
    parts = options.parts[options.parts.index(long.place) if long.place else 0 :]
    count, wrong, ended = 0, [], ""
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            if long.over():
                ended = part
                break
            ran, found = run(part, options.all, Path(folder))
            count, wrong = count + ran, wrong + found
    print("\n".join(wrong) if wrong else "Oclgrind reports nothing")
    long.end(count, [line.splitlines()[0][:60] for line in wrong], ended)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
