# torch_ocl_compile/lowering/lowered.py: a lowered graph, where its inputs come from and where the results of a call come from.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.bounds import Checked
from torch_ocl_compile.lowering.symbolic import SizeFunction, SymbolSource


@dataclass(frozen=True)
class Argument:
    """An argument of the call."""

    position: int


@dataclass(frozen=True)
class HostValue:
    """A result of `Lowered.before`, on the CPU. As an input of the plan it is moved to the device."""

    position: int


@dataclass(frozen=True)
class Attribute:
    """A tensor that the module holds."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class PackedHostValues:
    """Several 0-dim results of `Lowered.before`, as one tensor."""

    positions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class PackedNumbers:
    """Several float arguments of the call, as one tensor."""

    positions: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Expression:
    """A float computed of sizes, as a 0-dim tensor."""

    function: SizeFunction
    dtype: torch.dtype


@dataclass(frozen=True)
class PlanOutput:
    """An output of the plan."""

    position: int


@dataclass(frozen=True)
class LateValue:
    """A result of `Lowered.after`, on the CPU."""

    position: int


@dataclass(frozen=True)
class Number:
    """A number."""

    value: Any


@dataclass(frozen=True)
class Computed:
    """An integer computed of sizes."""

    function: SizeFunction


@dataclass(frozen=True)
class Nothing:
    """None."""


Source = (
    Argument | Attribute | HostValue | PackedHostValues | PackedNumbers | Expression
)  # of a tensor input of the ir.Graph
Result = PlanOutput | Argument | HostValue | LateValue | Number | Computed | Nothing  # of the call


@dataclass(kw_only=True)
class Lowered:
    """A graph ready to be compiled, and how to call it."""

    graph: ir.Graph
    calls: list[Callable[[list[torch.Tensor]], list[torch.Tensor]]]
    device: torch.device
    arguments: int  # how many a call has, those that nothing reads among them
    inputs: list[Source]
    results: list[Result]
    traced: list[Any]  # the fake value of each result
    before: tuple[Callable[..., Any], list[int]] | None = None  # and the arguments it takes, by position
    after: tuple[Callable[..., Any], list[Result]] | None = None
    sources: list[SymbolSource] = field(default_factory=list)
    host_values: list[torch.fx.Node] = field(default_factory=list)  # the results of `before`
    checked: list[Checked] = field(default_factory=list)  # what the last output of the ir.Graph tells, if not empty
    fallbacks: list[tuple[str, str]] = field(default_factory=list)  # the op and the reason of each of `calls`
