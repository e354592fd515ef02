# torch_ocl_compile/cli/bench.py: `torch-ocl bench`: models, ops, sides, plot.
from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import torch

from torch_ocl_compile.bench import models as networks
from torch_ocl_compile.bench import ops as operations
from torch_ocl_compile.bench import plot as charts
from torch_ocl_compile.bench import results
from torch_ocl_compile.bench.process import SIDES
from torch_ocl_compile.bench.results import NAN
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
    progress,
    require_device,
    say,
)
from torch_ocl_compile.device import torch_ocl

F = TypeVar("F", bound=Callable[..., Any])
Rows = list[dict[str, Any]]


@click.group("bench", cls=Group)
def command() -> None:
    """Time networks and single operations on several sides: eager PyTorch, Inductor, and this backend.

    Each side runs in a process of its own. The sides run in turn, so that a change of the machine's speed reaches all."""


def _common(rounds: int, calls: int, batch: int) -> Callable[[F], F]:
    """Returns a decorator that adds the options that `models` and `ops` share."""

    def add(command: F) -> F:
        options = [
            click.option("--sides", default="eager,inductor,ocl", show_default=True, callback=names_of(*SIDES),
                         help="What to compare; the ratio is to the first."),
            click.option("--batch", type=click.IntRange(min=1), default=batch, show_default=True, help="Images or sequences."),
            click.option("--rounds", type=click.IntRange(min=1), default=rounds, show_default=True, help="Rounds of all sides."),
            click.option("--calls", type=click.IntRange(min=1), default=calls, show_default=True, help="Timed calls a round."),
            click.option("--threads", type=click.IntRange(min=1), default=torch.get_num_threads,
                         help="Threads of PyTorch on the CPU.  [default: PyTorch's]"),
            click.option("--ocl-device", default="ocl:0", show_default=True, help="Device of the side ocl."),
            click.option("--flops", type=float, default=NAN, show_default=False, help="The device's peak, operations a second."),
            click.option("--bandwidth", type=float, default=NAN, show_default=False, help="Its copy bandwidth, bytes a second."),
            click.option("--verbose", is_flag=True, help="Show what the sides print."),
            output_option(name="--save", help="Also write the rows to a result file."),
            json_option,
        ]  # fmt: skip
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _collected(rows: Iterable[dict[str, Any]]) -> Rows:
    """Collects the rows. If the user interrupts, returns the rows so far."""
    found: Rows = []
    try:
        for row in rows:
            found.append(row)
    except KeyboardInterrupt:
        say("interrupted: these are the results so far")
    return found


@command.command(
    "models",
    cls=Command,
    examples=[
        "torch-ocl bench models --models alexnet,resnet18",
        "torch-ocl bench models --models vit_b_16,gpt2 --precision highest,bf16 --save run.json",
        "torch-ocl bench models --models mlp --sides eager,ocl --rounds 3 --json",
    ],
)
@click.option("--models", default="alexnet,resnet18", show_default=True, callback=names,
              help="Networks: mlp, lenet, gpt, gpt2 (needs transformers), or of torchvision.models.")  # fmt: skip
@click.option(
    "--modes", default="inference,training", show_default=True, callback=names_of(*networks.MODES), help="What to time."
)
@click.option("--precision", "precisions", default="highest", show_default=True, callback=names_of(*networks.PRECISIONS),
              help="Of all sides: fp32 (highest), fp32 with TF32 products (high), or autocast to bf16 or fp16.")  # fmt: skip
@click.option("--size", type=click.IntRange(min=1), default=224, show_default=True, help="Image height and width.")
@click.option("--from-host", is_flag=True, help="Batch 64; inputs lie on the host, and each step copies them.")
@click.option("--compile-times", is_flag=True, help="Also time the first call, with empty and with warm caches.")
@_common(rounds=7, calls=3, batch=8)
def time_models(models: list[str], modes: list[str], precisions: list[str], as_json: bool, save: Path | None,
                **given: Any) -> int:  # fmt: skip
    """Time whole networks: inference, and training steps with Adam.

    \b
    ms        median of the rounds
    spread    distance between the quartiles of the rounds, over the median
    ratio     time of the first side over the time of this side
    to best   time of the fastest other side over the time of this side
    error     largest difference to fp64, over the largest output
    roofline  share of the peaks that --flops and --bandwidth give
    cold s    seconds of a first call with empty caches (--compile-times)
    warm s    the same with the caches that it left
    """
    if "ocl" in given["sides"]:
        require_device()
    settings = networks.NetworkSettings(**given)
    with progress("starting") as now:
        rows = _collected(networks.measure(models, modes, precisions, settings, now))
    content = results.result(
        rows, [], networks.settings_of(settings, models=models, modes=modes, precisions=precisions)
    )
    _show_networks(rows, content, as_json)
    if save:
        results.write(content, save)
    return 0


