# torch_ocl_compile/cli/trace.py: `torch-ocl trace`.
from __future__ import annotations

from pathlib import Path

import click

from torch_ocl_compile.cli.parts import (
    Command,
    beside_json,
    json_option,
    output_option,
    print_json,
    print_table,
    require_device,
    say,
)
from torch_ocl_compile.cli.target import target_argument
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.device.record import record
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.script import run_target
from torch_ocl_compile.tools.trace import by_kernel, write_trace


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=["torch-ocl trace train.py --epochs 1", "torch-ocl trace --output step.json mymodel:step"],
)
@output_option("trace.json", help="Where the trace goes.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Kernels in the table; 0: all.")
@json_option
@target_argument
def command(output: Path, top: int, as_json: bool, target: str, arguments: tuple[str, ...]) -> int:
    """Write a Chrome trace of the kernels that a program runs on the device, and print the slowest ones.

    Open the trace in chrome://tracing or https://ui.perfetto.dev. It has a row for each kernel, with the ops and the model
    lines that it computes. TARGET is a script, which runs with ARGUMENTS as a main program, or MODULE:FUNCTION, which is
    called without arguments.

    Ends with status 1 if the program fails, or runs no kernel. The trace of a program that fails has what ran until then."""
    require_device()
    failure: ToolError | None = None
    with beside_json(as_json), record(timing=True) as launches:
        try:
            run_target(target, arguments)
        except ToolError as error:
            failure = error
    write_trace(launches, torch_ocl.get_device_name, output)
    rows = by_kernel(launches)
    if as_json:
        print_json({"trace": str(output), "launches": len(launches), "kernels": rows})
    else:
        if rows:
            print_table(["kernel", ">calls", ">us", ">share", "computes"],
                        [(r["kernel"], r["calls"], f"{r['time_us']:.0f}", f"{r['share']:.1%}", r["computes"])
                         for r in rows[: top or None]])  # fmt: skip
        say(f"{len(launches)} launches in {output}")
    if failure is not None:
        raise failure
    if not launches:
        raise ToolError(f"{target} ran no kernel on an OpenCL device.\n  do: move its model and data to 'ocl'")
    return 0
