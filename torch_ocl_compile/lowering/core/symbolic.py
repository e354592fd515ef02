# torch_ocl_compile/lowering/core/symbolic.py: converts SymInts and sympy expressions to ir.IndexExpr.
"""Sizes of the traced graph become index expressions of the IR; at run time they are evaluated to Python numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, Mod, PythonMod, ToFloat, TruncToInt

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.errors import UnsupportedError

_UNBOUNDED = 2**62


class SizeFunction:
    """A number computed from the sizes s0, s1, ... of a call.

    `text` is the source code of the function `value`, and the form in which the object is pickled.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        scope: dict[str, Any] = {"math": math, "torch": torch}
        exec(text, scope)
        self.value: Callable[[Sequence[int]], Any] = scope["value"]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)


class ComputedSize(SizeFunction):
    """One that is itself a size of the graph. In a call, its value follows those of the sizes before it."""


@dataclass(frozen=True)
class Number:
    """A constant, in place of a SizeFunction."""

    number: Any

    def value(self, sizes: Sequence[int]) -> Any:
        return self.number


@dataclass
class Symbols:
    """The size symbols of one graph, named s0, s1, ... in the order of the inputs that provide them."""

    builder: ir.Builder
    exprs: dict[Any, ir.IndexExpr] = field(default_factory=dict)
    sources: list[Recipe.Symbol] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    # Symbol b -> (i, factor, rest), if si = factor * b + rest and no input is b itself.
    derived: dict[Any, tuple[int, int, int]] = field(default_factory=dict)
    shape_env: Any = None
    # Makes a leaf of a size that has no index form, which the host computes. None in packages, which have no host code.
    compute: Callable[[ComputedSize], int] | None = None
    # A size that is an expression -> whether the guards imply that it is 1.
    ones: dict[Any, bool] = field(default_factory=dict)

    def bind_inputs(self, fakes: Sequence[Any], leaves: Sequence[int]) -> None:
        """Assigns a size symbol to each integer input and to each sympy symbol that only a tensor provides. `leaves`: the
        leaf of each input.

        Compiled autograd passes no integer for the stride of a slice, so strides provide symbols as sizes do.
        """
        for leaf, fake in zip(leaves, fakes, strict=True):
            if isinstance(fake, torch.SymInt):
                self._bind(fake.node.expr, fake.node.shape_env, Recipe.Symbol(leaf))
        tensors = [(leaf, fake) for leaf, fake in zip(leaves, fakes, strict=True) if isinstance(fake, torch.Tensor)]
        for is_stride in (False, True):
            for leaf, fake in tensors:
                for dim, size in enumerate(fake.stride() if is_stride else fake.shape):
                    if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                        self._bind(size.node.expr, size.node.shape_env, Recipe.Symbol(leaf, dim, is_stride))
        for leaf, fake in tensors:
            for dim, size in enumerate(fake.shape):
                if isinstance(size, torch.SymInt):
                    self._derive(size.node.expr, size.node.shape_env, Recipe.Symbol(leaf, dim))

    def _bind(self, expr: Any, shape_env: Any, source: Recipe.Symbol, factor: int = 1) -> None:
        if expr in self.exprs or expr.is_number:
            return
        known = symbol_range(expr, shape_env)
        if known is None:
            return
        self.shape_env = shape_env
        self.exprs[expr] = self.builder.size_symbol(ir.Range(known.low, known.high, factor))
        self.sources.append(source)
        self.names.append(expr)

    def _derive(self, expr: Any, shape_env: Any, source: Recipe.Symbol) -> None:
        """Binds a size such as 2*b + 1, if no input provides b. torch.export makes such sizes."""
        unknown = expr.free_symbols - self.exprs.keys()
        if len(expr.free_symbols) != 1 or not unknown:
            return
        (symbol,) = unknown
        factor, rest = expr.coeff(symbol), expr.coeff(symbol, 0)
        if not (factor.is_Integer and rest.is_Integer and factor > 0 and expr == factor * symbol + rest):
            return
        self.derived[symbol] = (len(self.names), int(factor), int(rest))
        self._bind(expr, shape_env, source, math.gcd(int(factor), int(rest)))
        self.exprs[symbol] = ir.floordiv(self.exprs[expr] - int(rest), int(factor))

    def size(self, x: Any) -> ir.IndexExpr:
        """Returns an int, SymInt, sympy expression or IndexExpr as an IndexExpr."""
        if isinstance(x, ir.IndexExpr):
            return x
        if isinstance(x, torch.SymInt):
            if self._is_one(x):
                return ir.IndexExpr(1)
            x = x.node.expr
        if isinstance(x, int):
            return ir.IndexExpr(x)
        return self.translate(x)

    def _is_one(self, x: torch.SymInt) -> bool:
        """Returns whether a size that is an expression is 1 for all sizes that the graph accepts.

        PyTorch's trace broadcasts a dimension of such a size, but an index map broadcasts a dimension only if its size
        is the constant 1. An example is the last chunk when s0 rows are split.
        """
        expr = x.node.expr
        if expr.is_number or expr.is_Symbol:
            return False
        if expr not in self.ones:
            self.ones[expr] = statically_known_true(x == 1)
        return self.ones[expr]

    def translate(self, expr: Any) -> ir.IndexExpr:
        """Returns a sympy expression as an IndexExpr. UnsupportedError for a symbol that no input provides."""
        if expr in self.exprs:
            return self.exprs[expr]
        if expr.is_Integer:
            return ir.IndexExpr(int(expr))
        if isinstance(expr, sympy.Symbol):
            raise UnsupportedError(f"size {expr} depends on the data: no input of the graph gives its value")
        rule = next((rule for kind, rule in _RULES if isinstance(expr, kind)), _no_rule)
        try:
            return rule(self, expr)
        except UnsupportedError:
            if self.compute is None or not expr.is_integer:
                raise
            self._bind(expr, self.shape_env, Recipe.Symbol(self.compute(ComputedSize(self.evaluator(expr).text))))
            return self.exprs[expr]

    def evaluator(self, expr: Any) -> SizeFunction:
        """Returns a function from the values of s0, s1, ... to the value of `expr`.

        UnsupportedError if no input provides one of its symbols.
        """
        from torch.utils._sympy.printers import PythonPrinter

        if isinstance(expr, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            expr = expr.node.expr
        names = [f"s_{i}" for i in range(len(self.names))]
        symbols = [sympy.Symbol(n, integer=True) for n in names]
        values = dict(zip(self.names, symbols, strict=True))
        for symbol, (i, factor, rest) in self.derived.items():
            values[symbol] = FloorDiv(symbols[i] - rest, factor)
        renamed = sympy.sympify(expr).xreplace(values)
        if unknown := renamed.free_symbols - set(symbols):
            raise UnsupportedError(f"{expr} depends on the data: no input of the graph gives {unknown.pop()}")
        unpack = f"({', '.join(names)},) = s[:{len(names)}]; " if names else ""
        return SizeFunction(f"def value(s):\n  {unpack}return {PythonPrinter().doprint(renamed)}\n")


def symbol_range(expr: Any, shape_env: Any) -> ir.Range | None:
    """Returns the inclusive bounds that PyTorch knows for a size. None for the ragged size of a jagged tensor. It is no number, and a
    graph passes it on at most, because all ops work on the tensors inside.
    """
    low, high = 0, _UNBOUNDED
    if shape_env is not None:
        bounds = shape_env.bound_sympy(expr)
        if bounds is None:
            return None
        low = int(bounds.lower) if bounds.lower.is_Integer else -_UNBOUNDED
        high = int(bounds.upper) if bounds.upper.is_Integer else _UNBOUNDED
    return ir.Range(max(low, -_UNBOUNDED), min(high, _UNBOUNDED))


def _no_rule(s: Symbols, e: Any) -> ir.IndexExpr:
    raise UnsupportedError(
        f"size expression {e} ({type(e).__name__}) has no form in integers\n"
        "  do:    compute the size with integers, such as 7 * n // 10 in place of int(0.7 * n)"
    )


def _fold(combine: Callable[[ir.IndexExpr, ir.IndexExpr], ir.IndexExpr]) -> Callable[[Symbols, Any], ir.IndexExpr]:
    return lambda s, e: functools.reduce(combine, (s.translate(a) for a in e.args))


def _power(s: Symbols, e: Any) -> ir.IndexExpr:
    base, exponent = e.args
    if not exponent.is_Integer or int(exponent) < 0:
        raise UnsupportedError(f"size expression {e} is not an integer polynomial")
    return functools.reduce(lambda a, b: a * b, [s.translate(base)] * int(exponent), ir.IndexExpr(1))


def _ceil_or_floor(s: Symbols, e: Any) -> ir.IndexExpr:
    """Converts CeilToInt, FloorToInt or, of what is not negative, TruncToInt of a quotient of integers to an integer division."""
    if isinstance(e, TruncToInt) and (s.shape_env is None or not s.shape_env.bound_sympy(e.args[0]).lower >= 0):
        _no_rule(s, e)
    numerator, denominator = sympy.fraction(sympy.together(as_quotient(e.args[0])))
    if numerator.has(sympy.Float):
        _no_rule(s, e)
    n, d = s.translate(numerator), s.translate(denominator)
    return ir.ceildiv(n, d) if isinstance(e, (CeilToInt, sympy.ceiling)) else ir.floordiv(n, d)


def as_quotient(e: Any) -> Any:
    """Returns the expression with its quotients, and numbers such as 1.5 that are short fractions, as sympy quotients."""
    if e.is_Float and sympy.Rational(float(e)).q <= 2**16:
        return sympy.Rational(float(e))
    parts = [as_quotient(a) for a in e.args]
    if isinstance(e, is_named("IntTrueDiv", "FloatTrueDiv")):
        return parts[0] / parts[1]
    if isinstance(e, ToFloat):
        return parts[0]
    return e.func(*parts) if isinstance(e, (sympy.Add, sympy.Mul)) else e


_RULES: list[tuple[Any, Callable[[Symbols, Any], ir.IndexExpr]]] = [
    (sympy.Add, _fold(lambda a, b: a + b)),
    (sympy.Mul, _fold(lambda a, b: a * b)),
    (sympy.Pow, _power),
    (FloorDiv, lambda s, e: ir.floordiv(s.translate(e.args[0]), s.translate(e.args[1]))),
    (sympy.Abs, lambda s, e: ir.max(s.translate(e.args[0]), s.translate(-e.args[0]))),
    ((Mod, PythonMod), lambda s, e: ir.mod(s.translate(e.args[0]), s.translate(e.args[1]))),
    ((CeilToInt, FloorToInt, TruncToInt, sympy.floor, sympy.ceiling), _ceil_or_floor),
    (ToFloat, lambda s, e: s.translate(e.args[0])),
]


def is_named(*names: str) -> Any:
    """Returns the classes of these names from torch's sympy functions; which of them exist depends on the version."""
    import torch.utils._sympy.functions as functions

    return tuple(getattr(functions, n) for n in names if hasattr(functions, n))


_RULES += [
    ((*is_named("Max"), sympy.Max), _fold(ir.max)),
    ((*is_named("Min"), sympy.Min), _fold(ir.min)),
    (is_named("CleanDiv"), lambda s, e: ir.floordiv(s.translate(e.args[0]), s.translate(e.args[1]))),
    (
        is_named("ModularIndexing"),
        lambda s, e: ir.mod(ir.floordiv(s.translate(e.args[0]), s.translate(e.args[1])), s.translate(e.args[2])),
    ),
]
