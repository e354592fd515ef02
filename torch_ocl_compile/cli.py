# torch_ocl_compile/cli.py: the commands; each parses its arguments and prints facts that others compute.
"""Command line: `python -m torch_ocl_compile <command>`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from torch_ocl_compile import __version__

if TYPE_CHECKING:
    from torch_ocl_compile.tools.doctor import Finding


def _devices(_: argparse.Namespace) -> int:
    from torch_ocl_compile.device import torch_ocl

    for index in range(torch_ocl.device_count()):
        p = torch_ocl.get_device_properties(index)
        size = f"{p.total_memory / 2**30:.1f} GiB, {p.multi_processor_count} units"
        print(f"ocl:{index}  {p.name}  ({p.platform_name}, {size}, driver {p.driver.split(',')[0]})")
    for problem in torch_ocl.device_problems():
        print(f"problem: {problem}")
    if torch_ocl.device_count() == 0:
        print("No OpenCL device. `pip install torch-ocl-compile[cpu]` brings a runtime for the CPU.")
        return 1
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from torch_ocl_compile import config
    from torch_ocl_compile.device import torch_ocl
    from torch_ocl_compile.tools.doctor import examine

    status = _devices(args)
    print(
        f"torch {torch.__version__}, torch_ocl_compile {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
    )
    changed = [
        f"{row.variable}={config.get(row.name)}" for row in config.options().values() if row.variable in os.environ
    ]
    print("environment:", ", ".join(changed) or "no TORCH_OCL_ variable is set")
    for index in range(torch_ocl.device_count()):
        for found in examine(torch.device("ocl", index)):
            print(f"ocl:{index}: {_verdict(found)}", flush=True)
            status |= int(not found.healthy)
    return status


def _verdict(found: Finding) -> str:
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


def _demo(args: argparse.Namespace) -> int:
    from torch_ocl_compile.tools.demo import run_demo

    return run_demo(device=args.device, epochs=args.epochs, output=args.output)


def _cache(args: argparse.Namespace) -> int:
    from torch_ocl_compile import _C, config

    config.configure_core()
    if args.action == "clear":
        _C.exec.cache_clear()
    stats = _C.exec.cache_stats()
    if not stats.get("enabled"):
        print(
            f"off: {stats['path']} {stats['problem']}" if stats.get("problem") else "off: TORCH_OCL_CACHE_SIZE_MB is 0"
        )
        return 1
    budget = int(config.get("cache_size_mb"))
    print(f"{stats['path']}\n{stats['entries']} entries, {stats['bytes'] / 2**20:.1f} MiB of {budget} MiB")
    if stats["problem"]:
        print(f"problem: {stats['problem']}")
    return 0


def _tune(args: argparse.Namespace) -> int:
    from torch_ocl_compile.tuning.command import tune

    return tune(args)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="python -m torch_ocl_compile", description="torch.compile on OpenCL devices")
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("devices", help="list the OpenCL devices in the order of ocl:0, ocl:1, ...").set_defaults(
        run=_devices
    )
    commands.add_parser(
        "doctor", help="compile and check small networks and attention on every device, in fp32, fp16 and bf16"
    ).set_defaults(run=_doctor)
    demo = commands.add_parser("demo", help="train a small CNN on handwritten digits")
    demo.add_argument("--device", default="ocl", help="torch device (default: ocl)")
    demo.add_argument("--epochs", type=int, default=20)
    demo.add_argument("--output", default="demo.png", help="where the plot goes (default: demo.png)")
    demo.set_defaults(run=_demo)
    cache = commands.add_parser("cache", help="the kernel cache")
    cache.add_argument("action", choices=["stats", "clear"])
    cache.set_defaults(run=_cache)
    tune = commands.add_parser("tune", help="measure kernel variants, for a script's networks or for given shapes")
    tune.add_argument("target", nargs="*", help="SCRIPT.py and its arguments, or gemm:MxNxK, conv:NxCxHxW,KxRxS[,stride=2], "
                      "attention:BxHxLxD")  # fmt: skip
    tune.add_argument("--device", default="ocl", help="for shapes (default: ocl)")
    tune.add_argument("--dtype", default="float32", help="of shapes: float32, float16, bfloat16 (default: float32)")
    tune.add_argument("--precision", choices=["highest", "high", "medium"], default="highest", help="of fp32 products")
    tune.add_argument("--no-gradients", dest="gradients", action="store_false", help="only the forward pass of shapes")
    tune.add_argument("--again", action="store_true", help="also what is stored already")
    tune.add_argument("--export", metavar="FILE", help="then write the device's choices as a table that can be shipped")
    tune.add_argument("--forget", action="store_true", help="first clear all measurements and disabled variants")
    tune.set_defaults(run=_tune)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status. Errors that name a remedy are printed without a traceback."""
    from torch_ocl_compile.errors import OclError

    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except OclError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
