# torch_ocl_compile/lowering/graphs/strides.py: the strides that compiled code expects of a tensor that comes from an eager op.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from torch_ocl_compile.errors import NotLowered


@dataclass(frozen=True)
class Strides:
    """Traced strides. If they depend on sizes that are not known, `order` has the dimensions from the outermost to the innermost
    of a tensor without gaps. `conjugate`, `negative`: its lazy bits.
    """

    known: tuple[int, ...] | None
    order: tuple[int, ...] = ()
    conjugate: bool = False
    negative: bool = False

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x, or a copy of it if it has other strides or bits."""
        if x.is_conj() != self.conjugate:
            x = x.resolve_conj() if x.is_conj() else x.conj_physical().conj()
        if x.is_neg() != self.negative:
            x = x.resolve_neg() if x.is_neg() else torch._neg_view(x.neg())
        wanted = self.known
        if wanted is None:
            wanted = _dense(x.shape, self.order)
        if x.numel() == 0 or all(
            have == want or size == 1 for have, want, size in zip(x.stride(), wanted, x.shape, strict=True)
        ):
            return x
        copy = torch.empty_strided(x.shape, wanted, dtype=x.dtype, device=x.device)
        copy = copy.conj() if self.conjugate else copy
        return (torch._neg_view(copy) if self.negative else copy).copy_(x)


def laid_out(values: Sequence[Any], strides: Sequence[Strides | None]) -> list[Any]:
    """Returns the values with the strides that are expected of them. None: the value is no tensor."""
    return [v if s is None else s.of(v) for v, s in zip(values, strides, strict=True)]


def strides_of(fake: Any) -> Strides | None:
    """Returns the strides and bits of a traced value; None if it is no tensor in strided layout. NotLowered for
    strides that neither numbers nor an order describe."""
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return None
    return replace(strides_in_memory(fake), conjugate=fake.is_conj(), negative=fake.is_neg())


def strides_in_memory(fake: torch.Tensor) -> Strides:
    """Returns the strides of a traced tensor, without lazy bits."""
    if all(isinstance(s, int) for s in fake.stride()):
        return Strides(tuple(fake.stride()))
    sizes, strides = _guesses(fake)
    order = tuple(sorted(range(fake.dim()), key=lambda d: -strides[d]))
    if any(want != have and size != 1 for want, have, size in zip(_dense(sizes, order), strides, sizes, strict=True)):
        raise NotLowered(f"a tensor that no plan computes has gaps: strides {tuple(fake.stride())}")
    return Strides(None, order)


def _guesses(fake: torch.Tensor) -> tuple[list[int], list[int]]:
    """Returns sizes and strides of a tensor with a large number for each symbol, which is enough to compare them."""
    numbers = [n if isinstance(n, int) else n.node.expr for n in (*fake.shape, *fake.stride())]
    symbols = sorted({s for n in numbers if not isinstance(n, int) for s in n.free_symbols}, key=str)
    values = {symbol: sympy.Integer(4099 + 2 * i) for i, symbol in enumerate(symbols)}
    found = [n if isinstance(n, int) else int(n.xreplace(values)) for n in numbers]
    return found[: fake.dim()], found[fake.dim() :]


def _dense(shape: Sequence[int], order: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [0] * len(order), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)
