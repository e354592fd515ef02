# torch_ocl_compile/compile/float_arguments.py: keeps learning rates that change as arguments of a graph.
"""Dynamo turns a number in an optimizer's parameter groups that changes into an argument of the graph. AOTAutograd then makes
it a constant again, because Inductor has no code for floats in the optimizers' _foreach ops, and the graph would be compiled
for each new value. lowering/graphs/float_arguments.py has a form for them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

_keeps_floats = ContextVar("_keeps_floats", default=False)


@contextmanager
def float_arguments(gm: torch.fx.GraphModule) -> Iterator[None]:
    """While AOTAutograd traces Dynamo's graph `gm`, keeps the numbers of an optimizer's parameter groups as arguments."""
    _change_autograd()
    before = _keeps_floats.set(any(_is_setting(node) for node in gm.graph.nodes))
    try:
        yield
    finally:
        _keeps_floats.reset(before)


def _is_setting(node: torch.fx.Node) -> bool:
    """Returns whether the node is a graph's argument for a number in `param_groups`, such as the learning rate."""
    from torch._dynamo.source import is_from_optimizer_source

    argument = node.meta.get("grapharg") if node.op == "placeholder" else None
    return argument is not None and argument.pass_arg_as_tensor and is_from_optimizer_source(argument.source)


@functools.cache
def _change_autograd() -> None:
    """Lets AOTAutograd skip the pass that makes constants of floats."""
    from torch._functorch._aot_autograd import graph_compile

    functions: dict[str, Any] = vars(graph_compile)
    make_constants = functions["tensorify_python_scalars"]

    @functools.wraps(make_constants)
    def tensorify_python_scalars(*args: Any, **kwargs: Any) -> Any:
        return None if _keeps_floats.get() else make_constants(*args, **kwargs)

    functions["tensorify_python_scalars"] = tensorify_python_scalars
