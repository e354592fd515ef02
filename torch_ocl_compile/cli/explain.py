# torch_ocl_compile/cli/explain.py: `torch-ocl explain`.
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch

from torch_ocl_compile.cli.parts import (
    Command,
    beside_json,
    json_option,
    output_option,
    print_json,
    print_table,
    progress,
    require_device,
    say,
)
from torch_ocl_compile.cli.target import target_argument
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.script import run_target

if TYPE_CHECKING:
    from torch_ocl_compile.report.explanation import Explanation

RUNS = 3  # Number of measured runs of a model that a function returns.


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=[
        "torch-ocl explain train.py --epochs 1",
        "torch-ocl explain --html report.html train.py --epochs 1",
        "torch-ocl explain mymodel:make",
        "torch-ocl explain --json train.py > graphs.json",
    ],
)
@output_option(name="--html", help="Also measure the kernels, and write a page with all that is known of them.")
@json_option
@target_argument
def command(html: Path | None, as_json: bool, target: str, arguments: tuple[str, ...]) -> int:
    """Show the graphs and kernels that a program compiles with backend="ocl", and what ran on the CPU.

    TARGET is a script, which runs with ARGUMENTS as a main program, or MODULE:FUNCTION. The function is called without
    arguments. It either compiles and runs something itself, or returns a model and its inputs, which are compiled and run.

    The page of --html is one file. It says why kernels were not fused further, how near each comes to the limits of the device,
    what memory holds, and it has the sources of the kernels. It needs `pip install torch-ocl-compile[report]`.

    Ends with status 1 if the program fails, or compiles nothing."""
    from torch_ocl_compile.report.explanation import call_to_measure, load_page, watch

    require_device()
    if html is not None:
        load_page()  # Raises before the program runs if the page cannot be made.
    torch._dynamo.reset()
    with beside_json(as_json), watch(target, timing=html is not None) as found:
        returned = run_target(target, arguments)
        if isinstance(returned, tuple) and returned and callable(returned[0]):
            with progress("compiling"):
                model = torch.compile(returned[0], backend="ocl")
                call_to_measure(model, returned[1:], {}, found, runs=0 if html is None else RUNS)
    it = found.explanation
    if html is not None:
        it.save(html)
    if as_json:
        print_json(it.as_dict())
    else:
        _show(it)
        if html is not None:
            say(f"the page is {html}")
    if not it.graphs and not it.eager_in_graphs:
        raise ToolError(
            f"{target} compiled nothing with backend='ocl'.\n"
            "  do: let it call what torch.compile(..., backend='ocl') returns, or return (model, inputs) from a function"
        )
    return 0


def _show(it: Explanation) -> None:
    for graph in it.graphs:
        measured = graph.time_us is not None
        columns = ["kernel", ">ops", *([">us"] if measured else []), "computes"]
        rows = [(k.name, k.nodes, *([f"{k.time_us or 0:.0f}"] if measured else []), k.origin) for k in graph.kernels]
        print_table(columns, rows, title=str(graph))
    for found in it.breaks:
        say(f"graph break: {found.place} {found.reason}")
    for cut in it.cuts:
        say(str(cut))
    for choice in it.choices:
        say(str(choice))
    for reason, count in it.eager_in_graphs.items():
        say(f"on the CPU, in a graph, {count} times: {reason}")
    for op, count in it.eager_outside.items():
        say(f"on the CPU, {count} times: {op}")
