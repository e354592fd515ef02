# torch_ocl_compile/cli/warm.py: `torch-ocl warm`.
from __future__ import annotations

from dataclasses import asdict

import click

from torch_ocl_compile import _C, config
from torch_ocl_compile.cli.parts import Command, beside_json, json_option, print_json, require_device, say
from torch_ocl_compile.cli.target import target_argument
from torch_ocl_compile.errors import ToolError


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=["torch-ocl warm train.py --epochs 1", "torch-ocl warm mymodel:make"],
)
@click.option("--idle", type=click.IntRange(min=0), default=100, show_default=True, metavar="CALLS",
              help="End the program when so many calls of compiled graphs in a row brought nothing new. 0: run it to its end.")  # fmt: skip
@json_option
@target_argument
def command(idle: int, as_json: bool, target: str, arguments: tuple[str, ...]) -> int:
    """Fill the cache for a program: its graphs are traced and its kernels built, and nothing is computed.

    TARGET is a script, which runs with ARGUMENTS as a main program, or MODULE:FUNCTION. The function is called without
    arguments. It either does a step itself, or returns a model and its inputs. Then the model's forward graph is compiled, and its
    backward graph if a result requires gradients.

    The program runs as always, but the kernels of its graphs and ops are not launched: all their results are zeros. So a value
    that it reads, such as a loss, is 0, and only what it compiles for such values is in the cache afterwards. A loop that ends
    at some value may not end. Whatever else the program does, it does: it reads data, prints, and writes files. Do not let it
    overwrite a checkpoint.

    Ends with status 1 if the program fails, or compiles nothing. What it compiled until then is in the cache."""
    from torch_ocl_compile.tools.warm import warm

    require_device()
    config.configure_core()
    if not _C.exec.cache_stats().get("enabled"):
        raise ToolError("the cache is off: there is nothing to fill; `torch-ocl cache stats` says why")
    try:
        with beside_json(as_json):
            work, ended = warm(target, list(arguments), idle)
    except ToolError as error:
        note = "  note: no kernel was launched, so all values were zeros; what was compiled is in the cache"
        raise ToolError(f"{error}\n{note}") from error
    if as_json:
        print_json({**asdict(work), "ended": ended})
    else:
        say(f"graphs: {work.graphs_compiled} compiled, {work.graphs_loaded} were in the cache")
        say(f"plans of eager ops: {work.eager_compiled} compiled, {work.eager_loaded} were in the cache")
        say(f"kernels: {work.kernels_built} built, {work.kernels_loaded} were in the cache")
        if work.kernels_at_launch:
            say(
                f"{work.kernels_at_launch} of these kernels will be compiled once more at their first launch: so does this runtime"
            )
        if ended:
            say(f"the program was ended: {idle} calls of compiled graphs brought nothing new")
    if not work.any():
        raise ToolError(
            f"{target} compiled nothing for an OpenCL device.\n  do: move its model and data to 'ocl', and use backend='ocl'"
        )
    return 0
