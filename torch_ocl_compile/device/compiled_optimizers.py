# torch_ocl_compile/device/compiled_optimizers.py: how Dynamo traces optimizers on ocl: their step counts, and Adam as one call.
"""A compiled optimizer creates its state while Dynamo traces it. Dynamo then puts the step counts on the device of the
parameters, but it does so for CUDA and XPU only. On another device the counts start on the CPU. The next parameter
group moves the counts of the groups before it, after the graph has taken their old tensors, so that these counts stay
at 0.

Dynamo makes a node of every element of every list that Adam's ops return, thousands for a network. That takes half of the
time until the first step of a second process. So Adam's arithmetic is one node, and AOTAutograd traces its ops, if the cache has no
such graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.optim import adam


def register(module: ModuleType) -> None:
    """Changes torch._dynamo.variables.optimizer, which has just been imported."""
    _spare_inductor(module)
    variable: Any = module.OptimizerVariable
    variable.move_step_if_cpu = _move_steps
    variable.call_method = _with_steps_on_device(variable.call_method)
    from torch._dynamo.variables import functions

    of_python: Any = functions.UserFunctionVariable
    of_python.call_function = _with_adam_in_one_call(of_python.call_function)


def _spare_inductor(module: ModuleType) -> None:
    """Replaces a function that Dynamo calls for every gradient of a compiled optimizer, to ask whether a CUDA graph
    knows it. torch's function loads all of Inductor, which takes seconds, before it looks at the device."""
    asks_cuda = getattr(module, "_is_static_for_cudagraphs", None)
    if asks_cuda is not None:
        module.__dict__["_is_static_for_cudagraphs"] = lambda x: asks_cuda(x) if x.is_cuda else True


def _move_steps(variable: Any) -> None:
    """Moves step counts from the CPU to the device of their parameter, as torch's function does. A step count that the
    graph already uses stays where it is, because the graph would go on with the old tensor."""
    for parameter, state in variable.value.state.items():
        step = state.get("step")
        if step is not None and step.is_cpu and step not in variable.tensor_to_source:
            state["step"] = step.to(parameter.device)


def _with_steps_on_device(call_method: Any) -> Any:
    @functools.wraps(call_method)
    def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name != "_init_group":
            return call_method(self, tx, name, args, kwargs)
        with _capturable(self.value):
            return call_method(self, tx, name, args, kwargs)

    return call


@contextmanager
def _capturable(optimizer: Any) -> Iterator[None]:
    """Sets `capturable` in the parameter groups on ocl, so that new step counts are made on the device. The user's
    values come back: the flag is part of `state_dict()`, and an optimizer on the CPU refuses it."""
    changed = [g for g in optimizer.param_groups if g.get("capturable") is False and _is_on_ocl(g)]
    for group in changed:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in changed:
            group["capturable"] = False


def _is_on_ocl(group: dict[str, Any]) -> bool:
    return all(p.device.type == "ocl" for p in group["params"])


def adam_in_one_call(*args: Any, **kwargs: Any) -> None:
    """Updates all parameters, as Dynamo would trace it: step counts stay on the device."""
    compiler: Any = torch.compiler
    before, compiler._is_compiling_flag = compiler._is_compiling_flag, True
    try:
        adam._multi_tensor_adam(*args, **kwargs)
    finally:
        compiler._is_compiling_flag = before


def _with_adam_in_one_call(call_function: Any) -> Any:
    @functools.wraps(call_function)
    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is not adam._multi_tensor_adam or not _fits_in_one_call(args, kwargs):
            return call_function(self, tx, args, kwargs)
        from torch._dynamo.utils import proxy_args_kwargs
        from torch._dynamo.variables.constant import ConstantVariable

        tx.output.create_proxy("call_function", adam_in_one_call, *proxy_args_kwargs(args, kwargs))
        return ConstantVariable.create(None)

    return call


def _fits_in_one_call(args: Any, kwargs: Any) -> bool:
    """True if all tensors are in lists and on ocl, and Adam refuses nothing. A number that changes is a symbol of Dynamo's trace."""
    from torch._dynamo.variables.lists import BaseListVariable

    lists = [a for a in args if isinstance(a, BaseListVariable)]
    others = [*(a for a in args if not isinstance(a, BaseListVariable)), *kwargs.values()]
    if not all(a.is_python_constant() for a in others):
        return False
    if "differentiable" not in kwargs or kwargs["differentiable"].as_python_constant():
        return False
    tensors: list[Any] = [element for given in lists for element in given.items]
    return all(t.is_tensor() and t.device is not None and t.device.type == "ocl" for t in tensors)
