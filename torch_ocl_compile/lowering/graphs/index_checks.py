# torch_ocl_compile/lowering/graphs/index_checks.py: lets kernels find indices that lie outside their dimension.
"""An index outside its dimension reads the nearest element and stores nothing. With the option index_errors, each op that takes
indices also notes one such index in a word of the device's memory (csrc/runtime/queues/fault_words.h). The next wait for the device
raises IndexError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_ocl_compile._C import ir
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.core import term as t
from torch_ocl_compile.lowering.core.context import Context
from torch_ocl_compile.lowering.movement.indexing import from_end, inside, is_expanded

LARGEST = 2**30 - 1  # Indices farther from 0 are noted as this one (FaultWords::kLargest).


@dataclass(frozen=True)
class Bound:
    """The condition that every element of `index` lies in [low, size) of dimension `dim`, or equals `ignored`.

    `low` is -size if negative indices count from the end, else 0.
    """

    index: ir.Value
    dim: int
    size: ir.IndexExpr
    from_end: bool = False  # True if negative indices count from the end.
    ignored: int | None = None
    text: str = ""  # What is wrong, where `index` is none of the user's.

    def message(self, where: str) -> str:
        """Returns the message of the error, with "{}" for the index. `where`: lines that describe the op."""
        if self.text:
            return f"{self.text}\n{where}"
        size = f" with size {self.size}" if self.size.is_const() else ""
        return f"index {{}} is out of bounds for dimension {self.dim}{size}\n{where}"


Rule = Callable[..., "list[Bound]"]
RULES: dict[Any, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update({found: function for name in names if (found := overload(name)) is not None})
        return function

    return register


def size_of(x: ir.Value, dim: int) -> ir.IndexExpr:
    return x.sizes[dim % len(x.sizes)] if x.sizes else ir.IndexExpr(1)


@rule("aten.embedding.default", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding(weight: ir.Value, index: ir.Value, *_: Any) -> list[Bound]:
    return [Bound(index, 0, size_of(weight, 0))]


@rule(
    *("aten.gather.default", "aten.index_select.default"),
    *("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce"),
    *("aten.scatter_add.default", "aten.scatter_reduce.two", "aten.index_reduce.default"),
)
def along_dim(x: ir.Value, dim: int, index: ir.Value, *_: Any, **__: Any) -> list[Bound]:
    return [Bound(index, dim % max(len(x.sizes), 1), size_of(x, dim))]


@rule("aten.index_add.default", "aten.index_copy.default")
def along_dim_of_elements(x: ir.Value, dim: int, index: ir.Value, *_: Any, **__: Any) -> list[Bound]:
    return [] if without_elements(x, [None] * (dim % max(len(x.sizes), 1)) + [index]) else along_dim(x, dim, index)


def without_elements(x: ir.Value, indices: Sequence[ir.Value | None]) -> bool:
    """True if no element of x is at the indices: PyTorch does not check such indices of index, index_put, index_add and index_copy."""
    whole = [size for d, size in enumerate(x.sizes) if d >= len(indices) or indices[d] is None]
    return any(size.is_const(0) for sizes in (whole, *(i.sizes for i in indices if i is not None)) for size in sizes)


@rule("aten.index.Tensor", "aten.index_put.default")
def advanced(x: ir.Value, indices: Sequence[ir.Value | None], *_: Any, **__: Any) -> list[Bound]:
    if without_elements(x, indices):
        return []
    masks = (ir.DType.kBool, ir.DType.kU8)
    return [
        Bound(i, d, size_of(x, d), from_end=True)
        for d, i in enumerate(indices)
        if i is not None and i.dtype not in masks
    ]


@rule("aten.take.default", "aten.put.default")
def flat(x: ir.Value, index: ir.Value, *_: Any, **__: Any) -> list[Bound]:
    return [Bound(index, 0, ir.product(list(x.sizes)), from_end=True)]


@rule("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(x: ir.Value, target: ir.Value, weight: Any, reduction: int, ignored: int) -> list[Bound]:
    dim = 1 if len(x.sizes) > 1 else 0
    return [Bound(target, dim, size_of(x, dim), ignored=ignored)]


@rule("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(edges: ir.Value, *_: Any, sorter: ir.Value | None = None, **__: Any) -> list[Bound]:
    return [] if sorter is None else [Bound(sorter, len(edges.sizes) - 1, edges.sizes[-1])]


@rule("ocl.checked.default")
def checked(x: ir.Value, faults: ir.Value, message: str) -> list[Bound]:
    return [Bound(faults, 0, ir.IndexExpr(1), text=message)]


def bounds_of(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Bound]:
    """Returns the bounds of an op's indices."""
    return RULES[target](*args, **kwargs) if target in RULES else []


def note_outside(c: Context, bound: Bound, word: ir.Value) -> None:
    """Stores an index that violates the bound, if there is one, into an int32 value of shape [1]."""
    # Where an index is expanded, one of the equal elements is looked at; none if there is none.
    sizes = [ir.min(s, 1) if is_expanded(bound.index, d) else s for d, s in enumerate(bound.index.sizes)]
    nest = c.nest(sizes)
    at = nest.load(bound.index, nest.i).cast(ir.DType.kI64)
    # The comparison with the nearest valid index is cheap, because the op itself computes that index.
    reached = from_end(at, bound.size) if bound.from_end else at
    outside = reached.ne(inside(reached, bound.size))
    if bound.ignored is not None:
        outside = outside & at.ne(bound.ignored)
    noted = t.where(at < 0, -t.maximum(at, -LARGEST), t.minimum(at, LARGEST) + (LARGEST + 1))
    nest.add_store(word, [0], noted, outside, mode=ir.StoreMode.kMaximum)
    nest.end()
