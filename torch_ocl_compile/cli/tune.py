# torch_ocl_compile/cli/tune.py: `torch-ocl tune`.
from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click
import torch

from torch_ocl_compile import config
from torch_ocl_compile.cli.parts import (
    Command,
    device_option,
    json_option,
    output_option,
    print_json,
    print_table,
    require_device,
    say,
)
from torch_ocl_compile.cli.target import checked_target
from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.tools.script import run_target
from torch_ocl_compile.tuning import measure, shapes, table

DTYPES = ("float32", "float16", "bfloat16")


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=[
        "torch-ocl tune train.py --epochs 1",
        "torch-ocl tune --dtype bfloat16 gemm:4096x4096x4096 conv:64x256x14x14,256x3x3 attention:8x12x512x64",
        "torch-ocl tune --export table.json",
        "torch-ocl tune --forget",
    ],
)
@device_option("Device for shapes; a script chooses its own.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of shapes.")
@click.option("--precision", type=click.Choice(["highest", "high", "medium"]), default="highest", show_default=True,
              help="Of fp32 products.")  # fmt: skip
@click.option("--gradients/--no-gradients", default=True, help="Whether shapes are tuned for training too.")
@click.option("--again", is_flag=True, help="Also measure what is stored already.")
@click.option("--forget", is_flag=True, help="First erase all measurements and disabled variants.")
@output_option(name="--export", help="Then write the device's choices as a table that can be shipped.")
@json_option
@click.argument("target", nargs=-1, type=click.UNPROCESSED)
def command(device: str, dtype: str, precision: str, gradients: bool, again: bool, forget: bool, export: Path | None,
            as_json: bool, target: tuple[str, ...]) -> int:  # fmt: skip
    """Measure which kernel variant is fastest, and store it for later compilations.

    TARGET is a script with its arguments, MODULE:FUNCTION, or shapes: gemm:MxNxK,
    conv:NxCxHxW,KxRxS[,stride=2][,padding=1][,groups=1], attention:BxHxLxD."""
    if not (target or forget or export):
        raise click.UsageError("Nothing to do: give a script, shapes, --forget or --export.")
    config.configure_core()
    erased = table.clear() if forget else None
    if erased is not None and not as_json:
        say(f"{erased} rows erased")
    measure.again = again
    measure.session.clear()
    if target or export:
        require_device()
    if target:
        _measure(target, device, dtype, precision, gradients, as_json)
    written = None
    if export:
        written = table.export(table.table_of(torch.device(device).index or 0), export)
    rows = [{"problem": t.problem, "model_choice": t.model_choice, "model_ms": t.model_ms, "choice": t.choice, "ms": t.ms,
             "tried": t.tried} for t in measure.session]  # fmt: skip
    if as_json:
        print_json({"erased": erased, "measured": rows, "exported": written})
        return 0
    if rows:
        print_table(["problem", "the model's choice", ">ms", "fastest", ">ms", ">times as fast", ">tried"],
                    [(t.problem, t.model_choice, f"{t.model_ms:.3f}", t.choice if t.choice != t.model_choice else "the same",
                      f"{t.ms:.3f}", f"{t.model_ms / t.ms:.2f}", t.tried) for t in measure.session])  # fmt: skip
    elif target:
        say("nothing to measure: all of it is stored, or nothing has variants")
    if export:
        say(f"{written} choices that differ from the models' in {export}")
    return 0


def _measure(target: tuple[str, ...], device: str, dtype: str, precision: str, gradients: bool, quiet: bool) -> None:
    torch.set_float32_matmul_precision(precision)
    if not shapes.is_shape(target[0]):
        checked_target(click.get_current_context(), _TARGET, target[0])
    with config.override(max_autotune=True), contextlib.ExitStack() as stack:
        if quiet:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if shapes.is_shape(target[0]):
            for text in target:
                try:
                    job = shapes.job(text, torch.device(device), getattr(torch, dtype))
                except ConfigError as error:
                    raise click.UsageError(str(error)) from error
                shapes.run(*job, gradients)
        else:
            run_target(target[0], target[1:])


_TARGET = click.Argument(["target"])
