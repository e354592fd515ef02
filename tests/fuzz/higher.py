# tests/fuzz/higher.py: branches and loops by their definition, to compare with PyTorch's ops.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def cond(wanted: torch.Tensor, then: Callable[..., Any], otherwise: Callable[..., Any], operands: Sequence[Any]) -> Any:
    return (then if wanted.item() else otherwise)(*operands)


def while_loop(wanted: Callable[..., Any], step: Callable[..., Any], carried: Sequence[Any]) -> Any:
    while wanted(*carried).item():
        carried = step(*carried)
    return carried


def scan(step: Callable[..., Any], carried: torch.Tensor, xs: torch.Tensor, reverse: bool = False) -> Any:
    """Returns the last of what is carried, and the results of all rounds in the order of the rows."""
    results = []
    for row in reversed(xs.unbind()) if reverse else xs.unbind():
        carried, result = step(carried, row)
        results.append(result)
    return carried, torch.stack(results[::-1] if reverse else results)
