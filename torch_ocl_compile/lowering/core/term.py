# torch_ocl_compile/lowering/core/term.py: scalar formulas of loop nests, written with Python operators.
"""A `Nest` is an `ir.BodyBuilder` whose values are `Term`s, so that `grad * (1 - y * y)` can be written as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch_ocl_compile._C import ir

Number: TypeAlias = bool | int | float
Index: TypeAlias = "ir.IndexExpr | int"


def scalar(value: Number, dtype: ir.DType) -> Number:
    """Converts a Python number to a constant of the dtype."""
    if ir.is_floating(dtype):
        return float(value)
    return int(bool(value)) if dtype == ir.DType.kBool else int(value)


def _operator(name: str) -> Callable[[Term, Operand], Term]:
    return lambda self, other: self.nest.op(name, self, other)


def _reflected(name: str) -> Callable[[Term, Operand], Term]:
    return lambda self, other: self.nest.op(name, other, self)


class Term:
    """The value of one operation in the body of a loop nest.

    A number next to a term takes the term's dtype; a float next to an integer term takes float32.
    """

    __slots__ = ("id", "nest")

    def __init__(self, nest: Nest, id: int) -> None:
        self.nest = nest
        self.id = id

    @property
    def dtype(self) -> ir.DType:
        return self.nest.body.dtype_of(self.id)

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    eq, ne = _operator("eq"), _operator("ne")
    __and__, __or__ = _operator("logical_and"), _operator("logical_or")

    def __neg__(self) -> Term:
        return self.nest.op("neg", self)

    def __invert__(self) -> Term:
        return self.nest.op("logical_not", self)

    def cast(self, dtype: ir.DType) -> Term:
        return self if self.dtype == dtype else Term(self.nest, self.nest.body.cast(self.id, dtype))

    def as_index(self) -> ir.IndexExpr:
        """Returns this integer as an index expression."""
        return self.nest.body.as_index(self.id)


Operand: TypeAlias = Term | bool | int | float


class Nest:
    """Loops i* over `sizes` and r* over `reduce_sizes`. `store`, `reduce` or `end` completes the nest."""

    def __init__(
        self, builder: ir.Builder, sizes: Sequence[ir.IndexExpr], reduce_sizes: Sequence[ir.IndexExpr] = ()
    ) -> None:
        self.sizes, self.reduce_sizes = list(sizes), list(reduce_sizes)
        self.builder = builder
        self.body = ir.BodyBuilder(builder, self.sizes, self.reduce_sizes)
        self.i = [ir.IndexExpr.loop(d) for d in range(len(self.sizes))]
        self.r = [ir.IndexExpr.reduce(d) for d in range(len(reduce_sizes))]

    def load(self, value: ir.Value, coords: Sequence[Index], mask: Term | None = None) -> Term:
        """Returns the value's element at `coords` in its compute type; 0 where `mask` is false."""
        at = [c if isinstance(c, ir.IndexExpr) else ir.IndexExpr(c) for c in coords]
        loaded = Term(self, self.body.load(value, at, -1 if mask is None else mask.id))
        return loaded.cast(ir.compute_type(value.dtype))

    def load_broadcast(self, value: ir.Value, sizes: Sequence[ir.IndexExpr], coords: Sequence[Index]) -> Term:
        """Broadcasts the value to `sizes` and returns its element at the point `coords`."""
        skip = len(sizes) - len(value.sizes)
        return self.load(value, [0 if s.is_const(1) else coords[skip + d] for d, s in enumerate(value.sizes)])

    def constant(self, value: Number, dtype: ir.DType) -> Term:
        dtype = ir.compute_type(dtype)
        return Term(self, self.body.constant(scalar(value, dtype), dtype))

    def index(self, expr: Index, dtype: ir.DType = ir.DType.kI64) -> Term:
        """Returns an index expression as a term."""
        return Term(self, self.body.index(expr if isinstance(expr, ir.IndexExpr) else ir.IndexExpr(expr), dtype))

    def op(self, name: str, *args: Operand) -> Term:
        """Applies a scalar op of ops.def. Numbers take the dtype of the first term that is not bool."""
        dtypes = [a.dtype for a in args if isinstance(a, Term)]
        kinds = [d for d in dtypes if d != ir.DType.kBool] or dtypes
        terms = [a if isinstance(a, Term) else self.literal(a, kinds[0]) for a in args]
        return Term(self, self.body.op(name, [t.id for t in terms]))

    def literal(self, value: Number, beside: ir.DType) -> Term:
        if isinstance(value, float) and not ir.is_floating(beside):
            beside = ir.DType.kF32
        elif beside == ir.DType.kBool and not isinstance(value, bool):
            beside = ir.DType.kI64
        return self.constant(value, beside)

    def inside(self, coord: ir.IndexExpr, size: Index) -> Term:
        """Returns whether 0 <= coord < size."""
        at = self.index(coord)
        return (at >= 0) & (at < self.index(size))

    def store(self, *results: tuple[Term, ir.DType]) -> list[ir.Value]:
        """Completes the nest and stores each (term, storage dtype) into a new buffer."""
        terms = [t.cast(d) for t, d in results]
        return list(self.body.store([t.id for t in terms], [d for _, d in results]))

    def add_store(
        self,
        target: ir.Value,
        coords: Sequence[Index],
        value: Term | int,
        mask: Term | None = None,
        mode: ir.StoreMode = ir.StoreMode.kWrite,
    ) -> None:
        """Adds a store into an existing buffer; `end` completes the nest.

        `value` is a term, or, in a scan, the number of a result. `mode`: see StoreMode in csrc/ir/graph.h.
        """
        at = [e if isinstance(e, ir.IndexExpr) else ir.IndexExpr(e) for e in coords]
        number = value.cast(target.dtype).id if isinstance(value, Term) else value
        self.body.add_store(target, at, number, -1 if mask is None else mask.id, mode)

    def end(self) -> None:
        self.body.end()

    def scan(self, reduction: str, terms: Sequence[Term], dtype: ir.DType, reset: Term | None = None) -> None:
        """Makes the nest a running reduction over r0. `add_store` refers to its results by number.

        The reduction restarts where `reset` is true. `dtype` is the dtype of the results.
        """
        self.body.scan(reduction, [t.id for t in terms], dtype, -1 if reset is None else reset.id)

    def reduce(self, reduction: str, terms: Sequence[Term], dtypes: Sequence[ir.DType]) -> list[ir.Value]:
        """Completes the nest with a reduction over r*. Returns one new buffer per result of the reduction.

        In a nest without loops r*, each result is the element itself, as sum, max and the like give for one element.
        """
        if not self.r:
            return self.store(*zip(terms, dtypes, strict=True))
        return list(self.body.reduce(reduction, [t.id for t in terms], list(dtypes)))


def call(name: str, *args: Operand) -> Term:
    nest = next(a.nest for a in args if isinstance(a, Term))
    return nest.op(name, *args)


def where(condition: Term, then: Operand, otherwise: Operand) -> Term:
    return call("where", condition, then, otherwise)


def _function(name: str) -> Callable[[Term], Term]:
    return lambda x: call(name, x)


exp, expm1, log, log1p = _function("exp"), _function("expm1"), _function("log"), _function("log1p")
sqrt, rsqrt, abs_ = _function("sqrt"), _function("rsqrt"), _function("abs")
erf, tanh, sigmoid = _function("erf"), _function("tanh"), _function("sigmoid")


def minimum(x: Operand, y: Operand) -> Term:
    """Returns the smaller operand; NaN if either is NaN."""
    return call("minimum", x, y)


def maximum(x: Operand, y: Operand) -> Term:
    """Returns the larger operand; NaN if either is NaN."""
    return call("maximum", x, y)
