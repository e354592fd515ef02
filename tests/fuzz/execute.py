# tests/fuzz/execute.py: runs a program, compiled or line by line, and records everything that is visible after a call.
"""A `Seen` holds whole storages and the views of them, so that writes outside of a view, lost writes and aliases are
found."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from tests.fuzz import flex, higher
from tests.fuzz.program import Program
from tests.fuzz.values import distinct, limits, make, special

Namespace = dict[str, Any]


@dataclass
class View:
    """The visible properties of a tensor. `storage` numbers the distinct storages of a call in order of appearance."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int
    requires_grad: bool
    # The elements are conjugates, or negatives, of what memory contains.
    conjugate: bool = False
    negative: bool = False


@dataclass
class Seen:
    """Arguments and results of one call: views in order (arguments first), contents of storages, gradients of leaves."""

    # A View for a tensor, else the value itself.
    views: list[Any] = field(default_factory=list)
    # One-dimensional copies on the CPU.
    storages: list[torch.Tensor] = field(default_factory=list)
    # The number of storages that belong to arguments; these come first.
    of_inputs: int = 0
    gradients: list[torch.Tensor | None] = field(default_factory=list)

    def tensor(self, view: View) -> torch.Tensor:
        x = self.storages[view.storage].view(view.dtype).as_strided(view.shape, view.stride, view.offset)
        x = x.conj().resolve_conj() if view.conjugate else x
        return -x if view.negative else x


def namespace(device: str, n: int, k: int, own: bool = True) -> Namespace:
    """Returns the names that lines use. `own`: FlexAttention, branches and loops are our definitions of them, not PyTorch's."""
    attend, mask = (flex.attend, flex.create_block_mask) if own else (flex_attention, create_block_mask)
    branch, loop, walk = (higher.cond, higher.while_loop, higher.scan) if own else (torch.cond, while_loop, scan)
    return {
        "torch": torch, "F": F, "math": math, "make": make, "distinct": distinct, "special": special, "limits": limits,
        "device": device, "n": n, "k": k, "flex_attention": attend, "create_block_mask": mask,
        "cond": branch, "while_loop": loop, "scan": walk, "checkpoint": checkpoint,
    }  # fmt: skip


def arguments(
    program: Program, device: str, n: int, k: int, widened: Callable[[str], str] = str, own: bool = True
) -> Namespace:
    """Returns a namespace that contains the program's arguments."""
    names = namespace(device, n, k, own)
    for name, text in program.inputs:
        names[name] = eval(widened(text), names)
    return names


def leaves(program: Program, names: Namespace) -> list[torch.Tensor]:
    """Returns the tensors that get gradients: arguments, or the tensors that arguments are views of."""
    found: list[torch.Tensor] = []
    for name, _ in program.inputs:
        x = names[name]
        if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_nested:
            leaf = x if x.is_leaf else x._base
            if leaf is not None and leaf.is_leaf and not any(leaf is f for f in found):
                found.append(leaf)
    return found


def function(program: Program) -> Callable[..., Any]:
    """Returns the program as a Python function."""
    # Dynamo imports the module of a function by its name.
    module = sys.modules["program"] = types.ModuleType("program")
    names = vars(module)
    names.update(namespace("cpu", 0, 0, own=False))
    exec(compile(program.source(), "<program>", "exec"), names)
    made: Callable[..., Any] = names["f"]
    return made


class Kept(torch.nn.Module):
    """A function as a module that keeps some arguments: all calls get those of the first one."""

    def __init__(self, run: Callable[..., Any], names: list[str], weights: list[str]) -> None:
        super().__init__()
        self.run, self.places = run, [(names.index(name), name) for name in weights]

    def given(self, values: list[Any]) -> list[Any]:
        """Returns the arguments of a call. The first call makes the weights."""
        for place, name in self.places:
            if not hasattr(self, name):
                self.register_parameter(name, torch.nn.Parameter(values[place], requires_grad=False))
        return self.with_weights(values)

    def with_weights(self, values: list[Any]) -> list[Any]:
        values = list(values)
        for place, name in self.places:
            values[place] = getattr(self, name)
        return values

    def forward(self, *values: Any) -> Any:
        return self.run(*self.with_weights(list(values)))


