# torch_ocl_compile/cli/demo.py: `torch-ocl demo`.
from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from torch_ocl_compile.cli.parts import Command, device_option, json_option, output_option, print_json
from torch_ocl_compile.cli.parts import output as shown
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.demo import run_demo


@click.command(
    cls=Command,
    examples=["torch-ocl demo", "torch-ocl demo --epochs 5 --output /tmp/demo.png", "torch-ocl demo --device cpu"],
)
@device_option("Device to train on; `cpu` trains without OpenCL.", cpu=True)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=20, show_default=True, help="How often each digit is seen."
)
@output_option("demo.png", help="Where the plot goes.")
@json_option
def command(device: str, epochs: int, output: Path, as_json: bool) -> int:
    """Train a small CNN on handwritten digits, and plot its loss and its kernels.

    Needs scikit-learn and matplotlib: `pip install torch-ocl-compile[demo]`. Ends with status 1 if the accuracy on the test
    images stays below 97 %."""
    try:
        result = run_demo(device, epochs, str(output), Console(quiet=True) if as_json else shown())
    except ModuleNotFoundError as error:
        raise ToolError(f"the demo needs {error.name}.\n  do: pip install torch-ocl-compile[demo]") from error
    if as_json:
        print_json(asdict(result) | {"good": result.good})
    return 0 if result.good else 1
