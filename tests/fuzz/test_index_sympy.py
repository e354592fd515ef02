# tests/fuzz/test_index_sympy.py: random index expressions against plain integer evaluation and sympy.
"""Every rewritten expression has the same value everywhere in the ranges, does not change when it is rewritten again,
and can be printed and parsed."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import sympy

from torch_ocl_compile._C import ir

ROUNDS = int(os.environ.get("TORCH_OCL_FUZZ_ROUNDS", "60"))

Env = dict[str, int]


@dataclass
class Case:
    """An expression, a function that evaluates it in Python, and the text that it was parsed from."""

    expr: ir.IndexExpr
    value: Callable[[Env], int]
    text: str


def symbol(name: str) -> Case:
    return Case(ir.IndexExpr.parse(name), lambda env: env[name], name)


def constant(value: int) -> Case:
    return Case(ir.IndexExpr(value), lambda env: value, str(value))


BINARY: dict[str, tuple[Callable[..., ir.IndexExpr], Callable[[int, int], int]]] = {
    "({} + {})": (lambda a, b: a + b, lambda a, b: a + b),
    "({} - {})": (lambda a, b: a - b, lambda a, b: a - b),
    "({} * {})": (lambda a, b: a * b, lambda a, b: a * b),
    "({} // {})": (ir.floordiv, lambda a, b: a // b),
    "({} % {})": (ir.mod, lambda a, b: a % b),
    "min({}, {})": (ir.min, min),
    "max({}, {})": (ir.max, max),
}
NUMBERS = [0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, 5]
DIVISIONS = ("({} // {})", "({} % {})")


def combine(form: str, a: Case, b: Case) -> Case:
    make, compute = BINARY[form]
    return Case(make(a.expr, b.expr), lambda env: compute(a.value(env), b.value(env)), form.format(a.text, b.text))


def random_case(rng: random.Random, depth: int, names: list[str], positive: list[Case]) -> Case:
    if depth == 0 or rng.random() < 0.15:
        return symbol(rng.choice(names)) if rng.random() < 0.7 else constant(rng.choice(NUMBERS))
    form = rng.choice(list(BINARY))
    a = random_case(rng, depth - 1, names, positive)
    b = rng.choice(positive) if form in DIVISIONS else random_case(rng, depth - 1, names, positive)
    return combine(form, a, b)


def mixed_radix(rng: random.Random, loops: list[str], sizes: list[Case]) -> Case:
    """Returns an expression as chains of reshapes make it: a flattened index, divided and taken modulo products of the
    sizes."""
    flat = symbol(loops[0])
    for name, size in zip(loops[1:], sizes[1:], strict=True):
        flat = combine("({} + {})", combine("({} * {})", flat, size), symbol(name))
    for _ in range(rng.randint(1, 3)):
        divisor = rng.choice(sizes)
        if rng.random() < 0.5:
            divisor = combine("({} * {})", divisor, rng.choice(sizes))
        part = combine(rng.choice(DIVISIONS), flat, divisor)
        if rng.random() < 0.4:
            rest = combine("({} % {})", flat, divisor)
            whole = combine("({} // {})", flat, divisor)
            part = combine("({} + {})", combine("({} * {})", whole, divisor), rest)
        flat = part
    return flat


def points(rng: random.Random, extents: list[int], count: int) -> list[tuple[int, ...]]:
    every = list(itertools.product(*(range(e) for e in extents)))
    return every if len(every) <= count else rng.sample(every, count)


def check(case: Case, ranges: ir.Ranges, envs: list[Env]) -> ir.IndexExpr:
    simple = ir.simplify(case.expr, ranges)
    assert ir.simplify(simple, ranges) == simple, f"not stable: {case.text} -> {simple}"
    for e in (case.expr, simple):
        assert ir.IndexExpr.parse(str(e)) == e, f"does not read back: {e}"
    bounds = ranges.of(case.expr)
    for env in envs:
        want = case.value(env)
        assert ir.evaluate(case.expr, env) == want, f"construction: {case.text} -> {case.expr}, at {env} it is {want}"
        assert ir.evaluate(simple, env) == want, f"simplify: {case.text} -> {simple}, at {env} it is {want}"
        assert bounds.low <= want <= bounds.high, f"bounds {bounds} of {case.text}, at {env} it is {want}"
        assert want % bounds.divisor == 0, f"divisor {bounds.divisor} of {case.text}, at {env} it is {want}"
    if ranges.known_nonnegative(case.expr):
        assert all(case.value(env) >= 0 for env in envs), f"known nonnegative: {case.text}"
    return simple


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_any_expression(seed: int) -> None:
    rng = random.Random(seed)
    names = ["i0", "i1", "s0", "s1"]
    for _ in range(20):
        low = rng.choice([0, 1, 2])
        ranges = ir.Ranges()
        for name in ("s0", "s1"):
            ranges.set(name, ir.Range(low, rng.choice([7, 2**40])))
        extent = rng.choice([4, 6, 12])
        ranges.set_extent("i0", extent)
        ranges.set_extent("i1", ir.IndexExpr.size(0))
        positive = [constant(c) for c in (1, 2, 3, 4, 6, 8)] + [combine("({} + {})", symbol("s0"), constant(1))]
        # The loop i1 < s0 runs, so s0 is at least 1.
        positive += [symbol("s0"), symbol("s1")] if low > 0 else [symbol("s0")]
        envs = []
        for s0, s1 in itertools.product(range(max(low, 1), 8), range(low, 8)):
            envs += [{"i0": i, "i1": j, "s0": s0, "s1": s1} for i, j in points(rng, [extent, s0], 6)]
        case = random_case(rng, 4, names, positive)
        check(case, ranges, rng.sample(envs, min(len(envs), 60)))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_reshape_chains(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(20):
        symbolic = rng.random() < 0.6
        numbers = [rng.choice([1, 2, 3, 4, 5]) for _ in range(3)]
        sizes = [symbol(f"s{k}") if symbolic and rng.random() < 0.7 else constant(n) for k, n in enumerate(numbers)]
        ranges = ir.Ranges()
        for k in range(3):
            ranges.set(f"s{k}", ir.Range(1, 5))
        for k, size in enumerate(sizes):
            ranges.set_extent(f"i{k}", size.expr)
        case = mixed_radix(rng, ["i0", "i1", "i2"], sizes)
        base = {f"s{k}": n for k, n in enumerate(numbers)}
        envs = [base | {"i0": a, "i1": b, "i2": c} for a, b, c in points(rng, numbers, 40)]
        check(case, ranges, envs)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_known_less(seed: int) -> None:
    """Whatever is claimed must hold everywhere."""
    rng = random.Random(2000 + seed)
    ranges = ir.Ranges()
    for name in ("s0", "s1"):
        ranges.set(name, ir.Range(1, 2**40))
    ranges.set_extent("i0", ir.IndexExpr.size(0))
    ranges.set_extent("i1", ir.IndexExpr.size(1))
    positive = [symbol("s0"), symbol("s1"), constant(2), constant(3)]
    envs = [
        {"s0": s0, "s1": s1, "i0": i0, "i1": i1}
        for s0, s1 in itertools.product(range(1, 6), repeat=2)
        for i0, i1 in points(rng, [s0, s1], 6)
    ]
    for _ in range(30):
        a, b = (random_case(rng, 3, ["i0", "i1", "s0", "s1"], positive) for _ in range(2))
        if ranges.known_less(a.expr, b.expr):
            bad = [env for env in envs if not a.value(env) < b.value(env)]
            assert not bad, f"{a.text} < {b.text} is claimed, and wrong at {bad[0]}"
        if ranges.known_divides(b.expr, a.expr):
            bad = [env for env in envs if b.value(env) != 0 and a.value(env) % b.value(env) != 0]
            assert not bad, f"{b.text} divides {a.text} is claimed, and wrong at {bad[0]}"


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_polynomials_are_canonical(seed: int) -> None:
    """Two spellings of one polynomial are one tree: we compare equal exactly where sympy expands the difference to
    zero."""
    rng = random.Random(3000 + seed)
    names = ["i0", "i1", "s0", "s1"]
    symbols = {n: sympy.Symbol(n, integer=True) for n in names}
    forms = ["({} + {})", "({} - {})", "({} * {})"]

    def polynomial(depth: int) -> Case:
        if depth == 0:
            return symbol(rng.choice(names)) if rng.random() < 0.7 else constant(rng.randint(-3, 3))
        return combine(rng.choice(forms), polynomial(depth - 1), polynomial(depth - 1))

    for _ in range(20):
        a, b = polynomial(3), polynomial(3)
        same = sympy.expand(sympy.sympify(a.text, symbols) - sympy.sympify(b.text, symbols)) == 0
        assert (a.expr == b.expr) == same
        shown = sympy.sympify(str(a.expr), symbols)
        assert sympy.expand(shown - sympy.sympify(a.text, symbols)) == 0


REDUCES = [
    # A pair is what a chain of views makes, and what it must become.
    ("(i0*s1 + i1) // s1", "i0"),
    ("(i0*s1 + i1) % s1", "i1"),
    ("((i0*s1 + i1) // s1)*s1 + (i0*s1 + i1) % s1", "i0*s1 + i1"),
    ("(i2 // s1)*s1 + i2 % s1", "i2"),
    ("(i2 // s1) % s0", "i2 // s1"),
    ("(i2 // s1) // s0", "0"),
    ("((i2 // 8) % 8)*8 + i2 % 8", "i2 % 64"),
    ("(i3 // 12)*12 + ((i3 // 4) % 3)*4 + i3 % 4", "i3"),
    ("(i3*8 + i4) // 4", "i3*2 + i4 // 4"),
    ("(i3*12 + i4) % 4", "i4 % 4"),
    ("(i3*8 + i4) // 16", "i3 // 2"),
    ("((i3*8 + i4) // 8) % 24", "i3"),
    ("(i3 % 12) // 4", "(i3 // 4) % 3"),
    ("max(i3, 0)", "i3"),
    ("min(i3, 23)", "i3"),
    ("min(i0, s0)", "i0"),
    ("(s0*i1 + i0) // (s0*s1)", "0"),
]


@pytest.mark.parametrize(("text", "want"), REDUCES, ids=[t for t, _ in REDUCES])
def test_reduces(text: str, want: str) -> None:
    """The ranges are i0 < s0, i1 < s1, i2 < s0*s1, i3 < 24 and i4 < 8."""
    ranges = ir.Ranges()
    for name in ("s0", "s1"):
        ranges.set(name, ir.Range(0, 2**40))
    for name, extent in (("i0", "s0"), ("i1", "s1"), ("i2", "s0*s1"), ("i3", "24"), ("i4", "8")):
        ranges.set_extent(name, ir.IndexExpr.parse(extent))
    expected = ir.IndexExpr.parse(want)
    assert str(ir.simplify(ir.IndexExpr.parse(text), ranges)) == str(expected)
    assert ir.simplify(expected, ranges) == expected