def weights(program: Program, outputs: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns (output, gradient to pass to its backward) for the outputs that have gradients.

    The gradients are small numbers that differ along a row.
    """
    if not program.settings.gradient:
        return []
    pairs = []
    for x in outputs:
        if isinstance(x, torch.Tensor) and x.requires_grad and not any(x is y for y, _ in pairs):
            w = ((torch.arange(x.numel()) % 7 - 3) / 4).view(x.shape).to(x.dtype)
            w = w * (1 + 0.5j) if x.is_complex() else w
            pairs.append((x, w.to(x.device)))
    return pairs


def gradients(program: Program, names: Namespace, outputs: list[Any]) -> list[torch.Tensor | None]:
    pairs = weights(program, outputs)
    wanted = leaves(program, names)
    if not pairs or not wanted:
        return []
    found = torch.autograd.grad([x for x, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True)
    return [None if g is None else g.detach().cpu().resolve_conj().resolve_neg() for g in found]


def look(inputs: list[tuple[str, Any]], outputs: list[Any]) -> Seen:
    """Records everything that is visible after a call."""
    seen = Seen()
    known: dict[int, int] = {}

    def view(name: str, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return (name, x if isinstance(x, (bool, int, float, complex, str)) else type(x).__name__)
        if x.is_nested:
            x = x.values()
        storage = x.untyped_storage()
        if storage._cdata not in known:
            known[storage._cdata] = len(seen.storages)
            flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(storage)
            seen.storages.append(flat.cpu() if x.device.type != "cpu" else flat.clone())
        place = known[storage._cdata]
        lazy = x.is_conj(), x.is_neg()
        return View(name, x.dtype, tuple(x.shape), tuple(x.stride()), x.storage_offset(), place, x.requires_grad, *lazy)

    seen.views = [view(name, x) for name, x in inputs]
    seen.of_inputs = len(seen.storages)
    seen.views += [view(f"output {i}", x) for i, x in enumerate(outputs)]
    return seen


def as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def given(program: Program, names: Namespace) -> list[tuple[str, Any]]:
    return [(name, names[name]) for name, _ in program.inputs]


def call(program: Program, run: Callable[..., Any], device: str, n: int, k: int) -> Seen:
    """Makes one call of `run`, which is a compiled function or the program's own."""
    names = arguments(program, device, n, k, own=False)
    inputs = given(program, names)
    if kept_names := program.weights():
        kept = run.given([x for _, x in inputs])  # type: ignore[attr-defined]
        inputs = [(name, x) for (name, _), x in zip(inputs, kept, strict=True)]
        names.update((name, x) for name, x in inputs if name in kept_names)
    if program.settings.dynamic == "mark":
        mark(program, names, n)
    if program.settings.autocast and device != "cpu":
        with torch.autocast(torch.device(device).type, dtype=getattr(torch, program.settings.autocast)):
            outputs = as_list(run(*(x for _, x in inputs)))
    else:
        outputs = as_list(run(*(x for _, x in inputs)))
    found = gradients(program, names, outputs)
    seen = look(inputs, outputs)
    seen.gradients = found
    return seen


def mark(program: Program, names: Namespace, n: int) -> None:
    """Tells Dynamo which dimensions depend on n."""
    others = arguments(program, "cpu", n + 1, 0)
    for name, _ in program.inputs:
        x, y = names[name], others[name]
        if isinstance(x, torch.Tensor) and not x.is_nested:
            for d, (here, there) in enumerate(zip(x.shape, y.shape, strict=True)):
                if here != there:
                    torch._dynamo.maybe_mark_dynamic(x, d)
