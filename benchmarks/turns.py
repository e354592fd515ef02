# benchmarks/turns.py: what programs share whose sides take turns: options, rows, the lines that they print, the result file.
"""Sides take turns in each of --rounds, and the fastest turn of each side counts. A turn calls the function for about --seconds and waits
for the device at the end. Errors are root mean squares relative to a result in float64."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile.bench import results
from torch_ocl_compile.bench.origin import origin
from torch_ocl_compile.bench.side import settings_in_effect
from torch_ocl_compile.bench.sides import SIDES
from torch_ocl_compile.bench.timing import relative_error, seconds_of

Row = dict[str, Any]
Call = tuple[torch.device, Callable[[], torch.Tensor]]


def words(text: str) -> list[str]:
    return text.split(",")


def parser_of(doc: str | None, sides: list[str], seconds: float) -> argparse.ArgumentParser:
    """Returns a parser with the options of turns and of the result file. `sides`, `seconds` of a turn: the defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=words, default=sides, help="separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=seconds, help="of a turn")
    parser.add_argument(
        "--threads", type=int, default=1, help="of sides on the CPU; taskset gives an OpenCL CPU the same cores"
    )
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--save", type=Path, help="write a result file")
    return parser


def measure(
    calls: Mapping[str, Call], exact: torch.Tensor | None, given: argparse.Namespace, **fields: Any
) -> list[Row]:
    """Lets the sides take turns. Returns the row of each: `fields`, its error (0 without an exact result) and its milliseconds."""
    rows, counts = {}, {}
    for side, (device, call) in calls.items():
        error = 0.0 if exact is None else relative_error(call(), exact)
        settings = settings_in_effect(side if side in SIDES else "eager", device, "highest")
        rows[side] = fields | {"side": side, "error": error, "settings": settings, "ms": float("inf")}
        seconds_of(call, device, 2)
        counts[side] = max(1, int(given.seconds / seconds_of(call, device)))
    for _ in range(given.rounds):
        for side, (device, call) in calls.items():
            rows[side]["ms"] = min(rows[side]["ms"], seconds_of(call, device, counts[side]) * 1e3)
    return list(rows.values())


def run(section: str, cases: Mapping[str, Callable[[], list[Row]]], given: argparse.Namespace) -> None:
    """Measures cases, by title. Prints a line for each: the times of the sides, the first one's time divided by each, and their errors.
    Writes the result file."""
    source, found = origin(), []
    torch.set_num_threads(given.threads)
    for title, measured in cases.items():
        rows = measured()
        found += rows
        base = rows[0]["ms"]
        sides = (f"{r['side']} {r['ms']:8.3f} ms {base / r['ms']:5.2f} error {r['error']:.1e}" for r in rows)
        print(f"{title:32s} {'  '.join(sides)}", flush=True)
    if given.save:
        settings = {"rounds": given.rounds, "seconds": given.seconds, "threads": given.threads}
        results.write(results.result(source, settings, **{section: found}), given.save)
