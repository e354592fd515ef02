# tests/no_device/graphs/test_conditions.py: guards of a trace are translated to conditions on sizes, which must agree with the
# guards.
from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import FloatTrueDiv, FloorDiv, IntTrueDiv, Max, Mod, ToFloat

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.eager.conditions import conditions_of
from torch_ocl_compile.errors import UnsupportedError

S, U = sympy.Symbol("s0", integer=True, positive=True), sympy.Symbol("s1", integer=True, positive=True)
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
    assert made.floats == [(1, 2.5), (3, float("inf"))] and not made.sizes and not made.symbols
    with pytest.raises(UnsupportedError, match="NaN"):
        conditions(floats={1: float("nan")})


def test_floats_that_must_differ() -> None:
    """A product decides by whether its factor is 0. Other decisions by a float need a constant."""
    factor = sympy.Symbol("zf0", real=True)
    made = conditions_of(Env(sympy.Ne(factor, 0.0), sympy.Ne(factor, 1.5)), SIZES, {}, {factor: 4})
    assert made.others == [(4, 0.0), (4, 1.5)] and not made.floats and not made.sizes
    with pytest.raises(UnsupportedError, match="zf0"):
        conditions_of(Env(sympy.Eq(factor, 2.5)), SIZES, {}, {factor: 4})


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
