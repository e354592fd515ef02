# tests/no_device/graphs/test_conditions.py: guards of a trace become conditions on sizes and floats, which must agree with the
# guards; numbers that a call computes become formulas.
from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import (
    FloatTrueDiv,
    FloorDiv,
    IntTrueDiv,
    Max,
    Mod,
    OpaqueUnaryFn_exp,
    OpaqueUnaryFn_sqrt,
    ToFloat,
)

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.eager.conditions import conditions_of
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.symbolic import Symbols
from torch_ocl_compile.lowering.graphs.size_numbers import formula_of

S, U = sympy.Symbol("s0", integer=True, positive=True), sympy.Symbol("s1", integer=True, positive=True)
RELATION = Recipe.Conditions.Relation
SIZES = {S: (0, 1), U: (2, 0)}


class Env:
    """A stand-in for ShapeEnv that has only guards."""

    def __init__(self, *guards: Any) -> None:
        self.guards = [type("Guard", (), {"expr": guard}) for guard in guards]


def conditions(*guards: Any, floats: Any = None) -> Recipe.Conditions:
    return conditions_of(Env(*guards), SIZES, floats or {})


GUARDS = [
    sympy.Eq(S, 4),
    sympy.Ne(S, 4),
    S < U,
    S <= U,
    S > 5,
    S >= U + 2,
    sympy.Eq(Mod(S, 3), 0),
    sympy.Ne(Mod(S + U, 4), 1),
    FloorDiv(S - 3, 2) + 1 > U,
    sympy.And(S > 3, U < 6),
    sympy.Or(sympy.Eq(S, U), S > 2 * U),
    sympy.Not(sympy.And(S > 3, U < 6), evaluate=False),
    sympy.Not(sympy.Or(sympy.Eq(S, 3), sympy.Ne(U, 4)), evaluate=False),
    Max(S, U) < 7,
    S * U - 2 * S > 11,
    IntTrueDiv(S, U) > 1,
    IntTrueDiv(S, 3) <= FloatTrueDiv(ToFloat(U), 2.0),
    sympy.Eq(IntTrueDiv(S, U), 1.5),
]


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_a_condition_holds_where_its_guard_holds(guard: Any) -> None:
    made = conditions(guard)
    assert [(s.leaf, s.dim) for s in made.symbols] == [(0, 1), (2, 0)] and not made.floats
    held = set()
    for s, u in itertools.product(range(2, 12), repeat=2):
        expected = bool(guard.subs({S: s, U: u}))
        values = {"s0": s, "s1": u}
        assert all(ir.evaluate(e, values) >= 0 for e in made.sizes) == expected, (s, u)
        held.add(expected)
    assert held == {True, False}, "the sizes do not test the guard"


def test_floats() -> None:
    made = conditions(floats={1: 2.5, 3: float("inf")})
    compared = [(left.value({1: 7.0, 3: 8.0}, {}), how, right.value({}, {})) for left, how, right in made.floats]
    assert compared == [(7.0, RELATION.kEqual, 2.5), (8.0, RELATION.kEqual, float("inf"))]
    assert not made.sizes
    with pytest.raises(UnsupportedError, match="NaN"):
        conditions(floats={1: float("nan")})


def test_floats_that_are_compared() -> None:
    """A product decides by whether its factor is 0, a distribution by whether it accepts a number. What holds for one value of
    a float needs a constant."""
    a, b = sympy.Symbol("zf0", real=True), sympy.Symbol("zf1", real=True)
    guards = [sympy.Ne(a, 0.0), a < 1.5, sympy.Ge(2.5, a), b > a, a <= b, b >= ToFloat(S) * 0.5]
    made = conditions_of(Env(*guards), SIZES, {}, {a: 4, b: 6})
    values = {4: 1.0, 6: 3.0}, {0: 8}
    assert [(left.value(*values), how, right.value(*values)) for left, how, right in made.floats] == [
        (1.0, RELATION.kNotEqual, 0.0),
        (1.0, RELATION.kBelow, 1.5),
        (2.5, RELATION.kAtLeast, 1.0),
        (3.0, RELATION.kAbove, 1.0),
        (1.0, RELATION.kAtMost, 3.0),
        (3.0, RELATION.kAtLeast, 4.0),
    ]
    assert not made.sizes
    with pytest.raises(UnsupportedError, match="zf0"):
        conditions_of(Env(sympy.Eq(a, 2.5)), SIZES, {}, {a: 4})


A, B = sympy.Symbol("zf0", real=True), sympy.Symbol("zf1", real=True)


@pytest.mark.parametrize(
    "expr",
    [
        A + 2 * B - 0.5,
        FloatTrueDiv(1.0, 1.0 - A),
        IntTrueDiv(S, S * U - 1) * A,
        A**2 + B**-1.5,
        Max(A, B, 2.0) - sympy.Min(A, B),
        OpaqueUnaryFn_sqrt(A) * OpaqueUnaryFn_exp(B),
        ToFloat(S + 1) / A,
    ],
    ids=str,
)
def test_formulas(expr: Any) -> None:
    """A formula has the value of its expression, in double precision."""
    symbols = Symbols(builder=None, exprs={S: ir.IndexExpr.size(0), U: ir.IndexExpr.size(1)})  # type: ignore[arg-type]
    formula = formula_of(expr, symbols, {A: 2, B: 5})
    expected = float(expr.subs({A: 0.7, B: 1.3, S: 5, U: 9}))
    assert formula.value({2: 0.7, 5: 1.3}, {0: 5, 1: 9}) == pytest.approx(expected, rel=1e-15)


def test_a_formula_without_a_function_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="zf0"):
        formula_of(sympy.sin(A), Symbols(builder=None), {A: 0})  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="zf1"):
        formula_of(A + B, Symbols(builder=None), {A: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "guard",
    [
        sympy.Eq(Mod(U, S - 3), 0),  # The divisor may be 0.
        FloorDiv(U, S - U) > 1,
        sympy.sin(S) > 0,
        sympy.Symbol("u0", integer=True) > 3,
        sympy.Symbol("zf0", real=True) > 0,
    ],
    ids=str,
)
def test_guards_that_are_refused(guard: Any) -> None:
    with pytest.raises(UnsupportedError, match="its graph holds only if"):
        conditions(guard)
