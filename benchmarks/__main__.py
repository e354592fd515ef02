# benchmarks/__main__.py: `python -m benchmarks`: models, ops, memory, sides, plot.
from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
import torch

from benchmarks.collector import Collector
from benchmarks.harness import memory, results
from benchmarks.harness import models as networks
from benchmarks.harness import ops as operations
from benchmarks.harness import plot as charts
from benchmarks.harness.networks import unknown
from benchmarks.harness.results import NAN, Rows
from benchmarks.harness.sides import ADAM, DEFAULT_SIDES, PRECISIONS, SIDES, is_ours
from torch_ocl_compile.cli import main
from torch_ocl_compile.cli.parts import (
    Command,
    Group,
    json_option,
    names,
    names_of,
    number,
    output_option,
    print_json,
    print_table,
    require_device,
    say,
)
from torch_ocl_compile.device import torch_ocl

F = TypeVar("F", bound=Callable[..., Any])


@click.group("benchmarks", cls=Group)
def command() -> None:
    """Time networks and single operations on several sides: eager PyTorch, Inductor, and this backend.

    Each side runs in a process of its own. The sides run in turn, so that a change of the machine's speed reaches all.
    `python -m benchmarks sides` lists the sides."""


def _all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Returns a decorator that adds these options."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _sides(default: str, batch: int) -> Callable[[F], F]:
    """The options of `models`, `ops` and `memory`."""
    return _all_of(
        click.option("--sides", default=default, show_default=True, callback=names_of(*SIDES),
                     help="What to compare; a ratio is to the first. `python -m benchmarks sides` lists all."),
        click.option("--batch", type=click.IntRange(min=1), default=batch, show_default=True, help="Images or sequences."),
        click.option("--threads", type=click.IntRange(min=1), default=torch.get_num_threads,
                     help="Threads and cores of each side that runs on a CPU.  [default: PyTorch's]"),
        click.option("--ocl-device", default="ocl:0", show_default=True, help="Device of the sides of ocl."),
        click.option("--verbose", is_flag=True, help="Show what the sides print."),
        output_option(name="--save", help="Write a result file, after each network or operation."),
        click.option("--minutes", type=float, default=float("inf"), show_default=False, help="Begin nothing new after so many."),
        click.option("--resume", is_flag=True, help="Keep what the file of --save has, and measure the rest."),
        json_option,
    )  # fmt: skip


def _times(rounds: int, calls: int) -> Callable[[F], F]:
    """The options of `models` and `ops`."""
    return _all_of(
        click.option("--rounds", type=click.IntRange(min=1), default=rounds, show_default=True, help="Rounds of all sides."),
        click.option("--calls", type=click.IntRange(min=1), default=calls, show_default=True, help="Timed calls a round."),
        click.option("--flops", type=float, default=NAN, show_default=False, help="The device's peak, operations a second."),
        click.option("--bandwidth", type=float, default=NAN, show_default=False, help="Its copy bandwidth, bytes a second."),
    )  # fmt: skip


