# torch_ocl_compile/cli/doctor.py: `torch-ocl doctor`.
from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import click
import torch

from torch_ocl_compile import _C, __version__, config
from torch_ocl_compile.cli import devices
from torch_ocl_compile.cli.parts import FILE, Command, json_option, print_json, progress, say, writable
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.device.distributed import transport_of
from torch_ocl_compile.tools import device_report, doctor

REPORT = "torch_ocl_report.txt"


@click.command(
    cls=Command,
    examples=[
        "torch-ocl doctor",
        "torch-ocl doctor --json > doctor.json",
        "torch-ocl doctor --report",
        "torch-ocl doctor --report gpu.txt --minutes 5",
    ],
)
@click.option("--report", type=FILE, is_flag=False, flag_value=REPORT, metavar="[FILE]", callback=writable,
              help=f"Also time and probe the devices, and write a file for a bug report. FILE: {REPORT}, if it is left out.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(min=0), default=2.0, show_default=True,
              help="Time for each device of --report.")  # fmt: skip
@json_option
def command(report: Path | None, minutes: float, as_json: bool) -> int:
    """Compile and check training steps of small networks on every device, in fp32, fp16 and bf16.

    Losses and gradients are compared with fp64 on the CPU. Ends with status 1 if a device is not healthy.

    The file of --report is text with a part in JSON. It has what the devices say of themselves, these checks, the checks of
    hand-written kernels, timings of operations, and the slowest kernels of a ResNet-18. It has no names of users or machines,
    and of paths only the last parts. A step that crashes or hangs is reported, and the others go on."""
    if report is not None:
        return _report(report, minutes, as_json)
    variables = _variables()
    if not as_json:
        devices.show_devices()
        changed = ", ".join(f"{name}={value}" for name, value in variables.items())
        say(
            f"torch {torch.__version__}, torch_ocl_compile {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
        )
        say(f"environment: {changed or 'no TORCH_OCL_ variable is set'}")
    healthy, findings, transports, drivers = torch_ocl.device_count() > 0, [], {}, {}
    for index in range(torch_ocl.device_count()):
        transports[f"ocl:{index}"] = transport_of(index)
        if not as_json:
            say(f"ocl:{index}: its place: {torch_ocl.get_device_properties(index).order}")
            say(f"ocl:{index}: process groups use {transports[f'ocl:{index}']}")
        with progress(f"ocl:{index}: compiling"):
            faults = {name: fault for name, fault in _C.exec.probe_driver(index) if fault}
            tried = _C.exec.tried_where(index)
            drivers[f"ocl:{index}"] = {"tried": tried, "faults": faults}
            healthy &= not faults
            if not as_json:
                say(f"ocl:{index}: {driver_line(tried, faults)}")
            for found in doctor.examine(torch.device("ocl", index)):
                healthy &= found.healthy
                findings.append({"device": f"ocl:{index}", **found.row()})
                if not as_json:
                    say(f"ocl:{index}: {verdict(found)}")
    if as_json:
        versions = {"torch": torch.__version__, "torch_ocl_compile": __version__, "python": sys.version.split()[0]}
        found_devices = [asdict(torch_ocl.get_device_properties(index)) for index in range(torch_ocl.device_count())]
        print_json({"healthy": healthy, "versions": versions, "environment": variables, "devices": found_devices,
                    "transports": transports, "drivers": drivers, "problems": torch_ocl.device_problems(), "checks": findings})  # fmt: skip
    return 0 if healthy else 1


def _variables() -> dict[str, config.Value]:
    return {row.variable: config.get(row.name) for row in config.options().values() if row.variable in os.environ}


def _report(path: Path, minutes: float, as_json: bool) -> int:
    with progress("looking for devices") as now:
        made = device_report.make(_variables(), 60 * minutes, now)
    device_report.write(made, path)
    if as_json:
        print_json(made)
        return 0 if made["healthy"] else 1
    for found in made["devices"]:
        name = found.get("properties", {}).get("name", "unknown")
        say(f"{found['device']}: {name}: {'healthy' if found['healthy'] else 'NOT HEALTHY'}, {found['seconds']:.0f} s")
        for fault in found["faults"]:
            say(f"  fault in {fault}")
        if found["not_run"]:
            say(f"  no time was left for {len(found['not_run'])} steps (--minutes)")
    if not made["devices"]:
        say(devices.NO_DEVICE)
    say(f"the report is {path}")
    return 0 if made["healthy"] else 1


def driver_line(tried: str, faults: dict[str, str]) -> str:
    where = f"tried ({tried})" if tried else "NOT TRIED by anybody: kernels are chosen by a quick check"
    if not faults:
        return f"the driver is right in all parts of the quick check, and was {where}"
    return "\n  ".join([f"the driver was {where}. IT COMPUTES WRONGLY:", *(f"{n}: {f}" for n, f in faults.items())])


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
