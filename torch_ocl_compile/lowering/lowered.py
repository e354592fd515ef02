# torch_ocl_compile/lowering/lowered.py: a lowered graph, with the origins of its inputs and of the results of a call.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ocl_compile._C import Refused, ir
from torch_ocl_compile.lowering.index_checks import Checked
from torch_ocl_compile.lowering.symbolic import SizeFunction, SymbolSource


@dataclass(frozen=True)
class Argument:
    """The argument of the call at `position`."""

    position: int


@dataclass(frozen=True)
class HostValue:
    """The result of `Lowered.before` at `position`, on the CPU. As an input of the plan it is moved to the device."""

    position: int


@dataclass(frozen=True)
class Attribute:
    """A tensor that is an attribute of the module."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class PackedHostValues:
    """Several 0-dimensional results of `Lowered.before`, packed into one tensor."""

    positions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class PackedNumbers:
    """Several float arguments of the call, packed into one tensor."""

    positions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Expression:
    """A float computed from sizes, as a 0-dimensional tensor."""

    function: SizeFunction
    dtype: torch.dtype


@dataclass(frozen=True)
class PlanOutput:
    """The output of the plan at `position`."""

    position: int


@dataclass(frozen=True)
class LateValue:
    """The result of `Lowered.after` at `position`, on the CPU."""

    position: int


@dataclass(frozen=True)
class Number:
    """A constant number."""

    value: Any


@dataclass(frozen=True)
class Computed:
    """An integer computed from sizes."""

    function: SizeFunction


@dataclass(frozen=True)
class NoneResult:
    """The result None."""


# Where a tensor input of the ir.Graph comes from.
Source = Argument | Attribute | HostValue | PackedHostValues | PackedNumbers | Expression
# Where a result of the call comes from.
Result = PlanOutput | Argument | HostValue | LateValue | Number | Computed | NoneResult


@dataclass(kw_only=True)
class Lowered:
    """A graph ready to be compiled, and how to call it."""

    graph: ir.Graph
    calls: list[Callable[[list[torch.Tensor]], list[torch.Tensor]]]
    device: torch.device
    arguments: int  # number of arguments of a call, counting also those that nothing reads
    inputs: list[Source]
    results: list[Result]
    # The traced fake value of each result.
    traced: list[Any]
    # A function that runs on the CPU before the plan, and the positions of the arguments that it takes.
    before: tuple[Callable[..., Any], list[int]] | None = None
    after: tuple[Callable[..., Any], list[Result]] | None = None
    sources: list[SymbolSource] = field(default_factory=list)
    # The nodes whose values `before` returns.
    host_values: list[torch.fx.Node] = field(default_factory=list)
    # If not empty, the last output of the ir.Graph has the results of bounds checks, and this has one entry for each.
    checked: list[Checked] = field(default_factory=list)
    # Positions of arguments for which the graph waits, because a collective may still be writing them.
    awaited: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)  # The ops among `calls` that have no kernels.
