# tests/offline/__main__.py: the command line of the kernels compiled for GPUs that this machine lacks.
"""python -m tests.offline COMMAND

compile   compiles kernels that are files, and prints what each needs on each chip
render    writes the kernels of kernels.def, and of networks, as files
run       renders and compiles kernels, and compares what they need with allowed.csv
allow     after a run of all kernels and chips: makes what was found the limit, in allowed.csv
table     after a run of all kernels and chips: writes docs/offline.md

docs/testing.md says more."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.offline import networks, rendering, rows, summary, table
from tests.offline.compilers import CHIPS, FOLDER, Report
from tests.offline.rendering import Kernel
from tests.offline.results import Results

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/offline_compilers.sh"
HEAD = ("chip", "registers", "scalars", "spills", "s.spills", "scratch", "local", "width", "waves")
PARTS = ("rows", "goldens", "networks")


def chips_named(names: str) -> list[str]:
    """Returns the chips of a list such as "skl,amd". A vendor stands for all of its chips."""
    found: list[str] = []
    for name in names.split(","):
        chips = [chip.name for chip in CHIPS.values() if name in (chip.name, chip.vendor, "all")]
        if not chips:
            raise argparse.ArgumentTypeError(f"no chip {name!r}; there are intel, amd, {', '.join(CHIPS)}")
        found += [chip for chip in chips if chip not in found]
    return found


def line(chip: str, report: Report | str) -> str:
    if isinstance(report, str):
        return f"  {chip:>10} does not build: {report.strip()}"
    numbers = (
        report.registers,
        report.scalar_registers,
        report.spills,
        report.scalar_spills,
        report.scratch,
        report.local,
        report.width,
        report.waves,
    )
    return "  " + "".join(f"{cell:>10}" for cell in (chip, *numbers))


def compile_files(options: argparse.Namespace) -> int:
    """Prints a table for each file. Returns 1 if a kernel does not build."""
    results = Results()
    texts = {file: file.read_text(encoding="utf-8") for file in options.files}
    results.add(((text, chip) for text in texts.values() for chip in options.chips), options.jobs)
    failed = False
    for file, text in texts.items():
        print(file)
        print("  " + "".join(f"{cell:>10}" for cell in HEAD))
        for chip in options.chips:
            print(line(chip, report := results.of(text, chip)))
            failed |= isinstance(report, str)
    return int(failed)


def rendered(options: argparse.Namespace) -> Iterator[Kernel]:
    """Yields the kernels that the options name."""
    names, types = options.networks or list(networks.NETWORKS), options.types.split(",")
    parts = options.parts.split(",")
    if "rows" in parts:
        for name, problem in rows.PROBLEMS.items():
            for type in problem.types:
                if type in types:
                    yield from rows.render(name, type)
    if "goldens" in parts:
        yield from rendering.goldens()
    if "networks" in parts:
        yield from networks.render_all(names, types, options.jobs)


def chosen(options: argparse.Namespace) -> list[Kernel]:
    every = [kernel for kernel in rendered(options) if options.row in kernel.row]
    all_texts = {(k.row, k.type, k.limits, k.text): k for k in every}
    kernels = list(all_texts.values()) if options.every else summary.one_of_each(every)
    print(f"{len(every)} kernels, of which {len(kernels)} are taken", flush=True)
    return kernels


def write_files(options: argparse.Namespace) -> int:
    options.folder.mkdir(parents=True, exist_ok=True)
    for number, kernel in enumerate(chosen(options)):
        name = "".join(c if c.isalnum() else "_" for c in f"{kernel.row} {kernel.type} {kernel.limits} {number}")
        (options.folder / f"{name}.cl").write_text(kernel.text, encoding="utf-8")
    return 0


def run(options: argparse.Namespace) -> int:
    """Returns 1 if a kernel does not build or needs more than allowed."""
    kernels, results, types = chosen(options), Results(), options.types.split(",")
    if not options.known:
        results.add(((k.text, chip) for k in kernels for chip in k.chips(options.chips)), options.jobs, progress=True)
    worsts, failed = summary.summarise(kernels, options.chips, results)
    limits = summary.allowed()
    more = summary.faults(worsts, limits)
    if options.allow:
        summary.write_allowed(summary.raised(limits, worsts))
        print(f"{summary.ALLOWED.name} now allows what was found")
        more = []
    # Only a run of all kernels and chips tells that a limit could be lower, or that a tile is never chosen.
    if (options.parts.split(","), options.chips, options.networks, options.row) == ([*PARTS], [*CHIPS], None, ""):
        failed += [f"no kernel is {row}" for row in rows.missing(kernels) if "fp32" in types]
        complete = not options.known
        summary.write(worsts, complete, sum(len(kernel.chips(options.chips)) for kernel in kernels))
        if complete:
            for limit in summary.too_generous(worsts, limits, types):
                print(f"lower it (python -m tests.offline allow): {limit}")
    print("\n".join([*failed, *more]) or "every kernel builds, and none needs more than allowed")
    print(f"{len(kernels)} kernels for {len(options.chips)} chips, {results.compiled} of the programs compiled now")
    return int(bool(failed or more))


def allow(options: argparse.Namespace) -> int:
    facts = summary.read()
    if not facts.complete:
        print(
            "the last run compiled nothing (--known), so it cannot tell what no kernel needs: see `run`",
            file=sys.stderr,
        )
        return 2
    worsts = facts.worsts
    types = {w.type for w in worsts}
    others = {key: limit for key, limit in summary.allowed().items() if key[1] not in types}
    summary.write_allowed(summary.raised(others, worsts))
    return 0


def write_table(options: argparse.Namespace) -> int:
    table.PAGE.write_text(table.page(summary.read()), encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.offline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    jobs, what, where = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    jobs.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that work at the same time")
    where.add_argument("--chips", type=chips_named, default=[*CHIPS], help="names or vendors, with commas between them")
    what.add_argument("--parts", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    what.add_argument("--types", default=",".join(rendering.TYPES))
    what.add_argument("--networks", nargs="+", choices=networks.NETWORKS, help="all, if none is named")
    what.add_argument("--row", default="", help="only rows that contain this text, such as gemm/group")
    what.add_argument(
        "--every", action="store_true", help="also kernels that should need no more registers than others"
    )
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--known", action="store_true", help="compile nothing: take what earlier runs compiled")
    more.add_argument("--allow", action="store_true", help="raise the limits in allowed.csv to what is found")
    for name, do, parents in (
        ("compile", compile_files, [jobs, where]), ("render", write_files, [jobs, what]), ("run", run, [jobs, what, where, more]),
        ("allow", allow, []), ("table", write_table, []),
    ):  # fmt: skip
        command = commands.add_parser(name, parents=parents)
        command.set_defaults(do=do)
        if do is compile_files:
            command.add_argument("files", nargs="+", type=Path)
        elif do is write_files:
            command.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.do in (compile_files, run) and (status := subprocess.run([SCRIPT, FOLDER], check=False).returncode) != 0:
        return status
    return int(options.do(options))


if __name__ == "__main__":
    sys.exit(main())
