# torch_ocl_compile/cli/doctor.py: `torch-ocl doctor`.
from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any

import click
import torch

from torch_ocl_compile import __version__, config
from torch_ocl_compile.cli import devices
from torch_ocl_compile.cli.parts import Command, json_option, print_json, progress, say
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.tools import doctor


@click.command(cls=Command, examples=["torch-ocl doctor", "torch-ocl doctor --json > doctor.json"])
@json_option
def command(as_json: bool) -> int:
    """Compile and check training steps of small networks on every device, in fp32, fp16 and bf16.

    Losses and gradients are compared with fp64 on the CPU. Ends with status 1 if a device is not healthy."""
    variables = {row.variable: config.get(row.name) for row in config.options().values() if row.variable in os.environ}
    if not as_json:
        devices.show_devices()
        changed = ", ".join(f"{name}={value}" for name, value in variables.items())
        say(
            f"torch {torch.__version__}, torch_ocl_compile {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
        )
        say(f"environment: {changed or 'no TORCH_OCL_ variable is set'}")
    healthy, findings = torch_ocl.device_count() > 0, []
    for index in range(torch_ocl.device_count()):
        with progress(f"ocl:{index}: compiling"):
            for found in doctor.examine(torch.device("ocl", index)):
                healthy &= found.healthy
                findings.append(_row(index, found))
                if not as_json:
                    say(f"ocl:{index}: {verdict(found)}")
    if as_json:
        versions = {"torch": torch.__version__, "torch_ocl_compile": __version__, "python": sys.version.split()[0]}
        found_devices = [asdict(torch_ocl.get_device_properties(index)) for index in range(torch_ocl.device_count())]
        print_json({"healthy": healthy, "versions": versions, "environment": variables, "devices": found_devices,
                    "problems": torch_ocl.device_problems(), "checks": findings})  # fmt: skip
    return 0 if healthy else 1


def _row(index: int, found: doctor.Finding) -> dict[str, Any]:
    return {"device": f"ocl:{index}", "check": found.check.name, "healthy": found.healthy, "problem": found.problem,
            "error": None if found.error == float("inf") else found.error, "tolerance": found.check.tolerance,
            "worst": found.worst, "kernels": found.kernels, "first_seconds": found.first_seconds,
            "step_ms": found.step_ms}  # fmt: skip


def verdict(found: doctor.Finding) -> str:
    name = found.check.name
    if found.problem:
        return f"{name}: FAILED\n{found.problem}"
    if found.kernels == 0:
        return f"{name}: NO KERNEL RAN"
    if not found.healthy:
        return f"{name}: WRONG RESULTS: {found.worst} is off by {found.error:.0e} where {found.check.tolerance:.0e} is allowed"
    return (
        f"{name}: good: a training step in {found.kernels} kernels, within {found.error:.0e} of fp64; "
        f"{found.first_seconds:.1f} s with compilation, {found.step_ms:.1f} ms then"
    )
