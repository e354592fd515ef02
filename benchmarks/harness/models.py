# benchmarks/harness/models.py: times whole networks on several sides, in one interleaved run.
"""Every side runs the same network on the same input, in a process of its own. The sides run in turn, round by round.
Each timed call ends with a wait for the device. A training step is forward, cross entropy, backward and a step of
Adam.

Weights are random, from one seed. Images are normal noise, tokens are uniform.

The share of the roofline is the least time that the device allows, divided by the measured time. The least time
follows from the device's peaks, the network's floating-point operations (torch.utils.flop_counter, a multiply-add
counts as two) and its least memory traffic: parameters and inputs once, and in training Adam's seven passes over the
parameters.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.harness import networks
from benchmarks.harness.process import SideProcess, SideStopped
from benchmarks.harness.results import NAN, add_best
from benchmarks.harness.sides import SIDES
from torch_ocl_compile.errors import ToolError

MODES = ("inference", "training")
# Published numbers of earlier OpenCL backends use this batch size.
FROM_HOST_BATCH = 64


@dataclass(frozen=True)
class NetworkSettings:
    """How networks are timed. `precision`: full fp32 (highest), fp32 with TF32 products (high), or autocast.
    `from_host`: inputs are on the host, and each step copies them. `compile_times`: also measures a first call with
    empty caches, and another with the caches that it left. `freezing`: sides that can freeze the weights of inference do.
    `optimizer`: the only one; "": each side takes its fastest. `model_alone`: in training, sides compile the model only."""

    sides: list[str]
    batch: int = 8
    size: int = 224  # Image height and width.
    rounds: int = 7
    calls: int = 3  # Timed calls per round.
    threads: int = 1
    ocl_device: str = "ocl:0"
    precision: str = "highest"
    from_host: bool = False
    compile_times: bool = False
    flops: float = NAN  # Peak of the device in operations per second. NaN if unknown.
    bandwidth: float = NAN
    verbose: bool = False
    freezing: bool = True
    optimizer: str = ""
    model_alone: bool = False

    @property
    def protocol(self) -> str:
        """Rows of different protocols are not compared."""
        return "model-alone" if self.model_alone else "from-host" if self.from_host else "resident"

    def process(
        self, side: str, name: str, mode: str, caches: str | None = None, way: dict[str, str] | None = None
    ) -> SideProcess:
        """`way`: the answer of another process to "choose". The new process runs in the same way from its start."""
        names = ("batch", "size", "ocl_device", "threads", "calls", "precision", "from_host", "freezing", "optimizer",
                 "model_alone")  # fmt: skip
        given = {"side": side, "name": name, "mode": mode} | {key: getattr(self, key) for key in names} | (way or {})
        return self.started(side, given, caches)

    def started(self, side: str, given: dict[str, Any], caches: str | None) -> SideProcess:
        return SideProcess("network_side.py", given, caches=caches, verbose=self.verbose)


def measure(
    models: list[str],
    modes: list[str],
    precisions: list[str],
    settings: NetworkSettings,
    say: Callable[[str], None],
    wanted: Callable[..., bool] = lambda *case: True,
    build: str | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each network, mode and precision as soon as it is measured: a row for each side.

    `say` is called with what is being done. `wanted` tells of a (precision, network, mode) whether to measure it. `build`: the
    code that all rows of ocl must have run; None: that of the first. If a side stops, the other networks are measured, and
    then SideStopped names those that are missing."""
    if settings.from_host:
        settings = replace(settings, batch=FROM_HOST_BATCH)
    stopped = []
    for precision, name, mode in itertools.product(precisions, models, modes):
        if not wanted(precision, name, mode):
            continue
        try:
            rows = compare(name, mode, replace(settings, precision=precision), say)
        except SideStopped as error:
            stopped.append(f"{name}, {mode}, {precision}: {error}")
            say(stopped[-1])
            continue
        for row in rows:
            row["protocol"] = settings.protocol
            row["roofline"] = fraction_of_roofline(row, settings)
        add_best(rows)
        check_build(rows, build)
        build = next((row["build"] for row in rows if "build" in row), build)
        yield rows
    if stopped:
        raise SideStopped("\n".join(stopped))


