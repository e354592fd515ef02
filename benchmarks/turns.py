# benchmarks/turns.py: what the programs of this folder share: options, sides that take turns, the result file.
"""In measure(), the fastest turn of each side counts. A turn calls the function for about --seconds and waits for the device at the end.
Errors are root mean squares relative to a result in float64."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.harness import results
from benchmarks.harness.models import NetworkSettings
from benchmarks.harness.origin import origin
from benchmarks.harness.side import settings_in_effect
from benchmarks.harness.sides import PRECISIONS, SIDES
from benchmarks.harness.timing import relative_error, seconds_of

Row = dict[str, Any]
Settings = TypeVar("Settings", bound=NetworkSettings)
Call = tuple[torch.device, Callable[[], torch.Tensor]]


def words(text: str) -> list[str]:
    return text.split(",")


def parser_of(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """Returns a parser with the options of all programs. `rounds`: the default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="in each, all sides take a turn")
    parser.add_argument("--save", type=Path, help="write a result file")
    return parser


def parser_of_sides(doc: str | None, sides: list[str], seconds: float) -> argparse.ArgumentParser:
    """Returns a parser with the options of measure(), too. `sides`, `seconds` of a turn: the defaults."""
    parser = parser_of(doc, 7)
    parser.add_argument("--sides", type=words, default=sides, help="separated by commas")
    parser.add_argument("--seconds", type=float, default=seconds, help="of a turn")
    parser.add_argument(
        "--threads", type=int, default=1, help="of sides on the CPU; taskset gives an OpenCL CPU the same cores"
    )
    parser.add_argument("--ocl-device", default="ocl:0")
    return parser


class ResultFile:
    """The rows of one section, which --save writes after each step. Make it before measuring: it reads the commit.

    Its settings are the options, and what `more` has."""

    def __init__(self, section: str, given: argparse.Namespace, **more: Any) -> None:
        self.section, self.path, self.rows, self.origin = section, given.save, list[Row](), origin()
        self.settings = {name: value for name, value in vars(given).items() if name != "save"} | more

    def add(self, *rows: Row) -> None:
        self.rows += rows
        if self.path:
            results.write(results.result(self.origin, self.settings, **{self.section: self.rows}), self.path)


def in_turns(calls: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Lets functions that return a time take turns. Returns the times of each; a round before them only warms up."""
    found = [{name: call() for name, call in calls.items()} for _ in range(rounds + 1)]
    return {name: [times[name] for times in found[1:]] for name in calls}


def medians(calls: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    return {name: statistics.median(found) for name, found in in_turns(calls, rounds).items()}


def parser_of_networks(
    doc: str | None, models: list[str], modes: list[str], sides: list[str], rounds: int
) -> argparse.ArgumentParser:
    """Returns a parser of networks, with the options of settings_of(). The arguments are defaults."""
    parser = parser_of(doc, rounds)
    parser.add_argument("--models", type=words, default=models)
    parser.add_argument("--modes", type=words, default=modes)
    if sides:
        parser.add_argument("--sides", type=words, default=sides)
    parser.add_argument("--precision", choices=PRECISIONS, default="highest")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="image height and width")
    parser.add_argument("--calls", type=int, default=3, help="timed calls of a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of a side on a CPU")
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--verbose", action="store_true", help="show what the sides print")
    return parser


def settings_of(given: argparse.Namespace, kind: type[Settings] = NetworkSettings, **more: Any) -> Settings:  # type: ignore[assignment]
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in vars(given).items() if name in names} | more)


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
    file = ResultFile(section, given)
    torch.set_num_threads(given.threads)
    for title, measured in cases.items():
        rows = measured()
        file.add(*rows)
        base = rows[0]["ms"]
        sides = (f"{r['side']} {r['ms']:8.3f} ms {base / r['ms']:5.2f} error {r['error']:.1e}" for r in rows)
        print(f"{title:32s} {'  '.join(sides)}", flush=True)
