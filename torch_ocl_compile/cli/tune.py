# torch_ocl_compile/cli/tune.py: `torch-ocl tune`.
from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import torch

from torch_ocl_compile import config
from torch_ocl_compile.cli.parts import (
    Command,
    beside_json,
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

if TYPE_CHECKING:
    from torch_ocl_compile.compile import call

DTYPES = ("float32", "float16", "bfloat16")


def _set_again(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    measure.again = value


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=[
        "torch-ocl tune --quick",
        "torch-ocl tune --quick --minutes 5 train.py --epochs 1",
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
@click.option("--quick", is_flag=True, help="Stop after --minutes. Without TARGET: tune usual sizes, for inference.")
@click.option("--minutes", type=click.FloatRange(min=0), default=2.0, show_default=True, help="Time for --quick.")
@click.option(
    "--again", is_flag=True, expose_value=False, callback=_set_again, help="Also measure what is stored already."
)
@click.option("--forget", is_flag=True, help="First erase all measurements and disabled variants.")
@output_option(name="--export", help="Then write the device's choices as a table that can be shipped.")
@json_option
@click.argument("target", nargs=-1, type=click.UNPROCESSED)
def command(device: str, dtype: str, precision: str, gradients: bool, quick: bool, minutes: float,
            forget: bool, export: Path | None, as_json: bool, target: tuple[str, ...]) -> int:  # fmt: skip
    """Measure which kernel variant is fastest, and store it for later compilations.

    TARGET is a script with its arguments, MODULE:FUNCTION, or shapes: gemm:MxNxK,
    conv:NxCxHxW,KxRxS[,stride=2][,padding=1][,groups=1], attention:BxHxLxD.

    With --quick, every problem gets a share of the time, and the best of what was tried is stored. A program is ended at its
    next call of a compiled function after that. A later run goes on with what is left."""
    if not (target or forget or export or quick):
        raise click.UsageError("Nothing to do: give a script, shapes, --quick, --forget or --export.")
    config.configure_core()
    erased = table.clear() if forget else None
    if erased is not None and not as_json:
        say(f"{erased} rows erased")
    measure.session.clear()
    measure.left_out.clear()
    if target or export or quick:
        require_device()
    if quick and not target:
        target, gradients = shapes.STANDARD, False
    if target:
        with _until(minutes if quick else None):
            _measure(target, device, dtype, precision, gradients, as_json)
    written = None
    if export:
        written = table.export(table.table_of(torch.device(device).index or 0), export)
    if as_json:
        rows = [{"problem": t.problem, "model_choice": t.model_choice, "model_ms": t.model_ms, "choice": t.choice, "ms": t.ms,
                 "tried": t.tried, "cut": t.cut} for t in measure.session]  # fmt: skip
        print_json({"erased": erased, "measured": rows, "left_out": sorted(measure.left_out), "exported": written})
        return 0
    if target:
        _show()
    if export:
        say(f"{written} choices that differ from the models' in {export}")
    return 0


def _show() -> None:
    """Prints what this process measured, and what was gained."""
    found = measure.session
    if found:
        print_table(["problem", "the model's choice", ">ms", "fastest", ">ms", ">times as fast", ">tried"],
                    [(t.problem, t.model_choice, f"{t.model_ms:.3f}", t.choice if t.choice != t.model_choice else "the same",
                      f"{t.ms:.3f}", f"{t.model_ms / t.ms:.2f}", t.tried) for t in found])  # fmt: skip
        gained = [t for t in found if t.choice != t.model_choice]
        mean = math.exp(sum(math.log(t.model_ms / t.ms) for t in found) / len(found))
        say(
            f"{len(gained)} of {len(found)} problems became faster; all together {mean:.2f} times as fast (geometric mean)"
        )
    if measure.left_out:
        say(f"the time ended: {len(measure.left_out)} problems are not tuned, or not to the end; run it again to go on")
    elif not found:
        say("nothing to measure: all of it is stored, or nothing has variants")


class _TimeIsUp(BaseException):
    """Ends a program. As it is no Exception, `except Exception` does not catch it."""


def _ending(run: call.Boxed) -> call.Boxed:
    def watched(inputs: list[Any]) -> list[Any]:
        if time.monotonic() > measure.until:
            raise _TimeIsUp
        return run(inputs)

    return watched


@contextlib.contextmanager
def _until(minutes: float | None) -> Iterator[None]:
    """Ends the block's measurements, and the program that it runs, after some minutes. None: never."""
    if minutes is None:
        yield
        return
    from torch_ocl_compile.compile import call

    torch._dynamo.reset()  # Graphs that were compiled earlier are not watched.
    measure.until, call.watch = time.monotonic() + 60 * minutes, _ending
    try:
        yield
    except _TimeIsUp:
        pass
    finally:
        measure.until, call.watch = math.inf, None


def _measure(target: tuple[str, ...], device: str, dtype: str, precision: str, gradients: bool, quiet: bool) -> None:
    torch.set_float32_matmul_precision(precision)
    if not shapes.is_shape(target[0]):
        checked_target(click.get_current_context(), _TARGET, target[0])
    with config.override(max_autotune=True), beside_json(quiet):
        if not shapes.is_shape(target[0]):
            run_target(target[0], target[1:])
            return
        end = measure.until
        for number, text in enumerate(target):
            try:
                job = shapes.job(text, torch.device(device), getattr(torch, dtype))
            except ConfigError as error:
                raise click.UsageError(str(error)) from error
            now = time.monotonic()
            if now > end:
                measure.left_out.update(target[number:])
                break
            measure.until = now + (end - now) / (len(target) - number)
            with contextlib.suppress(_TimeIsUp):
                shapes.run(*job, gradients)
        measure.until = end


_TARGET = click.Argument(["target"])
