# tests/offline/__main__.py: the command line of the kernels compiled for GPUs that this machine lacks.
"""python -m tests.offline compile FILE.cl... [--chips gfx906,skl] [--jobs N]

Compiles kernels as files and prints what each needs on each chip. docs/testing.md says more."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.offline.compilers import CHIPS, FOLDER, Report
from tests.offline.results import Results

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/offline_compilers.sh"
HEAD = ("chip", "registers", "scalar", "spills", "scratch", "local", "width", "waves")


def chips_named(names: str) -> list[str]:
    """Returns the chips of a list such as "skl,amd". A vendor stands for all of its chips."""
    found: list[str] = []
    for name in names.split(","):
        chips = [chip.name for chip in CHIPS.values() if name in (chip.name, chip.vendor, "all")]
        if not chips:
            raise argparse.ArgumentTypeError(f"no chip {name!r}; there are intel, amd, {', '.join(CHIPS)}")
        found += [chip for chip in chips if chip not in found]
    return found


def row(chip: str, report: Report | str) -> tuple[str, ...]:
    if isinstance(report, str):
        return (chip, report.strip())
    numbers = (
        report.registers,
        report.scalar_registers,
        report.spills,
        report.scratch,
        report.local,
        report.width,
        report.waves,
    )
    return (chip, *(str(n) for n in numbers))


def compile_files(options: argparse.Namespace) -> int:
    """Prints a table for each file. Returns 1 if a kernel does not build."""
    results = Results()
    texts = {file: file.read_text(encoding="utf-8") for file in options.files}
    results.add(texts.values(), options.chips, options.jobs)
    failed = False
    for file, text in texts.items():
        print(file)
        rows = [row(chip, results.of(text, chip)) for chip in options.chips]
        failed |= any(len(r) != len(HEAD) for r in rows)
        for r in [HEAD, *rows]:
            print(
                "  " + "".join(f"{cell:>10}" for cell in r)
                if len(r) == len(HEAD)
                else f"  {r[0]:>10} does not build: {r[1]}"
            )
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.offline", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("compile", help="compile files and print what they need")
    command.add_argument("files", nargs="+", type=Path)
    command.set_defaults(do=compile_files)
    command.add_argument(
        "--chips", type=chips_named, default=list(CHIPS), help="names or vendors, with commas between them"
    )
    command.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers that run at the same time")
    options = parser.parse_args()
    if (status := subprocess.run([SCRIPT, FOLDER], check=False).returncode) != 0:
        return status
    return int(options.do(options))


if __name__ == "__main__":
    sys.exit(main())
