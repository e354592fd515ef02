# tests/libraries/harness.py: what the programs of this folder share: sides to run on, training steps, and the row of a program.
"""A program is a function of a Side that returns tensors: outputs of inference, losses and parameters. It runs on the CPU, where nothing
is compiled, on an ocl device op by op, and there compiled. Models come from configuration classes, with random weights; nothing is
downloaded."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

STEPS = 3
TOLERANCE = 2e-3  # Relative to the largest element. Three steps of fp32 training differ by less.
WORSE = 8  # How many times as far from fp64 as the CPU's fp32 an ill-conditioned program may be.

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Side:
    """Where and how a program runs."""

    device: str = "cpu"
    backend: str | None = None
    dtype: torch.dtype = torch.float32

    def compiled(self, function: Any, **options: Any) -> Any:
        """The function or module, compiled if this side compiles."""
        return torch.compile(function, backend=self.backend, **options) if self.backend else function

    def moved(self, value: Any) -> Any:
        """Tensors of a nested value, on the device; numbers with a point in the side's type."""

        def move(x: torch.Tensor) -> torch.Tensor:
            return x.to(self.device, self.dtype if x.dtype == torch.float32 else x.dtype)

        return tree_map_only(torch.Tensor, move, value)


@dataclass(frozen=True)
class Program:
    library: str  # The name of its distribution.
    name: str
    what: str
    run: Callable[[Side], Tensors]
    wrote: str  # What a user writes besides the device's name and backend="ocl".


PROGRAMS: dict[str, Program] = {}


def add(library: str, name: str, what: str, run: Callable[[Side], Tensors], wrote: str = "") -> None:
    key = f"{library}/{name}"
    assert key not in PROGRAMS, key
    PROGRAMS[key] = Program(library, key, what, run, wrote)


def program(library: str, what: str, *, wrote: str = "") -> Callable[[Callable[[Side], Tensors]], Any]:
    """Adds the decorated function to the programs."""
    return lambda run: add(library, run.__name__, what, run, wrote)


def floats(output: Any) -> Tensors:
    """The tensors of numbers with a point in what a model returns."""
    found = [
        x for x in tree_leaves(output) if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())
    ]
    return [torch.view_as_real(x) if x.is_complex() else x for x in found]


def loss_of(output: Any) -> torch.Tensor:
    """A loss whose gradient differs from element to element."""
    found = [x for x in floats(output) if x.requires_grad] or floats(output)

    def part(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten()
        weights = torch.arange(flat.numel(), device=flat.device).remainder(7).add(1)
        return (flat * weights).square().mean() / weights.square().to(x.dtype).mean()

    return torch.stack([part(x) for x in found]).sum()


def without_dropout(model: nn.Module) -> None:
    """Sets rates of dropout to 0: the devices draw different numbers."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or (name == "p" and "Drop" in type(module).__name__)):
                setattr(module, name, 0.0)


def steps_of(
    model: nn.Module,
    inputs: Sequence[Any] | Mapping[str, Any],
    side: Side,
    *,
    loss: Callable[[Any], torch.Tensor] = loss_of,
    make: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    **settings: Any,
) -> Tensors:
    """Inference and STEPS training steps, then the parameters. `make` makes the optimizer, which is not compiled."""
    model = model.to(side.device, side.dtype)
    without_dropout(model)
    given = side.moved(inputs if isinstance(inputs, Mapping) else list(inputs))
    call = side.compiled(model)
    run = (lambda: call(**given)) if isinstance(given, Mapping) else (lambda: call(*given))
    model.eval()
    with torch.no_grad():
        results = [x.clone() for x in floats(run())]
    model.train()
    optimizer = make([p for p in model.parameters() if p.requires_grad], **{"lr": 1e-2, **settings})
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(run())
        value.backward()
        optimizer.step()
        results.append(value.detach())
    return [*results, *parameters(model)]


def parameters(model: nn.Module) -> Tensors:
    return [p.detach().clone() for p in model.parameters()]


def error_of(found: Tensors, expected: Tensors) -> float:
    """The largest difference, relative to the largest element of its tensor."""
    assert len(found) == len(expected) > 1, (len(found), len(expected))
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().cpu().double(), b.detach().cpu().double()
        assert a.shape == b.shape and bool(torch.isfinite(b).all()), (a.shape, b.shape)
        scale = max(float(b.abs().max()), 1e-3) if b.numel() else 1.0
        found_error = float((a - b).abs().max()) / scale if b.numel() else 0.0
        worst = max(worst, found_error if math.isfinite(found_error) else math.inf)
    return worst


def results_of(program: Program, side: Side) -> Tensors:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return program.run(side)


def right_as_far_as_known(program: Program, found: Tensors, expected: Tensors) -> bool:
    """True if the CPU's own fp32 is about as far from fp64: the program magnifies rounding."""
    with contextlib.suppress(Exception):
        exact = results_of(program, Side(dtype=torch.float64))
        return error_of(found, exact) <= WORSE * error_of(expected, exact)
    return False


def facts_of(program: Program, side: Side, expected: Tensors) -> dict[str, Any]:
    """Runs a program on a side, and says what is to be known of it."""
    from torch._dynamo import utils

    from torch_ocl_compile.compile import debug

    utils.counters.clear()
    utils.clear_compilation_metrics()
    torch.ocl.reset_fallback_counts()
    in_graphs, begun = debug.fallback_counts(), time.time()
    try:
        found = results_of(program, side)
        error = error_of(found, expected)
        assert any(x.device.type == "ocl" for x in found), "nothing ran on the device"
    except Exception as failure:
        print(f"{program.name} on {side}:", flush=True)
        traceback.print_exc()
        return {"right": False, "why": f"{type(failure).__name__}: {failure}".partition("\n")[0][:200]}
    facts = {
        "right": error < TOLERANCE or right_as_far_as_known(program, found, expected),
        "error": error,
        "seconds": round(time.time() - begun, 1),
        "fallbacks": sorted(torch.ocl.fallback_counts()),
    }
    if side.backend:
        metrics = utils.get_compilation_metrics()
        facts["in_graphs"] = sorted(debug.fallbacks_since(in_graphs))
        facts["breaks"] = sum(utils.counters["graph_break"].values())
        facts["graphs"] = utils.counters["stats"]["unique_graphs"]
        facts["recompiled"] = sum(bool(metric.recompile_reason) for metric in metrics)
    return facts


def row_of(program: Program, device: str) -> dict[str, Any]:
    """Runs a program on the CPU and on the device, op by op and compiled, and returns its row of the table."""
    row: dict[str, Any] = {"library": program.library, "what": program.what, "wrote": program.wrote}
    try:
        row["version"] = importlib.metadata.version(program.library)
        expected = results_of(program, Side())
    except Exception as failure:
        traceback.print_exc()
        return row | {
            "right": False,
            "why": f"on the CPU: {type(failure).__name__}: {failure}".partition("\n")[0][:200],
        }
    row["eager"] = facts_of(program, Side(device), expected)
    row["compiled"] = facts_of(program, Side(device, "ocl"), expected)
    row["right"] = row["eager"]["right"] and row["compiled"]["right"]
    if not row["compiled"]["right"]:
        try:
            error = error_of(results_of(program, Side("cpu", "aot_eager")), expected)
            row["aot_eager"] = "right" if error < TOLERANCE else f"wrong, {error:.0e}"
        except Exception as failure:
            row["aot_eager"] = f"{type(failure).__name__}: {failure}".partition("\n")[0][:200]
    return row
