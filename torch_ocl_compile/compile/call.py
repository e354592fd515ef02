# torch_ocl_compile/compile/call.py: the call of a compiled graph, and what of it runs in Python.
"""Most graphs run without Python: Recipe.call (csrc/python/recipe_bindings.cpp) takes the arguments, runs the plan and returns the
results. Python is needed for functions on the host and collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from torch_ocl_compile.lowering.core.symbolic import ComputedSize
from torch_ocl_compile.lowering.graphs.lowered import Lowered

Boxed = Callable[[list[Any]], list[Any]]
watch: Callable[[Boxed], Boxed] | None = None  # wraps the calls of new plans: `torch-ocl warm` counts calls


def mark_boxed(run: Boxed) -> Boxed:
    """Marks a function that AOTAutograd calls with one list, which the function may empty."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def eager_call(gm: torch.fx.GraphModule) -> Boxed:
    """Returns a function that runs the graph op by op in PyTorch."""

    def run(args: list[Any]) -> list[Any]:
        inputs = list(args)
        args.clear()
        with torch.no_grad():
            return list(gm(*inputs))

    return mark_boxed(run)


def refused_call(gm: torch.fx.GraphModule, place: str) -> Boxed:
    """Returns a function that runs a graph whose arguments PyTorch refuses. Its error says in which op they are."""
    run = eager_call(gm)

    def refuse(args: list[Any]) -> list[Any]:
        try:
            return run(args)
        except Exception as error:
            error.args = (f"{error}\n{place}", *error.args[1:])
            raise

    return mark_boxed(refuse)


def _resolved(value: Any) -> Any:
    """Returns a value of the host as a plan reads it: without a conjugate or negative bit, of which traced tensors know nothing."""
    return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value


def plan_call(lowered: Lowered, plan: Any) -> Boxed:
    """Returns a function that calls a graph. `plan`: _C.exec.Plan, or an object with the same method `run`."""
    low, recipe = lowered, lowered.recipe
    recipe.constants = [tensor.to(low.device) for tensor in low.constants]
    call: Boxed = partial(recipe.call, plan)
    if watch is not None:
        call = watch(call)
    if not (low.before or low.computed or low.after or low.awaited):
        return mark_boxed(call)

    def run(args: list[Any]) -> list[Any]:
        for position in low.awaited:
            torch.ops._c10d_functional.wait_tensor(args[position])
        host: Any = iter(())
        if low.before is not None:
            function, taken = low.before
            with torch.no_grad():
                host = map(_resolved, function(*(args[p] for p in taken)))
        if low.computed:
            sizes = recipe.size_values(args)
            for value in low.computed:
                args.append(next(host) if value is None else value.value(sizes))
                sizes += args[-1:] if isinstance(value, ComputedSize) else []
        results = call(args)
        if low.after is not None:
            late, count, positions = low.after
            first = len(results) - count
            with torch.no_grad():
                values = late(*results[first:])
            del results[first:]
            for position, value in zip(positions, values, strict=True):
                results[position] = value
        return results

    return mark_boxed(run)
