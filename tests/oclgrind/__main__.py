# tests/oclgrind/__main__.py: runs every portable kernel template under Oclgrind: data races, bounds, uninitialised reads.
"""python -m tests.oclgrind [--all]

First, the smallest cases of the tests of single templates run. For them, Oclgrind also reports reads of uninitialised
memory. Then small models are compiled, forward and backward, for both families of kernels. Each contraction,
convolution and attention in them runs alone with the first choice of every template that can do it (--all: with
every choice), and as part of its graph. Exits with 1 if Oclgrind reports anything, a result is wrong, or a portable
template did not run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("item", "group")
RUNTIME = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
# Kernels are built without optimisation: the optimiser makes LLVM vectors <n x i1>, whose elements Oclgrind 21.10 reads
# as 255 instead of 1.
UNOPTIMISED = "-cl-opt-disable"
# Templates that run only in the tests of single templates: the compiler chooses them for images too large for Oclgrind.
ONLY_ALONE = {"winograd_group"}


def templates(family: str) -> set[str]:
    """Returns the portable kernels of a family that have a chooser, read from kernels.def."""
    text = (ROOT / "kernels/kernels.def").read_text(encoding="utf-8")
    rows = re.findall(r"^OCL_KERNEL\((\w+), \w+, (\w+), \w+, \w+,\s+(\w+)", text, re.MULTILINE)
    return {name for name, level, chooser in rows if level == family and chooser != "none"} - ONLY_ALONE


def run(family: str, everything: bool, folder: Path) -> list[str]:
    """Runs the models for one family of kernels, and returns what is wrong."""
    log = folder / f"{family}.log"
    watched = ["oclgrind", "--data-races", "--build-options", UNOPTIMISED, "--log", str(log)]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCH_OCL_DEVICES": "oclgrind",
        "TORCH_OCL_CACHE_DIR": str(folder / "cache"),
        "TORCH_OCL_KERNEL_FAMILY": family,
    }
    program = [sys.executable, "-m", "tests.oclgrind.programs", *(["--all"] if everything else [])]
    done = subprocess.run(
        [*watched, *program], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, check=False
    )
    print(done.stdout, end="", flush=True)
    wrong = [] if done.returncode == 0 else [f"{family}: ended with status {done.returncode}"]
    ran = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran ")}
    wrong += [f"{family}: {name} did not run" for name in sorted(templates(family) - ran)]
    found = log.read_text(encoding="utf-8") if log.exists() else ""
    return [*wrong, found[:6000]] if found.strip() else wrong


def alone(everything: bool, folder: Path) -> list[str]:
    """Runs the tests of single templates, and returns what is wrong.

    They use the system's OpenCL loader, which is told to find Oclgrind only.
    """
    (folder / "oclgrind.icd").write_text(str(RUNTIME), encoding="utf-8")
    log = folder / "alone.log"
    environment = {"OCL_ICD_VENDORS": str(folder), "OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1",
                   "OCLGRIND_BUILD_OPTIONS": UNOPTIMISED, "OCLGRIND_LOG": str(log)}  # fmt: skip
    files = [str(ROOT / f"tests/device/test_templates_{family}.py") for family in FAMILIES]
    chosen = [] if everything else ["-p", "tests.oclgrind.smallest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *chosen, *files], cwd=ROOT, env={**os.environ, **environment}, check=False
    )
    found = log.read_text(encoding="utf-8") if log.exists() else ""
    wrong = [] if done.returncode == 0 else [f"templates alone: pytest ended with status {done.returncode}"]
    return [*wrong, found[:6000]] if found.strip() else wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oclgrind", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every choice of every template (hours)")
    parser.add_argument("--parts", nargs="*", default=["alone", *FAMILIES], choices=["alone", *FAMILIES])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = alone(options.all, Path(folder)) if "alone" in options.parts else []
        wrong += [line for part in options.parts if part != "alone" for line in run(part, options.all, Path(folder))]
    print("\n".join(wrong) if wrong else "Oclgrind reports nothing")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
