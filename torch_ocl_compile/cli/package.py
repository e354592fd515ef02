# torch_ocl_compile/cli/package.py: `torch-ocl package`.
from __future__ import annotations

from pathlib import Path

import click

import ocl_run
from torch_ocl_compile.cli.parts import FILE, Command, json_option, output_option, print_json, print_table, say
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.script import is_function, run_target


@click.command(
    cls=Command,
    examples=[
        "torch-ocl package mymodel:make -o model.ocl",
        "torch-ocl package mymodel:make -o model.ocl --device 0 --device intel",
        "torch-ocl package --describe model.ocl",
    ],
)
@output_option(name="--output", help="The package.")
@click.option("--device", "devices", multiple=True, metavar="DEVICE",
              help="Also add the built kernels of this device: its number or a part of its name. May be repeated.")  # fmt: skip
@click.option("--describe", type=FILE, metavar="FILE", help="Show the methods of a package instead.")
@json_option
@click.argument("function", required=False, metavar="[MODULE:FUNCTION]")
def command(
    output: Path | None, devices: tuple[str, ...], describe: Path | None, as_json: bool, function: str | None
) -> int:
    """Write a model to a file that runs on any OpenCL device, without PyTorch and Python.

    The function is called without arguments. It returns a model and the inputs with which it is exported, or a mapping of names
    to `torch_ocl_compile.package.Method`, which is needed for several methods and for sizes that change."""
    if describe is not None:
        return _describe(describe, as_json)
    if function is None or not is_function(function):
        raise click.UsageError("name the function that returns the model and its inputs as MODULE:FUNCTION.")
    if output is None:
        raise click.UsageError("name the file with --output.")
    from torch_ocl_compile import package

    returned = run_target(function, ())
    if isinstance(returned, tuple) and returned and callable(returned[0]):
        package.save(output, returned[0].eval(), returned[1:], devices=devices)
    elif isinstance(returned, dict):
        package.save(output, returned, devices=devices)
    else:
        raise ToolError(f"{function} returned {type(returned).__name__}.\n  do: let it return (model, inputs...)")
    say(f"{output}: {output.stat().st_size / 2**20:.1f} MiB")
    return 0


def _describe(path: Path, as_json: bool) -> int:
    try:
        with ocl_run.load(path) as model:
            methods = list(model.methods.values())
    except ocl_run.PackageError as error:
        raise ToolError(str(error)) from error
    if as_json:
        fields = ("arguments", "conditions", "results")
        print_json({m.name: {field: getattr(m, field) for field in fields} for m in methods})
        return 0
    for method in methods:
        rows = [("takes", *argument) for argument in method.arguments] + [("returns", *r) for r in method.results]
        print_table(["", "name", "type"], rows, title=method.name)
        for condition in method.conditions:
            say(condition)
    return 0
