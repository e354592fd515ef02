# torch_ocl_compile/cli/bench.py: `torch-ocl bench`.
from __future__ import annotations

import click

from torch_ocl_compile.cli.parts import (
    Command,
    device_option,
    json_option,
    names_of,
    print_json,
    print_table,
    progress,
    require_device,
)
from torch_ocl_compile.tools.bench import SIDES, measure
from torch_ocl_compile.tools.script import is_function


@click.command(
    cls=Command,
    examples=["torch-ocl bench mymodel:make", "torch-ocl bench mymodel:make --mode training --precision bf16"],
)
@click.option("--sides", default=",".join(SIDES), show_default=True, callback=names_of(*SIDES),
              help="What to compare; a ratio is to the first.")  # fmt: skip
@click.option("--mode", type=click.Choice(["inference", "training"]), default="inference", show_default=True,
              help="Training is forward, the mean of the results, and backward.")  # fmt: skip
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]), default="fp32", show_default=True,
              help="The last two are autocast.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True, help="Rounds of all sides.")
@click.option("--calls", type=click.IntRange(min=1), default=3, show_default=True, help="Timed calls a round.")
@device_option("Device of the side ocl.")
@json_option
@click.argument("function", metavar="MODULE:FUNCTION")
def command(
    sides: list[str], mode: str, precision: str, rounds: int, calls: int, device: str, as_json: bool, function: str
) -> int:
    """Time a model beside eager PyTorch and Inductor, which run on CUDA where torch has it, and on the CPU elsewhere.

    The function is called without arguments. It returns a model and its inputs, as for `torch-ocl package`.

    \b
    ms      median of the rounds; a round is the median of its calls, after one that is not timed
    ratio   time of the first side over the time of this side
    spread  distance between the fastest and the slowest round, over the median
    """
    if not is_function(function):
        raise click.UsageError("name the function that returns the model and its inputs as MODULE:FUNCTION.")
    if "ocl" in sides:
        require_device()
    with progress("starting") as now:
        rows = measure(sides, [function, mode, precision, device], rounds, calls, now)
    if as_json:
        print_json(rows)
    else:
        print_table(["side", "device", ">ms", ">ratio", ">spread"],
                    [(r["side"], r["device"], f"{r['ms']:.3f}", f"{r['ratio']:.2f}", f"{r['spread']:.1%}") for r in rows])  # fmt: skip
    return 0
