# torch_ocl_compile/lowering/graphs/size_numbers.py: floats computed from sizes, as values that kernels compute.
"""A compiled function computes such a float on the host, in double precision, and passes it to the kernels. A package has no host
code, so its kernels compute it themselves: `1 / (n - 1)` becomes ops on the size symbol of `n`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import ToFloat

from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.core.symbolic import Symbols, is_named


def number_from_sizes(expr: Any, symbols: Symbols, dtype: ir.DType) -> ir.Value:
    """Returns a float expression of sizes as a value of rank 0. UnsupportedError if it needs a function that no kernel has."""
    builder = symbols.builder

    def value(e: Any) -> ir.Value:
        if e.is_number:
            return builder.constant(float(e), dtype)
        if e.is_integer:
            return builder.iota([], symbols.translate(e), dtype)
        rule = next((rule for kind, rule in _RULES if isinstance(e, kind)), None)
        if rule is None:
            raise UnsupportedError(f"the number {expr} is computed from sizes, and {type(e).__name__} has no kernel")
        return rule(builder, [value(a) for a in e.args])

    return value(expr)


def _op(name: str) -> Callable[[ir.Builder, list[ir.Value]], ir.Value]:
    return lambda builder, args: functools.reduce(lambda a, b: builder.op(name, [a, b]), args)


def _one(name: str) -> Callable[[ir.Builder, list[ir.Value]], ir.Value]:
    return lambda builder, args: builder.op(name, args)


_RULES: list[tuple[Any, Callable[[ir.Builder, list[ir.Value]], ir.Value]]] = [
    (sympy.Add, _op("add")),
    (sympy.Mul, _op("mul")),
    (is_named("IntTrueDiv", "FloatTrueDiv"), _op("div")),
    ((sympy.Pow, *is_named("FloatPow", "PowByNatural")), _op("pow")),
    (ToFloat, lambda builder, args: args[0]),
    ((*is_named("Max"), sympy.Max), _op("maximum")),
    ((*is_named("Min"), sympy.Min), _op("minimum")),
    *((is_named(f"OpaqueUnaryFn_{name}"), _one(name)) for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tanh")),
]
