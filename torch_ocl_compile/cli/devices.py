# torch_ocl_compile/cli/devices.py: `torch-ocl devices`.
from __future__ import annotations

import platform
from dataclasses import asdict

import click

from torch_ocl_compile.cli.parts import Command, json_option, print_json, print_table, say
from torch_ocl_compile.device import environment, torch_ocl

# pip has a runtime for x86-64 only.
CPU_RUNTIME = (
    "pip install torch-ocl-compile[cpu]" if platform.machine() in ("x86_64", "AMD64") else "apt install pocl-opencl-icd"
)
NO_DEVICE = f"No OpenCL device. `{CPU_RUNTIME}` brings a runtime for the CPU."


@click.command(
    cls=Command,
    examples=["torch-ocl devices", "torch-ocl devices --json", "TORCH_OCL_DEVICES=nvidia torch-ocl devices"],
)
@json_option
def command(as_json: bool) -> int:
    """List the OpenCL devices, in the order of ocl:0, ocl:1, ...

    Ends with status 1 if there is none."""
    if as_json:
        found = [asdict(torch_ocl.get_device_properties(index)) for index in range(torch_ocl.device_count())]
        print_json({"devices": found, "problems": torch_ocl.device_problems()})
    else:
        show_devices()
    return 0 if torch_ocl.device_count() else 1


def show_devices() -> None:
    properties = [torch_ocl.get_device_properties(index) for index in range(torch_ocl.device_count())]
    rows = [
        (f"ocl:{p.index}", p.name, p.platform_name, f"{p.total_memory / 2**30:.1f} GiB", p.multi_processor_count,
         p.driver.split(",")[0])
        for p in properties
    ]  # fmt: skip
    if rows:
        print_table(["device", "name", "platform", ">memory", ">compute units", "driver"], rows)
    for p in properties:
        if p.profile:
            say(f"ocl:{p.index} has the limits of {p.profile} (TORCH_OCL_PROFILE)")
        if p.known_fault:
            say(f"warning: ocl:{p.index}: {p.known_fault}")
    for problem in torch_ocl.device_problems():
        say(f"problem: {problem}")
    if not rows and not environment.fault():
        say(NO_DEVICE)
