# torch_ocl_compile/lowering/graphs/collectives.py: lowers a functional collective to a call that starts it and calls that wait for it.
"""A collective and its `wait_tensor` become two calls of the plan. The scheduler runs kernels between them that do not need
the result. The results stay on the host's side until a call waits for them, because the plan's memory may have other uses
while the collective runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.core.registry import lower
from torch_ocl_compile.lowering.graphs.fallback import fill, lower_call, slots
from torch_ocl_compile.lowering.graphs.strides import Strides, strides_in_memory

# These collectives copy their operands before they return. The others read them later.
COPYING = ("all_reduce", "all_reduce_coalesced", "broadcast")
READING = (
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_to_all_single",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
)


class Handle:
    """Connects the calls of one collective. Equal only to itself, also after pickling."""


class _Started(threading.local):
    """The results of collectives that this thread has started and not waited for. A run of a plan stays in one thread."""

    def __init__(self) -> None:
        self.results: WeakKeyDictionary[Handle, dict[int, torch.Tensor]] = WeakKeyDictionary()


_started = _Started()


@dataclass(frozen=True)
class StartCall:
    """Starts a collective. It takes the operand tensors and returns nothing."""

    target: Callable[..., Any]
    arguments: Any
    handle: Handle
    copies: bool  # True if the operands need copies, because the plan may reuse their memory while the collective reads them.

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.copies:
            tensors = [tensor.clone() for tensor in tensors]
        args, kwargs = tree_map(lambda leaf: fill(leaf, tensors), self.arguments)
        with torch.no_grad():
            _started.results[self.handle] = dict(enumerate(tree_flatten(self.target(*args, **kwargs))[0]))
        return []


@dataclass(frozen=True)
class WaitCall:
    """Makes the current stream wait for one result of a started collective, and returns it."""

    handle: Handle
    position: int
    promised: Strides  # The traced strides.

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        result = _started.results[self.handle].pop(self.position)
        with torch.no_grad():
            return [self.promised.of(torch.ops._c10d_functional.wait_tensor(result))]


@dataclass
class Pending:
    """Stands for a result of a started collective until the graph waits for it."""

    call: int  # The call that starts the collective.
    handle: Handle
    position: int
    value: ir.Value | None = None  # The result, once a call waits for it.


@lower(*(f"_c10d_functional.{name}.default" for name in (*COPYING, *READING)))
def start(c: Context, *args: Any, **kwargs: Any) -> Any:
    assert c.node is not None
    target: Any = c.node.target
    if not _is_waited_for(c.node):
        return lower_call(c, target, args, kwargs)  # A single call that also waits.
    operands, arguments = slots(c, args, kwargs)
    handle = Handle()
    c.calls.append(StartCall(target, arguments, handle, copies=target._opname not in COPYING))
    call = len(c.calls) - 1
    c.builder.call(call, operands, [], [])
    if isinstance(c.val, torch.Tensor):
        return Pending(call, handle, 0)
    return [Pending(call, handle, position) for position in range(len(c.val))]


@lower("_c10d_functional.wait_tensor.default")
def wait(c: Context, x: Pending | ir.Value) -> ir.Value:
    if not isinstance(x, Pending):
        _wait_for_argument(c)
        return x
    if x.value is None:
        c.calls.append(WaitCall(x.handle, x.position, strides_in_memory(c.val)))
        result = [(ir_dtype(c.val.dtype), c.shape(c.val.shape))]
        (x.value,) = c.builder.call(len(c.calls) - 1, [], result, [c.shape(c.val.stride())], x.call)
    return x.value


def _wait_for_argument(c: Context) -> None:
    """If the graph waits for one of its arguments, the argument is waited for before the plan runs."""
    assert c.node is not None
    source = c.node.args[0]
    if isinstance(source, torch.fx.Node) and source.op == "placeholder":
        placeholders = [node for node in source.graph.nodes if node.op == "placeholder"]
        c.awaited.append(placeholders.index(source))


def _is_waited_for(node: torch.fx.Node) -> bool:
    """True if the graph waits for each result of a collective before it does anything else with it."""
    wait_tensor = torch.ops._c10d_functional.wait_tensor.default
    results = [node]
    if not isinstance(node.meta["val"], torch.Tensor):
        results = list(node.users)
        places = [user.args[1] for user in results if "getitem" in str(user.target)]
        if sorted(tree_leaves(places)) != list(range(len(node.meta["val"]))):
            return False
    return all(result.users and all(user.target is wait_tensor for user in result.users) for result in results)
