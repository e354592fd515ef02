# torch_ocl_compile/lowering/graphs/lowered.py: a lowered graph, and what a call of it needs besides the plan.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ocl_compile._C import Recipe, Refused, ir
from torch_ocl_compile.lowering.core.symbolic import Number, SizeFunction


@dataclass(kw_only=True)
class Lowered:
    """A graph ready to be compiled, and how to call it."""

    # The graph, and where the plan's inputs and the results come from (csrc/torch/recipe.h). Its leaves are the arguments
    # of a call, then `computed`. Its results are those of the call, then what `after` takes.
    recipe: Recipe
    calls: list[Callable[[list[torch.Tensor]], list[torch.Tensor]]]
    device: torch.device
    constants: list[torch.Tensor]  # the tensors that are attributes of the module
    # The traced fake value of each result.
    traced: list[Any]
    # A function that runs on the CPU before the plan, and the positions of the arguments that it takes.
    before: tuple[Callable[..., Any], list[int]] | None = None
    # Further leaves. None stands for the next result of `before`.
    computed: list[SizeFunction | Number | None] = field(default_factory=list)
    # A function that runs on the CPU after the plan, the number of its arguments, and the positions of its results among
    # those of the call.
    after: tuple[Callable[..., Any], int, list[int]] | None = None
    # Positions of arguments for which the graph waits, because a collective may still be writing them.
    awaited: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)  # The ops among `calls` that have no kernels.

    @property
    def graph(self) -> ir.Graph:
        return self.recipe.graph
