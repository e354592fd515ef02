# benchmarks/turns.py: what programs share whose sides take turns: options, the time of a turn, the error of a result, a line of text.
"""Sides take turns in each of --rounds, and the fastest turn of each side counts. A turn calls the function for about --seconds and waits
for the device at the end. Errors are root mean squares relative to a result in float64."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
Call = tuple[torch.device, Callable[[], Any]]


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Adds the options of turns and of the result file. `seconds`: the default for a turn."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=seconds, help="of a turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ocl-device", default="ocl:0")
    parser.add_argument("--save", type=Path, help="write a result file")


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    return {"rounds": given.rounds, "seconds": given.seconds, "threads": given.threads}


def wait(device: torch.device) -> None:
    # torch.accelerator knows one type of device, and with this package that is ocl.
    getattr(torch, device.type).synchronize(device)


def turn(device: torch.device, call: Callable[[], Any], calls: int) -> float:
    """Returns the seconds of a call."""
    wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait(device)
    return (time.perf_counter() - start) / calls


def measure(sides: dict[str, Call], rows: dict[str, Row], given: argparse.Namespace) -> None:
    """Lets the sides take turns, and stores the milliseconds of a call in the row of each side. Each has been called before."""
    counts = {}
    for name, (device, call) in sides.items():
        turn(device, call, 2)
        counts[name] = max(1, int(given.seconds / turn(device, call, 1)))
        rows[name]["ms"] = float("inf")
    for _ in range(given.rounds):
        for name, (device, call) in sides.items():
            rows[name]["ms"] = min(rows[name]["ms"], turn(device, call, counts[name]) * 1e3)


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    difference = got.cpu().to(exact.dtype) - exact
    return (difference.abs().square().mean().sqrt() / exact.abs().square().mean().sqrt()).item()


def line(rows: list[Row]) -> str:
    """Returns the times of the sides, the first one's time divided by each, and their errors."""
    base = rows[0]["ms"]
    return "  ".join(f"{r['side']} {r['ms']:8.3f} ms {base / r['ms']:5.2f} error {r['error']:.1e}" for r in rows)
