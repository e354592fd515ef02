# torch_ocl_compile/cli/explain.py: `torch-ocl explain`.
from __future__ import annotations

import contextlib
import sys
from typing import Any

import click
import torch

from torch_ocl_compile.cli.parts import Command, json_option, print_json, print_table, progress, require_device, say
from torch_ocl_compile.cli.target import target_argument
from torch_ocl_compile.compile import debug
from torch_ocl_compile.device import torch_ocl
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tools.script import run_target


@click.command(
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=[
        "torch-ocl explain train.py --epochs 1",
        "torch-ocl explain mymodel:make",
        "torch-ocl explain --json train.py > graphs.json",
    ],
)
@json_option
@target_argument
def command(as_json: bool, target: str, arguments: tuple[str, ...]) -> int:
    """Show the graphs and kernels that a program compiles with backend="ocl", and what ran on the CPU.

    TARGET is a script, which runs with ARGUMENTS as a main program, or MODULE:FUNCTION. The function is called without
    arguments. It either compiles and runs something itself, or returns a model and its inputs, which are compiled and run.

    Ends with status 1 if the program fails, or compiles nothing."""
    require_device()
    torch_ocl.reset_fallback_counts()
    torch._dynamo.reset()
    before = debug.fallback_counts()
    with debug.collecting() as graphs, contextlib.ExitStack() as stack:
        if as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        returned = run_target(target, arguments)
        if isinstance(returned, tuple) and returned and callable(returned[0]):
            with progress("compiling"):
                torch.compile(returned[0], backend="ocl")(*returned[1:])
    found = {
        "graphs": [_row(graph) for graph in graphs],
        "eager_in_graphs": debug.fallbacks_since(before),
        "eager_outside": torch_ocl.fallback_counts(),
    }
    if as_json:
        print_json(found)
    else:
        _show(graphs, found)
    if not graphs and not found["eager_in_graphs"]:
        raise ToolError(
            f"{target} compiled nothing with backend='ocl'.\n"
            "  do: let it call what torch.compile(..., backend='ocl') returns, or return (model, inputs) from a function"
        )
    return 0


def _row(graph: debug.Record) -> dict[str, Any]:
    kernels = [{key: kernel[key] for key in ("name", "ops", "origin")} for kernel in graph.plan.describe()]
    return {"label": graph.label, "aten_nodes": graph.fx_nodes, "launches": graph.kernels, "eager_calls": graph.calls,
            "kernels": kernels}  # fmt: skip


def _show(graphs: list[debug.Record], found: dict[str, Any]) -> None:
    for graph, row in zip(graphs, found["graphs"], strict=True):
        kernels = [(kernel["name"], kernel["ops"], kernel["origin"]) for kernel in row["kernels"]]
        print_table(["kernel", ">ops", "computes"], kernels, title=debug.describe(graph))
    for reason, count in found["eager_in_graphs"].items():
        say(f"on the CPU, in a graph, {count} times: {reason}")
    for op, count in found["eager_outside"].items():
        say(f"on the CPU, {count} times: {op}")