def _known_networks(ctx: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    chosen = names(ctx, parameter, value)
    if fault := unknown(chosen):
        raise click.BadParameter(f"{fault}.")
    return chosen


_networks = _all_of(
    click.option("--models", default="alexnet,resnet18", show_default=True, callback=_known_networks,
                 help="Networks: mlp, lenet, gpt, gpt2 (needs transformers), or of torchvision.models."),
    click.option("--modes", default="inference,training", show_default=True, callback=names_of(*networks.MODES),
                 help="What to run."),
    click.option("--precision", "precisions", default="highest", show_default=True, callback=names_of(*PRECISIONS),
                 help="Of all sides: fp32 (highest), fp32 with TF32 products (high), or autocast to bf16 or fp16."),
    click.option("--size", type=click.IntRange(min=1), default=224, show_default=True, help="Image height and width."),
)  # fmt: skip


@command.command(
    "models",
    cls=Command,
    examples=[
        "python -m benchmarks models --models alexnet,resnet18",
        "python -m benchmarks models --models vit_b_16,gpt2 --precision highest,bf16 --save run.json",
        "python -m benchmarks models --models mlp --sides eager,ocl --rounds 3 --json",
    ],
)
@_networks
@click.option("--from-host", is_flag=True, help="Batch 64; inputs lie on the host, and each step copies them.")
@click.option("--model-alone", is_flag=True, help="In training, compile the model; loss and optimizer run eagerly.")
@click.option("--optimizer", type=click.Choice(("", *ADAM)), default="", help="The one of all sides.")
@click.option("--compile-times", is_flag=True, help="Also time the first call, with empty and with warm caches.")
@_times(rounds=7, calls=3)
@_sides(",".join(DEFAULT_SIDES), batch=8)
def time_models(models: list[str], modes: list[str], precisions: list[str], as_json: bool, save: Path | None, minutes: float,
                resume: bool, **given: Any) -> int:  # fmt: skip
    """Time whole networks: inference, and training steps with Adam.

    \b
    ms        median of the rounds
    spread    distance between the quartiles of the rounds, over the median
    ratio     time of the first side over the time of this side
    way       memory format and optimizer; each side takes its fastest
    to best   time of the fastest other side over the time of this side
    error     largest difference to fp64, over the largest output
    roofline  share of the peaks that --flops and --bandwidth give
    cold s    seconds of a first call with empty caches (--compile-times)
    warm s    the same with the caches that it left

    A second table has the settings of each side, and how far they held:

    \b
    busy cores     CPU time over time, in the last round
    page faults    of a step
    eager kernels  kernels of a step that no compiled graph launched (ocl)
    """
    if any(map(is_ours, given["sides"])):
        require_device()
    settings = networks.NetworkSettings(**given)
    chosen = {"models": models, "modes": modes, "precisions": precisions}
    rows = Collector("networks", asdict(settings) | chosen, save, minutes, resume)
    # A clean commit is the same code, even if another machine has built it again. Otherwise the builds must be equal.
    is_clean = not str(rows.origin["commit"] or "-dirty").endswith("-dirty")
    build = None if is_clean else next((row["build"] for row in rows.rows if "build" in row), None)
    content = rows.collect(lambda now: networks.measure(models, modes, precisions, settings, now, rows.wanted, build))
    _show_networks(rows.rows, content, as_json)
    return rows.end()


def _show_networks(rows: Rows, content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content | {"means": results.geometric_means(rows)})
        return
    timed_first = any("cold_s" in row for row in rows)
    columns = ["network", "mode", "precision", ">batch", "side", "way", ">ms", ">spread", ">ratio", ">to best", ">error", ">roofline",
               ">peak MiB", *([">cold s", ">warm s"] if timed_first else []), "device"]  # fmt: skip
    table = []
    for row in rows:
        first = [number(row.get(key, NAN), ".1f") for key in ("cold_s", "warm_s")] if timed_first else []
        table.append([row["model"], row["mode"], row["precision"], row["batch"], row["side"], results.way_of(row), f"{row['ms']:.3f}",
                      f"{row['spread']:.1%}", f"{row['ratio']:.2f}", number(row["against_best"], ".2f"),
                      number(row["error"], ".1e"), number(row["roofline"], ".1%"), number(row["peak_mib"], ".0f"), *first,
                      row["device"]])  # fmt: skip
    print_table(columns, table)
    means = [[m["networks"], m["mode"], m["precision"], m["protocol"], m["side"], f"{m['ratio']:.2f}",
              number(m["against_best"], ".2f")] for m in results.geometric_means(rows)]  # fmt: skip
    print_table(
        [">networks", "mode", "precision", "protocol", "side", ">ratio", ">to best"], means, title="geometric means"
    )
    _show_sides(rows)


def _show_sides(rows: Rows) -> None:
    """Prints the settings of each side, and how far its limits held."""
    sides = [(s["side"], ", ".join(s["modes"]), number(s["busy_cores"], ".2f"), number(s["page_faults"], ".0f"),
              number(s["eager_kernels"], ".0f"), s["settings"]) for s in results.sides_of(rows)]  # fmt: skip
    if sides:
        columns = ["side", "mode", ">busy cores", ">page faults", ">eager kernels", "settings"]
        print_table(columns, sides, title="settings of the sides")


@command.command(
    "ops",
    cls=Command,
    examples=[
        "python -m benchmarks ops --groups gemm,conv --sides eager,ocl",
        "python -m benchmarks ops --groups gemm --cases 1024 --batch 8 --json",
        "python -m benchmarks ops --groups attention --sides eager-flash,eager-efficient,ocl --precision highest,bf16",
    ],
)
@click.option(
    "--groups", default="", callback=names, help="gemm, bmm, conv, conv3, memory, attention, rows, ...; all if empty."
)
@click.option("--cases", default="", callback=names, help="Parts of the names of the operations; all if empty.")
@click.option(
    "--precision",
    "precisions",
    default="highest",
    show_default=True,
    callback=names_of(*PRECISIONS),
    help="Of all sides: fp32 (highest), fp32 with TF32 products (high), or inputs of bf16 or fp16.",
)
@click.option("--errors/--no-errors", default=True, help="Whether results are compared with fp64.")
@_times(rounds=5, calls=20)
@_sides(",".join(DEFAULT_SIDES), batch=64)
def time_ops(groups: list[str], cases: list[str], precisions: list[str], as_json: bool, save: Path | None, minutes: float,
             resume: bool, **given: Any) -> int:  # fmt: skip
    """Time single operations: matrix products, convolutions, attention, softmax, norms, chains of pointwise ops.

    \b
    ms        median of the rounds
    ratio     time of the first side over the time of this side
    to best   time of the fastest other side over the time of this side
    roofline  share of the device's peaks; without --flops, a CPU's is measured
    error     RMSE to fp64, over the RMS of the result
    """
    if any(map(is_ours, given["sides"])):
        require_device()
    settings = operations.OpSettings(groups=groups, parts=cases, precisions=tuple(precisions), **given)
    rows = Collector("operations", asdict(settings), save, minutes, resume)
    content = rows.collect(lambda now: operations.measure(settings, rows.wanted))
    means = operations.means(rows.rows)
    if as_json:
        print_json(content | {"means": means})
    else:
        _show_operations(rows.rows, means)
    return rows.end()


def _show_operations(rows: Rows, means: Rows) -> None:
    print_table(
        ["precision", "group", "operation", "side", ">ms", ">ratio", ">to best", ">TFLOP/s", ">GB/s", ">roofline", ">error"],
        [(PRECISIONS[r["precision"]], r["group"], r["case"], r["side"], f"{r['ms']:.3f}", number(r["ratio"], ".2f"),
          number(r["against_best"], ".2f"), f"{r['tflops']:.2f}", f"{r['gbytes']:.0f}", f"{r['roofline']:.1%}",
          number(r["error"], ".1e")) for r in rows],
    )  # fmt: skip
    print_table(
        ["precision", "group", "side", ">ratio", ">to best", ">roofline, least", ">largest"],
        [(PRECISIONS[m["precision"]], m["group"], m["side"], number(m["ratio"], ".2f"), number(m["against_best"], ".2f"),
          f"{m['least_roofline']:.1%}", f"{m['largest_roofline']:.1%}") for m in means],
        title="geometric means",
    )  # fmt: skip
    _show_sides(rows)


@command.command(
    "memory",
    cls=Command,
    examples=[
        "python -m benchmarks memory --models resnet18",
        "python -m benchmarks memory --models gpt2 --sides eager,inductor,ocl",
    ],
)
@_networks
@_sides("ocl", batch=8)
def measure_memory(models: list[str], modes: list[str], precisions: list[str], as_json: bool, save: Path | None, minutes: float,
                   resume: bool, **given: Any) -> int:  # fmt: skip
    """Measure the peak of device memory in one step, and what it consists of.

    A side of PyTorch needs CUDA, because PyTorch counts no memory on a CPU. The parts of a peak:

    \b
    weights             parameters and buffers
    gradients           also those that a backward graph still holds
    optimizer state     of Adam
    input               of the network
    saved tensors       what forward graphs keep for backward graphs (ocl)
    results             of other graphs (ocl)
    arena               intermediate results of a graph, while it runs (ocl)
    packed weights      weights in the order in which kernels read them (ocl)
    activations         other memory of the step
    held between steps  other memory from before the step, such as workspaces
    padding             what the allocator adds to sizes, if it does not count it above
    """
    if any(map(is_ours, given["sides"])):
        require_device()
    settings = networks.NetworkSettings(**given)
    chosen = {"models": models, "modes": modes, "precisions": precisions}
    rows = Collector("memory", asdict(settings) | chosen, save, minutes, resume)
    content = rows.collect(lambda now: memory.measure(models, modes, precisions, settings, now, rows.wanted))
    if as_json:
        print_json(content)
    else:
        for row in rows.rows:
            _show_memory(row)
        _show_sides(rows.rows)
    return rows.end()


def _show_memory(row: dict[str, Any]) -> None:
    def mib(size: int) -> str:
        return f"{size / 2**20:.2f}"

    peak = row["peak_bytes"]
    title = (
        f"{row['model']}, {row['mode']}, {row['precision']}, batch {row['batch']}, {row['side']}, {results.way_of(row)}"
    )
    parts = [*row["parts"].items(), ("peak", peak)]
    say(f"\n{title}, on {row['device']}; {mib(row['reserved_bytes'])} MiB taken from the device")
    print_table(["part", ">MiB", ">share"], [(part, mib(size), f"{size / peak:.1%}") for part, size in parts if size])
    holders = [(h["part"], h["name"], h["blocks"], mib(h["bytes"])) for h in row["holders"]]
    print_table(["part", "largest holders", ">blocks", ">MiB"], holders)
    tensors = [(t["graph"], t["what"], t["tensor"], mib(t["bytes"]), t["op"], t["line"]) for t in row["tensors"]]
    if tensors:
        print_table(["graph", "kind", "largest tensors in graphs", ">MiB", "op", "line"], tensors)


@command.command("sides", cls=Command, examples=["python -m benchmarks sides"])
@json_option
def list_sides(as_json: bool) -> int:
    """List the sides that can be compared here, and on which device each runs."""
    cuda = torch.cuda.is_available()
    host = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    inductor = "" if cuda or importlib.util.find_spec("torch._inductor.cpp_builder") else "this torch has no Inductor"
    problems = {None: "", "inductor": inductor}
    ours = [f"ocl:{i}, {torch_ocl.get_device_name(i)}" for i in range(torch_ocl.device_count())]
    rows = []
    for side, kind in SIDES.items():
        devices = ours if is_ours(side) else [host]
        rows += [{"side": side, "device": device, "problem": problems.get(kind.backend, "")} for device in devices]
        rows += [] if devices else [{"side": side, "device": "", "problem": "no OpenCL device"}]
    if as_json:
        print_json(rows)
    else:
        print_table(["side", "device", "problem"], [tuple(row.values()) for row in rows])
    return 0


@command.command(
    "plot",
    cls=Command,
    examples=["python -m benchmarks plot run.json", "python -m benchmarks plot fp32.json bf16.json --output speed.png"],
)
@output_option("bench.png", help="Where the chart goes.")
@json_option
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def plot(output: Path, as_json: bool, files: tuple[Path, ...]) -> int:
    """Print and draw the result FILES of `models --save`. Each file has a table and panels of its own."""
    contents = {str(path): results.read(path) for path in files}
    for content in contents.values():
        results.add_best(content["networks"])
    charts.plot({name: content["networks"] for name, content in contents.items()}, output)
    if as_json:
        print_json(contents)
        return 0
    for name, content in contents.items():
        say(f"\n{name}: {content['when']}, commit {content['commit']}")
        _show_networks(content["networks"], content, as_json=False)
    say(f"chart in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(group=command, name="python -m benchmarks"))
