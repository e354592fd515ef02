# tests/fuzz/row_statements.py: calls rows of the op tables on the tensors of a random program.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz import rows
from tests.fuzz.maker import Maker

FAMILIES = (  # Each family occurs as often as its weight.
    ("own",) * 100 + ("nn",) * 45 + ("order",) * 35 + ("attention",) * 9 + ("special",) * 8 + ("linalg",)
)
# Ops for which it is not defined what a NaN becomes.
UNDEFINED_BY_NAN = ("sdpa", "attention", "grid", "interpolate")
# Ops that are computed in several ways, some of which subtract infinities: convolutions by transformed tiles or with
# padding; group_norm with mean and weight folded into one factor and one summand; soft_margin_loss, whose gradient is a
# sigmoid in PyTorch's decomposition and exp / (1 + exp) in its kernel.
UNDEFINED_BY_INFINITY = ("conv", "group_norm", "batch_norm", "instance_norm", "soft_margin_loss")
# Ops whose CPU gradient at NaN depends on the position of the element: vectorised code compares the other way round
# than the code for the remaining elements.
GRADIENT_UNDEFINED_BY_NAN = ("relu6", "hardtanh", "elu", "selu", "celu", "hardswish", "hardshrink", "softshrink")
# PyTorch's CPU kernel ends the process if it divides the least int32 or int64 by -1 and truncates.
TRAPS = ("div_trunc",)


class RowMaker(Maker):
    """Adds statements that call rows, on tensors as they are or cut to the shapes of the row's samples."""

    def row(self) -> list[str]:
        """Draws a row and calls it on existing tensors, cut to its shapes if they do not fit as they are."""
        family = self.pick(FAMILIES)
        op = self.pick(rows.programs(family))
        found = rows.samples(op, self.pick(op.dtypes))
        # PyTorch does not promise which of equal elements gets the gradient of a median, nor the vectors of equal
        # singular values.
        if not found or (self.settings.gradient and family in ("order", "linalg") and not op.gradient):
            return []
        sample = self.pick(found)
        if self.chance(70):
            lines = self._called(op, sample, self._loosely)
            if lines:
                return lines
        return self._called(op, sample, self._cut)

    def _called(self, op: Any, sample: Any, choose: Callable[[Any, Any, list[str]], str]) -> list[str]:
        """Returns the lines of the row's call, preceded by lines that prepare its operands."""
        before: list[str] = []
        first = self.variables
        places: dict[int, str] = {}
        for i in sample.tensors():
            places[i] = choose(op, sample.leaves[i], before)
        if before and not self.add(before):
            return []
        names = self.names[0]
        operands = {i: names[name] for i, name in places.items()}
        known = {id(x): name for name, x in names.items() if isinstance(x, torch.Tensor)}
        known.update({id(x): places[i] for i, x in operands.items()})
        try:
            lines = rows.lines_of(op, sample.arguments(operands), known, self.name)
        except Exception:
            lines = []
        if lines and self.add(lines):
            return [*before, *lines]
        if before:
            del self.lines[-len(before) :]
        self.variables = first
        self.rebuild()
        return []

    def _loosely(self, op: Any, leaf: Any, before: list[str]) -> str:
        """Returns a tensor of the leaf's kind, whatever its shape."""
        if not leaf.dtype.is_floating_point or op.programs == "distinct":
            return self._cut(op, leaf, before)
        rank = len(leaf.shape)
        x = self.tensor(lambda t: t.is_floating_point() and (rank < 3 or t.dim() == rank))
        return self._limited(x, op, leaf, before)

    def _cut(self, op: Any, leaf: Any, before: list[str]) -> str:
        """Returns a tensor of the leaf's shape, made from an existing tensor or as a new argument."""
        count = torch.Size(leaf.shape).numel()
        dtype = str(leaf.dtype)
        if op.programs == "distinct":
            return self.argument(self.made(leaf.shape, dtype, maker="distinct"))
        fits = self.tensors(lambda t: t.dtype == leaf.dtype and t.numel() >= count > 0)
        fits = [x for x in fits if all(names[x].numel() >= count for names in self.names)]
        if fits and self.chance(60):
            x = self.pick(fits)
            source = x
            if self.shape(x) != leaf.shape:
                name = self.name()
                before.append(f"{name} = {x}.flatten()[:{count}].view({leaf.shape})")
                x = name
            return self._limited(x, op, leaf, before, source)
        if leaf.dtype.is_floating_point:
            return self._limited(self.argument(self.layout(list(leaf.shape), dtype)), op, leaf, before)
        return self.argument(self.made(leaf.shape, dtype, f", {int(leaf.low)}, {int(leaf.high)}"))

    def _limited(self, x: str, op: Any, leaf: Any, before: list[str], source: str = "") -> str:
        """Returns x with its values limited to those that the op is meant for.

        `source` is the variable from which x is made by lines that have not run yet.
        """
        source = source or x
        limited = leaf.limited or op.name in TRAPS or op.name.startswith(UNDEFINED_BY_NAN)
        if self.settings.gradient and op.name.startswith(GRADIENT_UNDEFINED_BY_NAN):
            limited = limited or self._has_nan(source)
        if op.name.startswith(UNDEFINED_BY_INFINITY):
            limited = limited or self._has_nan(source) or self._has_infinity(source)
        wild = source in self.names[0] and self._wild(source)
        if not (limited or wild) or op.programs == "distinct":
            return x
        low, high = (
            (round(leaf.low, 2), round(leaf.high, 2))
            if leaf.dtype.is_floating_point
            else (int(leaf.low), int(leaf.high))
        )
        name = self.name()
        text = f"{x}.clamp({low}, {high})"
        before.append(f"{name} = {text}" + (".nan_to_num(0.5)" if limited and self._has_nan(source) else ""))
        return name

    def _has_nan(self, x: str) -> bool:
        return (
            x in self.names[0]
            and self.floating(x)
            and any(bool(names[x].detach().double().isnan().any()) for names in self.names)
        )

    def _has_infinity(self, x: str) -> bool:
        return (
            x in self.names[0]
            and self.floating(x)
            and any(bool(names[x].detach().double().isinf().any()) for names in self.names)
        )

    def _wild(self, x: str) -> bool:
        """Returns whether values have grown so much that most functions of them are infinite."""
        t = self.meta(x).detach()
        return bool(t.numel()) and t.is_floating_point() and not bool(t.double().abs().nan_to_num(0, 0, 0).max() <= 64)

    def method(self) -> list[str]:
        """Calls the in-place form of a row."""
        op = self.pick(rows.in_place(self.pick(("own", "own", "own", "order"))))
        found = rows.samples(op, self.pick(op.dtypes))
        if not found:
            return []
        sample = self.pick(found)
        before: list[str] = []
        tensors = sample.tensors()
        x = self.target()
        if self.floating(x) and (sample.leaves[tensors[0]].limited or self._wild(x)) and self.chance(70):
            leaf = sample.leaves[tensors[0]]
            before.append(f"{x}.clamp_({round(leaf.low, 2)}, {round(leaf.high, 2)})")
        others = [
            self.like(x) if leaf.dtype.is_floating_point else self._cut(op, leaf, before)
            for leaf in (sample.leaves[i] for i in tensors[1:])
        ]
        return [*before, f"{x}.{op.name}_({', '.join(others)})"]