def check_build(rows: list[dict[str, Any]], build: str | None) -> None:
    """ToolError if rows of `ocl` ran other code than `build`, or not all the same. A table must not mix builds."""
    for row in rows:
        found = row.get("build", build)
        if build is not None and found != build:
            raise ToolError(
                f"{row['model']}: the code of the package has changed during the run.\n"
                "  do: leave the checkout alone while it is measured, and start again"
            )
        build = found


def compare(name: str, mode: str, settings: NetworkSettings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Times one network. Returns a row for each side."""
    what = f"{name}, {mode}, {settings.precision}"
    rounds: dict[str, list[float]] = {side: [] for side in settings.sides}
    facts: dict[str, dict[str, Any]] = {}
    ways: dict[str, dict[str, str]] = {}
    processes: dict[str, SideProcess] = {}
    try:
        for side in settings.sides:
            processes[side] = settings.process(side, name, mode)
        say(f"{what}: compiling")
        for process in processes.values():  # All processes compile at once. Nothing is timed yet.
            process.send("first")
        for process in processes.values():
            process.answer()
        for side, process in processes.items():
            say(f"{what}: choosing the memory format and the optimizer of {side}")
            ways[side] = process.ask("choose")
        for process in processes.values():
            process.ask("round")
        for number in range(settings.rounds):
            say(f"{what}: round {number + 1} of {settings.rounds}")
            for side, process in processes.items():
                rounds[side].append(float(process.ask("round")))
        say(f"{what}: comparing with fp64")
        for side, process in processes.items():
            facts[side] = process.ask("facts")
    finally:
        for process in processes.values():
            process.__exit__()
    first = statistics.median(rounds[settings.sides[0]])
    rows = []
    for side, times in rounds.items():
        seconds = statistics.median(times)
        quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [seconds] * 3
        row = {"model": name, "mode": mode, "side": side, "precision": settings.precision, "batch": settings.batch,
               "ms": seconds * 1e3, "ratio": first / seconds, "spread": (quartiles[2] - quartiles[0]) / seconds,
               "rounds_ms": [t * 1e3 for t in times], **facts[side]}  # fmt: skip
        if settings.compile_times and SIDES[side].backend:
            with tempfile.TemporaryDirectory() as caches:
                for kind in ("cold_s", "warm_s"):
                    say(f"{what}: the first call of {side}, {'empty' if kind == 'cold_s' else 'warm'} caches")
                    with settings.process(side, name, mode, caches, ways[side]) as process:
                        row[kind] = float(process.ask("first"))
        rows.append(row)
    return rows


def work_of(name: str, mode: str, batch: int, size: int) -> tuple[float, float]:
    """Returns the floating-point operations of one step, and the least number of bytes that it moves."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model, example, _ = networks.make(name, batch, size)
        if mode == "training":
            rows = batch if example.is_floating_point() else example.numel()
            loss = torch.nn.functional.cross_entropy(model(example), torch.zeros(rows, dtype=torch.int64))
            loss.backward()
        else:
            with torch.no_grad():
                model(example)
    parameters = sum(p.numel() for p in model.parameters())
    passes = 7 if mode == "training" else 1
    return counter.get_total_flops(), 4.0 * (passes * parameters + example.numel())


def fraction_of_roofline(row: dict[str, Any], settings: NetworkSettings) -> float:
    """Returns the least time that the device's peaks allow, divided by the measured time. NaN if no peak is given."""
    if math.isnan(settings.flops) and math.isnan(settings.bandwidth):
        return NAN
    flops, moved = work_of(row["model"], row["mode"], row["batch"], settings.size)
    least = [v for v in (flops / settings.flops, moved / settings.bandwidth) if v == v]
    return float(max(least) * 1e3 / row["ms"]) if least else NAN
