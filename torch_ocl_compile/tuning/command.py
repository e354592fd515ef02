# torch_ocl_compile/tuning/command.py: `python -m torch_ocl_compile tune`: a script's networks, or shapes, with tuning on.
from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from torch_ocl_compile import config
from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.tuning import measure, table

Job = tuple[Callable[..., torch.Tensor], list[torch.Tensor]]


def tune(args: argparse.Namespace) -> int:
    """Tunes what `args.target` names, prints what was found. Exit status."""
    config.configure_core()
    if args.forget:
        print(f"{table.clear()} rows erased")
    measure.again = args.again
    torch.set_float32_matmul_precision(args.precision)
    target = list(args.target)
    with config.override(max_autotune=True):
        if target and target[0].endswith(".py"):
            _run_script(target)
        else:
            for text in target:
                _run(*job(text, torch.device(args.device), getattr(torch, args.dtype)), args.gradients)
    _print()
    if args.export:
        index = torch.device(args.device).index or 0
        path = Path(args.export)
        print(f"{table.export(table.table_of(index), path)} choices that differ from the models' in {path}")
    return 0


def job(text: str, device: torch.device, dtype: torch.dtype) -> Job:
    """A function and its inputs for "gemm:512x512x512" and the like. Raises ConfigError on what is none of them."""
    kind, _, shapes = text.partition(":")
    first, *rest = shapes.split(",")
    settings = dict(part.split("=", 1) for part in rest if "=" in part)
    sizes = [_numbers(part) for part in [first, *(part for part in rest if "=" not in part)]]

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype).to(device).requires_grad_()

    form = (kind, [len(s) for s in sizes])
    if form == ("gemm", [3]):
        ((m, n, k),) = sizes
        return torch.mm, [randn(m, k), randn(k, n)]
    if form == ("conv", [4, 3]):
        (n, c, h, w), (k, r, s) = sizes
        stride, groups = (int(settings.pop(name, 1)) for name in ("stride", "groups"))
        padding = int(settings.pop("padding", r // 2))
        if not settings:
            x = randn(n, c, h, w).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
            conv = torch.nn.Conv2d(
                c, k, (r, s), stride, padding, groups=groups, bias=False
            )  # Dynamo skips functions of ours
            return conv.to(dtype).to(device), [x]
    if form == ("attention", [4]):
        return F.scaled_dot_product_attention, [randn(*sizes[0]) for _ in range(3)]
    raise ConfigError(
        f"{text!r} is no shape to tune.\n  do: a script's path ending in .py, gemm:MxNxK, conv:NxCxHxW,KxRxS[,stride=2]"
        "[,padding=1][,groups=1] or attention:BxHxLxD, sizes as numbers"
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split("x")] if re.fullmatch(r"\d+(x\d+)*", text) else []


def _run(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], gradients: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="ocl", dynamic=False, mode="max-autotune")
    if gradients:
        compiled(*inputs).sum().backward()
    else:
        with torch.no_grad():
            compiled(*inputs)
    torch.accelerator.synchronize()


def _run_script(target: list[str]) -> None:
    saved = sys.argv
    sys.argv = target
    try:
        runpy.run_path(target[0], run_name="__main__")
    finally:
        sys.argv = saved


def _print() -> None:
    if not measure.session:
        print("nothing to measure: all of it is stored, or nothing has variants")
    for t in measure.session:
        print(f"{t.problem}\n  {t.model_ms:9.3f} ms  {t.model_choice}, the model's choice of {t.tried}")
        if t.choice != t.model_choice:
            print(f"  {t.ms:9.3f} ms  {t.choice}, {t.model_ms / t.ms:.2f} times as fast")
