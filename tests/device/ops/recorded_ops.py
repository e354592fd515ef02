# tests/device/ops/recorded_ops.py: a call of each functional aten overload that PyTorch's own samples of its ops and gradients lead to.
from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Call(NamedTuple):
    arguments: list[Any]  # In the order of the schema, defaults included. Tensors are on the CPU.
    results: list[torch.Tensor]

    def on(self, device: str) -> list[Any]:
        moved = tree_map_only(torch.Tensor, lambda t: t.to(device), self.arguments)
        return [torch.device(device) if isinstance(a, torch.device) else a for a in moved]


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[OpOverload, Call] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in self.calls or func.namespace != "aten" or func._schema.is_mutable:
            return func(*args, **given)
        rest = func._schema.arguments[len(args) :]
        arguments = [*args, *(given.get(a.name, a.default_value) for a in rest)]
        arguments = tree_map_only(torch.Tensor, lambda t: t.detach().clone(), arguments)
        made = func(*args, **given)
        if all(_is_dense(t) for t in tree_leaves((arguments, made)) if isinstance(t, torch.Tensor)):
            self.calls[func] = Call(arguments, [t.detach() for t in tree_leaves(made) if isinstance(t, torch.Tensor)])
        return made


def _is_dense(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


@functools.cache
def recorded() -> dict[OpOverload, Call]:
    """Returns the first call of each overload among the first sample of each op and the gradient of that sample."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = _Recorder()
    for op in op_db:
        dtype = next((d for d in (torch.float32, torch.int64) if d in op.dtypes), None)
        if dtype is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            has_gradient = op.supports_autograd and dtype is torch.float32
            for sample in list(op.sample_inputs("cpu", dtype, requires_grad=has_gradient))[:1]:
                # Some samples are for other devices, or are there to be refused.
                with contextlib.suppress(Exception), recorder:
                    made = op(sample.input, *sample.args, **sample.kwargs)
                    found = [t for t in tree_leaves(made) if _is_dense(t) and t.requires_grad]
                    torch.autograd.backward(found, [torch.ones_like(t) for t in found])
    return recorder.calls
