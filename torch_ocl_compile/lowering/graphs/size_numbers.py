# torch_ocl_compile/lowering/graphs/size_numbers.py: numbers computed from the sizes and floats of a call.
"""The host computes such a number at each call, in double precision, and passes it to the kernels. A package has no host code, so
its kernels compute it themselves: `1 / (n - 1)` becomes ops on the size symbol of `n`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sympy
from torch.utils._sympy.functions import ToFloat

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.symbolic import Symbols, is_named

_Number = TypeVar("_Number")


def number_from_sizes(expr: Any, symbols: Symbols, dtype: ir.DType) -> ir.Value:
    """Returns a float expression of sizes as a value of rank 0. UnsupportedError if it needs a function that no kernel has."""
    builder = symbols.builder

    def leaf(e: Any) -> ir.Value | None:
        if e.is_number:
            return builder.constant(float(e), dtype)
        return builder.iota([], symbols.translate(e), dtype) if e.is_integer else None

    return _number(expr, leaf, builder.op)


def formula_of(expr: Any, symbols: Symbols, floats: Mapping[sympy.Symbol, int]) -> Recipe.Formula:
    """Returns an expression of sizes and floats as a formula of the host. UnsupportedError if it needs a function that the host
    does not have, or another symbol. `floats`: symbol of a float -> leaf of a call.
    """
    formula = Recipe.Formula

    def leaf(e: Any) -> Recipe.Formula | None:
        if e in floats:
            return formula.leaf(floats[e])
        if e.is_number:
            return formula.number(float(e))
        return formula.size(symbols.translate(e)) if e.is_integer else None

    return _number(expr, leaf, formula.apply)


def _number(
    expr: Any, leaf: Callable[[Any], _Number | None], apply: Callable[[str, list[_Number]], _Number]
) -> _Number:
    """Builds an expression: what is a leaf by `leaf`, functions of one or two numbers by `apply`."""

    def value(e: Any) -> _Number:
        made = leaf(e)
        if made is not None:
            return made
        name = next((name for kind, name in _FUNCTIONS if isinstance(e, kind)), None)
        if name is None:
            raise UnsupportedError(
                f"the number {expr} is computed at each call, and {type(e).__name__} has no form for that"
            )
        args = [value(a) for a in e.args]
        if len(args) == 1:
            return args[0] if name == "" else apply(name, args)
        return functools.reduce(lambda a, b: apply(name, [a, b]), args)

    return value(expr)


# The class of an expression -> a scalar operation of one or two operands (csrc/ir/ops.def). "": the operand itself.
_FUNCTIONS: list[tuple[Any, str]] = [
    (sympy.Add, "add"),
    (sympy.Mul, "mul"),
    (is_named("IntTrueDiv", "FloatTrueDiv"), "div"),
    ((sympy.Pow, *is_named("FloatPow", "PowByNatural")), "pow"),
    (ToFloat, ""),
    ((*is_named("Max"), sympy.Max), "maximum"),
    ((*is_named("Min"), sympy.Min), "minimum"),
    *((is_named(f"OpaqueUnaryFn_{name}"), name) for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tanh")),
]
