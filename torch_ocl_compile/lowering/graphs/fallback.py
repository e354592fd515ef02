# torch_ocl_compile/lowering/graphs/fallback.py: runs an op without lowering eagerly as a node of the plan.
"""Such ops are slow, so they are counted with their reasons and logged once each. options={"fallback": "error"} forbids
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.complex_value import Complex, joined, memory_layout, real_dtype, split
from torch_ocl_compile.lowering.core.context import Context, ir_dtype
from torch_ocl_compile.lowering.graphs.strides import Strides, strides_in_memory

log = logging.getLogger(__name__)

REMEDY = (
    "  do:    leave the option out (the op then runs on the CPU and is counted in torch.ocl.fallback_counts()),\n"
    "         use other ops, or add a lowering: docs/adding_an_op.md"
)
REMEDY_WITHOUT_FALLBACK = "  do:    use other ops, or add a lowering: docs/adding_an_op.md"


def refused(op: str, reason: str) -> _C.Refused:
    return _C.Refused(op, reason, _C.Refused.Place.GRAPH)


def record(op: _C.Refused) -> _C.Refused:
    """Counts an op, and returns it. The first one of each name and reason is logged."""
    if op.count() == 1:
        log.warning("%s runs eagerly: %s", op.op, op.reason)
    return op


def reason_for(lowering: Callable[..., Any] | None, crashes: bool) -> str:
    """Returns why an op with this lowering, if it has one, becomes a fallback."""
    if crashes:
        return "the driver's compiler ends on its kernel"
    return "no lowering" if lowering is None else "no lowering for these arguments"


def lower_call(c: Context, target: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Builds a Call node, which calls `target` on the operand tensors at run time.

    SymInts are passed as 0-dimensional operands and read back on the host. UnsupportedError if `target` returns no
    tensor, or a size that depends on the data.
    """
    fakes, result_spec = tree_flatten(c.val)
    positions = [i for i, f in enumerate(fakes) if isinstance(f, torch.Tensor)]
    if not positions:
        raise UnsupportedError(f"{target} returns no tensor")
    if any(isinstance(f, (torch.SymInt, torch.SymFloat, torch.SymBool)) for f in fakes):
        raise UnsupportedError(f"{target} returns a size that depends on the data")
    operands, arguments = slots(c, args, kwargs)
    layouts = [memory_layout(fakes[p]) for p in positions]
    results = [
        (ir_dtype(real_dtype(fakes[p].dtype)), c.shape(sizes))
        for p, (sizes, *_) in zip(positions, layouts, strict=True)
    ]
    strides = [c.shape(steps) for _, steps, _ in layouts]
    c.calls.append(EagerCall(target, arguments, positions, [strides_in_memory(fakes[p]) for p in positions]))
    values = c.builder.call(len(c.calls) - 1, operands, results, strides)
    made: list[Any] = [None] * len(fakes)
    for p, value in zip(positions, values, strict=True):
        made[p] = split(c.builder, value) if fakes[p].is_complex() else value
    return tree_unflatten(made, result_spec)


def slots(c: Context, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[ir.Value], Any]:
    """Returns the operands of a Call node, and the arguments with a _Slot in place of each operand."""
    operands: list[ir.Value] = []

    def slot(leaf: Any) -> Any:
        if isinstance(leaf, torch.SymInt):
            operands.append(c.builder.realize(c.number(leaf, ir.DType.kI64)))
            return _Slot(len(operands) - 1, is_number=True)
        if isinstance(leaf, (ir.Value, Complex)):
            operands.append(joined(c.builder, leaf))
            return _Slot(len(operands) - 1, is_complex=isinstance(leaf, Complex))
        return leaf

    return operands, tree_map(slot, (tuple(args), dict(kwargs)), is_leaf=lambda x: isinstance(x, Complex))


class _Slot:
    """Stands for operand number `position` among the arguments. `is_number`: it is passed as a Python int. `is_complex`: it is
    the real view of a complex tensor."""

    def __init__(self, position: int, is_number: bool = False, is_complex: bool = False) -> None:
        self.position = position
        self.is_number, self.is_complex = is_number, is_complex


def fill(slot: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns the operand that a _Slot stands for. Returns other arguments as they are."""
    if not isinstance(slot, _Slot):
        return slot
    tensor = tensors[slot.position]
    if slot.is_complex:
        return torch.view_as_complex(tensor)
    return int(tensor.item()) if slot.is_number else tensor


@dataclass(frozen=True)
class EagerCall:
    """The Python callable of a Call node: takes operand tensors, returns result tensors with the traced strides."""

    target: Callable[..., Any]
    # The positional and keyword arguments, with a _Slot in place of each operand.
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    positions: list[int]  # Positions of the tensors among the flattened results.
    promised: list[Strides]  # The traced strides of each of these tensors.

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        collective = _is_collective(self.target)
        if collective:
            # A collective reads its operands after the call. The plan may reuse their memory by then.
            tensors = [tensor.clone() for tensor in tensors]
        args, kwargs = tree_map(lambda leaf: fill(leaf, tensors), self.arguments)
        with torch.no_grad():
            results = tree_flatten(self.target(*args, **kwargs))[0]
            if collective:
                # The results are copied into the plan's memory next. This makes the stream wait, not the host.
                results = [torch.ops._c10d_functional.wait_tensor(result) for result in results]
        return [in_memory(results[p], strides) for p, strides in zip(self.positions, self.promised, strict=True)]


def _is_collective(target: Callable[..., Any]) -> bool:
    return getattr(target, "namespace", "") in ("_c10d_functional", "_c10d_functional_autograd")


def in_memory(x: torch.Tensor, strides: Strides) -> torch.Tensor:
    """Returns a result with the traced strides and without lazy bits, and a complex one as its real view."""
    x = strides.of(x)
    return torch.view_as_real(x) if x.is_complex() else x
