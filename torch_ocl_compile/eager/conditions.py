# torch_ocl_compile/eager/conditions.py: turns the guards of an op's trace into conditions that C++ checks at each call.
"""A trace that decides something by a size or a float holds for some values only. torch's ShapeEnv notes each decision as a
guard. csrc/torch/eager_conditions.h has the same fields."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy.logic.boolalg import And, Not, Or
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.symbolic import Symbols, as_quotient


class Relation(enum.IntEnum):
    EQUAL = 0
    NOT_EQUAL = 1
    LESS = 2
    LESS_OR_EQUAL = 3
    GREATER = 4
    GREATER_OR_EQUAL = 5


_RELATIONS = {
    sympy.Eq: Relation.EQUAL,
    sympy.Ne: Relation.NOT_EQUAL,
    sympy.StrictLessThan: Relation.LESS,
    sympy.LessThan: Relation.LESS_OR_EQUAL,
    sympy.StrictGreaterThan: Relation.GREATER,
    sympy.GreaterThan: Relation.GREATER_OR_EQUAL,
}


@dataclass
class Conditions:
    symbols: list[tuple[int, int]] = field(default_factory=list)  # (leaf, dimension) of s0, s1, ... in `sizes`.
    sizes: list[ir.IndexExpr] = field(default_factory=list)  # Each must be at least 0.
    floats: list[tuple[int, Relation, float]] = field(default_factory=list)  # (leaf, relation, constant).


def conditions_of(
    env: Any, sizes: Mapping[sympy.Symbol, tuple[int, int]], floats: Mapping[sympy.Symbol, tuple[int, float]]
) -> Conditions:
    """Returns conditions under which all guards of `env` hold. UnsupportedError for a guard that has no such form.

    `sizes`: symbol -> (leaf, dimension). `floats`: symbol -> (leaf, value at this call).
    """
    made = Conditions()
    symbols = Symbols(builder=None, exprs={symbol: ir.IndexExpr.size(i) for i, symbol in enumerate(sizes)})  # type: ignore[arg-type]
    for guard in dict.fromkeys(guard.expr for guard in env.guards):
        try:
            _add(made, symbols, guard, floats)
        except UnsupportedError as error:
            raise UnsupportedError(f"its graph holds only if {guard}: {error}") from error
    made.symbols = list(sizes.values()) if made.sizes else []
    return made


def _add(made: Conditions, symbols: Symbols, guard: Any, floats: Mapping[sympy.Symbol, tuple[int, float]]) -> None:
    if isinstance(guard, And):
        for part in guard.args:
            _add(made, symbols, part, floats)
        return
    compared = _compared_float(guard, floats)
    if compared is not None:
        made.floats.append(compared)
        return
    # A float that is part of an expression must have the value of this call.
    for symbol in sorted(guard.free_symbols & floats.keys(), key=str):
        leaf, value = floats[symbol]
        if math.isnan(value):
            raise UnsupportedError(f"{symbol} is NaN")
        made.floats.append((leaf, Relation.EQUAL, value))
        guard = guard.xreplace({symbol: sympy.Float(value)})
    if guard.free_symbols:
        made.sizes.append(_at_least_zero(guard, symbols))


def _compared_float(
    guard: Any, floats: Mapping[sympy.Symbol, tuple[int, float]]
) -> tuple[int, Relation, float] | None:
    """Returns the condition of a guard that compares a float with a constant. None for other guards."""
    if type(guard) not in _RELATIONS:
        return None
    for relational in (guard, guard.reversed):
        if relational.lhs in floats and relational.rhs.is_number and relational.rhs.is_extended_real:
            return floats[relational.lhs][0], _RELATIONS[type(relational)], float(relational.rhs)
    return None


def _at_least_zero(guard: Any, symbols: Symbols) -> ir.IndexExpr:
    """Returns an expression that is at least 0 if the guard holds, and negative if it does not."""
    if isinstance(guard, And):
        return functools.reduce(ir.min, (_at_least_zero(part, symbols) for part in guard.args))
    if isinstance(guard, Or):
        return functools.reduce(ir.max, (_at_least_zero(part, symbols) for part in guard.args))
    if isinstance(guard, Not):
        return -1 - _at_least_zero(guard.args[0], symbols)
    if type(guard) not in _RELATIONS:
        raise UnsupportedError(f"{type(guard).__name__} is no comparison")
    difference = _integer_difference(guard.lhs, guard.rhs, symbols)
    match _RELATIONS[type(guard)]:
        case Relation.EQUAL:
            return ir.min(difference, -difference)
        case Relation.NOT_EQUAL:
            return ir.max(difference, -difference) - 1
        case Relation.LESS:
            return -difference - 1
        case Relation.LESS_OR_EQUAL:
            return -difference
        case Relation.GREATER:
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
    """True if an expression of sizes is known to be positive: symbols stand for sizes of at least 2."""
    if e.is_number:
        return bool(e > 0)
    return bool(e.is_Symbol) or (isinstance(e, sympy.Mul) and all(_is_positive(factor) for factor in e.args))
