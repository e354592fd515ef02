# torch_ocl_compile/eager/conditions.py: turns the guards of an op's trace into conditions that C++ checks at each call.
"""A trace that decides something by a size or a float holds for some values only. torch's ShapeEnv notes each decision as a
guard."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sympy
from sympy.logic.boolalg import And, Not, Or
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.symbolic import Symbols, as_quotient
from torch_ocl_compile.lowering.graphs.size_numbers import formula_of

_Relation = Recipe.Conditions.Relation
# How numbers compare. A float that must have one value is a constant of the trace (`floats`).
_RELATIONS = {
    sympy.Ne: _Relation.kNotEqual,
    sympy.StrictLessThan: _Relation.kBelow,
    sympy.LessThan: _Relation.kAtMost,
    sympy.StrictGreaterThan: _Relation.kAbove,
    sympy.GreaterThan: _Relation.kAtLeast,
}


def conditions_of(
    env: Any,
    places: Mapping[sympy.Symbol, tuple[int, int, bool]],
    floats: Mapping[int, float],
    varying: Mapping[sympy.Symbol, int] = MappingProxyType({}),
) -> Recipe.Conditions:
    """Returns conditions under which all guards of `env` hold. UnsupportedError for a guard that has no such form.

    `places`: symbol -> (leaf, dimension, whether it is a stride). `floats`: leaf -> the constant that the trace has for it.
    `varying`: symbol of a float -> leaf.
    """
    symbols = Symbols(builder=None, exprs={symbol: ir.IndexExpr.size(i) for i, symbol in enumerate(places)})  # type: ignore[arg-type]
    made, conditions = Recipe.Conditions(), []
    formula = Recipe.Formula
    compared = [(formula.leaf(leaf), _Relation.kEqual, formula.number(value)) for leaf, value in floats.items()]
    if any(map(math.isnan, floats.values())):
        raise UnsupportedError("its graph holds only for a number that is NaN")
    for guard in dict.fromkeys(guard.expr for guard in env.guards if guard.expr.free_symbols):
        try:
            if type(guard) in _RELATIONS and guard.free_symbols & varying.keys():
                left, right = (formula_of(side, symbols, varying) for side in (guard.lhs, guard.rhs))
                compared.append((left, _RELATIONS[type(guard)], right))
            else:
                conditions.append(at_least_zero(guard, symbols))
        except UnsupportedError as error:
            raise UnsupportedError(f"its graph holds only if {guard}: {error}") from error
    made.sizes, made.floats, made.symbols = conditions, compared, [Recipe.Symbol(*place) for place in places.values()]
    return made


def at_least_zero(guard: Any, symbols: Symbols) -> ir.IndexExpr:
    """Returns an expression that is at least 0 if the guard holds, and negative if it does not."""
    if isinstance(guard, And):
        return functools.reduce(ir.min, (at_least_zero(part, symbols) for part in guard.args))
    if isinstance(guard, Or):
        return functools.reduce(ir.max, (at_least_zero(part, symbols) for part in guard.args))
    if isinstance(guard, Not):
        return -1 - at_least_zero(guard.args[0], symbols)
    if not isinstance(guard, sympy.Rel):
        raise UnsupportedError(f"{type(guard).__name__} is no comparison")
    difference = _integer_difference(guard.lhs, guard.rhs, symbols)
    match guard:
        case sympy.Eq():
            return ir.min(difference, -difference)
        case sympy.Ne():
            return ir.max(difference, -difference) - 1
        case sympy.StrictLessThan():
            return -difference - 1
        case sympy.LessThan():
            return -difference
        case sympy.StrictGreaterThan():
            return difference - 1
        case _:
            return difference


def _integer_difference(a: Any, b: Any, symbols: Symbols) -> ir.IndexExpr:
    """Returns an integer with the sign of a - b."""
    numerator, denominator = sympy.fraction(sympy.together(as_quotient(a - b)))
    if not _is_positive(denominator):
        raise UnsupportedError(f"the sign of {denominator} is unknown")
    for quotient in numerator.atoms(FloorDiv, Mod, PythonMod):
        if not _is_positive(quotient.args[1]):
            raise UnsupportedError(f"{quotient.args[1]} may be 0")
    return symbols.translate(numerator)


def _is_positive(e: Any) -> bool:
    """True if an expression is positive for all sizes. Symbols stand for sizes and strides of at least 2."""
    bounds = bound_sympy(e, dict.fromkeys(e.free_symbols, ValueRanges(2, int_oo)))
    return bool(bounds.lower > 0)