def _show_networks(rows: Rows, content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content | {"means": results.geometric_means(rows)})
        return
    timed_first = any("cold_s" in row for row in rows)
    columns = ["network", "mode", "precision", ">batch", "side", ">ms", ">spread", ">ratio", ">to best", ">error", ">roofline",
               ">peak MiB", *([">cold s", ">warm s"] if timed_first else []), "device"]  # fmt: skip
    table = []
    for row in rows:
        first = [number(row.get(key, NAN), ".1f") for key in ("cold_s", "warm_s")] if timed_first else []
        table.append([row["model"], row["mode"], row["precision"], row["batch"], row["side"], f"{row['ms']:.3f}",
                      f"{row['spread']:.1%}", f"{row['ratio']:.2f}", number(row["against_best"], ".2f"),
                      number(row["error"], ".1e"), number(row["roofline"], ".1%"), number(row["peak_mib"], ".0f"), *first,
                      row["device"]])  # fmt: skip
    print_table(columns, table)
    means = [[m["networks"], m["mode"], m["precision"], m["protocol"], m["side"], f"{m['ratio']:.2f}",
              number(m["against_best"], ".2f")] for m in results.geometric_means(rows)]  # fmt: skip
    print_table(
        [">networks", "mode", "precision", "protocol", "side", ">ratio", ">to best"], means, title="geometric means"
    )


@command.command(
    "ops",
    cls=Command,
    examples=[
        "torch-ocl bench ops --groups gemm,conv --sides eager,ocl",
        "torch-ocl bench ops --groups gemm --cases 1024 --batch 8 --json",
    ],
)
@click.option(
    "--groups", default="", callback=names, help="gemm, bmm, conv, conv3, memory, attention, rows, ...; all if empty."
)
@click.option("--cases", default="", callback=names, help="Parts of the names of the operations; all if empty.")
@click.option("--tf32", is_flag=True, help="Allow TF32 on every side.")
@click.option("--errors/--no-errors", default=True, help="Whether results are compared with fp64.")
@_common(rounds=5, calls=20, batch=64)
def time_ops(groups: list[str], cases: list[str], as_json: bool, save: Path | None, **given: Any) -> int:
    """Time single operations: matrix products, convolutions, attention, softmax, norms, chains of pointwise ops.

    \b
    ms        median of the rounds
    ratio     time of the first side over the time of this side
    roofline  share of the device's peaks; without --flops, a CPU's is measured
    error     RMSE to fp64, over the RMS of the result
    """
    if "ocl" in given["sides"]:
        require_device()
    settings = operations.OpSettings(groups=groups, parts=cases, **given)
    with progress("timing"):
        rows = _collected(operations.measure(settings))
    means = operations.means(rows)
    if as_json:
        print_json({"torch": torch.__version__, "operations": rows, "means": means})
    else:
        print_table(
            ["group", "operation", "side", ">ms", ">ratio", ">TFLOP/s", ">GB/s", ">roofline", ">error"],
            [(r["group"], r["case"], r["side"], f"{r['ms']:.3f}", f"{r['ratio']:.2f}", f"{r['tflops']:.2f}", f"{r['gbytes']:.0f}",
              f"{r['roofline']:.1%}", number(r["error"], ".1e")) for r in rows],
        )  # fmt: skip
        print_table(
            ["group", "side", ">ratio", ">roofline, least", ">largest"],
            [(m["group"], m["side"], f"{m['ratio']:.2f}", f"{m['least_roofline']:.1%}", f"{m['largest_roofline']:.1%}") for m in means],
            title="geometric means",
        )  # fmt: skip
    if save:
        results.write(results.result([], rows, {"torch": torch.__version__}), save)
    return 0


@command.command("sides", cls=Command, examples=["torch-ocl bench sides"])
@json_option
def list_sides(as_json: bool) -> int:
    """List the sides that can be compared here, and on which device each runs."""
    cuda = torch.cuda.is_available()
    host = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    inductor = "" if cuda or importlib.util.find_spec("torch._inductor.cpp_builder") else "this torch has no Inductor"
    rows = [{"side": "eager", "device": host, "problem": ""}, {"side": "inductor", "device": host, "problem": inductor}]
    rows += [{"side": "ocl", "device": f"ocl:{i}, {torch_ocl.get_device_name(i)}", "problem": ""}
             for i in range(torch_ocl.device_count())] or [{"side": "ocl", "device": "", "problem": "no OpenCL device"}]  # fmt: skip
    if as_json:
        print_json(rows)
    else:
        print_table(["side", "device", "problem"], [tuple(row.values()) for row in rows])
    return 0


@command.command(
    "plot",
    cls=Command,
    examples=["torch-ocl bench plot run.json", "torch-ocl bench plot fp32.json bf16.json --output speed.png"],
)
@output_option("bench.png", help="Where the chart goes.")
@json_option
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def plot(output: Path, as_json: bool, files: tuple[Path, ...]) -> int:
    """Print and draw the result FILES of `bench models --save`. If several have a case, the last file counts."""
    rows = results.merged([results.read(path) for path in files])
    results.add_best(rows)
    charts.plot(rows, output)
    _show_networks(rows, {"networks": rows}, as_json)
    if not as_json:
        say(f"chart in {output}")
    return 0
