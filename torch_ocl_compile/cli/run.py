# torch_ocl_compile/cli/run.py: `torch-ocl run`.
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

import ocl_run
from torch_ocl_compile.cli.parts import FILE, Command, print_table, say, writable
from torch_ocl_compile.errors import ToolError


@click.command(
    cls=Command,
    examples=[
        "torch-ocl run model.ocl --input x.npy --output y.npy",
        "torch-ocl run model.ocl --input tokens.npy --input 3 --method prefill --device 1 --repeat 20",
    ],
)
@click.option("--input", "inputs", multiple=True, metavar="FILE",
              help="An argument of the method: an .npy file or an integer. Repeat it for each argument.")  # fmt: skip
@click.option("--output", "outputs", type=FILE, multiple=True, metavar="FILE", callback=lambda c, p, v: tuple(writable(c, p, x) for x in v),
              help="An .npy file for a result. Repeat it for further results.")  # fmt: skip
@click.option("--method", default="", metavar="NAME", help="The method, if the package has several.")
@click.option("--device", default="", metavar="DEVICE", help="Number of the device, or a part of its name.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, metavar="CALLS",
              help="Call the method so often, and show the time of a call.")  # fmt: skip
@click.option(
    "--trust-binaries", is_flag=True, help="Use the native code in the package: only for packages of your own."
)
@click.argument("package", type=click.Path(path_type=Path))
def command(
    package: Path,
    inputs: tuple[str, ...],
    outputs: tuple[Path, ...],
    method: str,
    device: str,
    repeat: int,
    trust_binaries: bool,
) -> int:
    """Run a package that `torch-ocl package` has written.

    The results that no --output takes are described only."""
    arguments = [_argument(text) for text in inputs]
    try:
        with ocl_run.load(package, device=device, trust_binaries=trust_binaries) as model:
            called: Any = getattr(model, method) if method else model
            returned = called(*arguments)
            times = [_seconds(called, arguments) for _ in range(repeat if repeat > 1 else 0)]
    except (ocl_run.PackageError, AttributeError) as error:
        raise ToolError(str(error)) from error
    _write(_named(returned), outputs)
    if times:
        say(f"a call takes {1000 * min(times):.2f} ms (the best of {repeat}; copies of arguments and results included)")
    return 0


def _argument(text: str) -> Any:
    import numpy as np

    if text.lstrip("-").isdigit():
        return int(text)
    try:
        return np.load(text)
    except (OSError, ValueError) as error:
        raise ToolError(f"{text} cannot be read: {error}") from error


def _named(returned: Any) -> list[tuple[str, Any]]:
    if isinstance(returned, dict):
        return list(returned.items())
    if isinstance(returned, (tuple, list)):
        return [(str(i), value) for i, value in enumerate(returned)]
    return [("result", returned)]


def _write(results: list[tuple[str, Any]], outputs: tuple[Path, ...]) -> None:
    import numpy as np

    if len(outputs) > len(results):
        raise ToolError(f"there are {len(outputs)} files for {len(results)} results")
    for (_, value), path in zip(results, outputs, strict=False):
        with open(path, "wb") as file:
            np.save(file, np.asarray(value))
    rows = []
    for i, (name, value) in enumerate(results):
        array = np.asarray(value)
        rows.append((name, f"{array.dtype} {list(array.shape)}", str(outputs[i]) if i < len(outputs) else ""))
    print_table(["result", "type", "file"], rows)


def _seconds(call: Any, arguments: list[Any]) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start
