# tests/no_device/graphs/test_op_rows.py: each row of ops.def, and of the lowering's tables, is reached from a traced graph.
"""An op that is decomposed never reaches its row, and other tests would pass nevertheless.

To keep an op whole, add it to WHOLE in torch_ocl_compile/decompositions/table.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.op_row import make
from torch_ocl_compile._C import ir
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.dtypes import IR_DTYPES
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.overloads import overload
from torch_ocl_compile.lowering.elementwise import pointwise, special
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.reference.interpreter import run_graph

aten = torch.ops.aten
F = torch.nn.functional

# Overload -> row of ops.def, for all tables of the lowering.
TABLES = {
    **pointwise.ARITHMETIC,
    **pointwise.COMPARISONS,
    **pointwise.TESTS,
    **pointwise.LOGICAL,
    **special.UNARY,
    **{f"{packet}.{which}": row for packet, row in special.BINARY.items() for which in special.OVERLOADS},
}
# Overloads that become other ops before the lowering -> reason.
DECOMPOSED = {
    "aten.fix.default": "becomes aten.trunc, which has the same row",
    "aten.sgn.default": "becomes aten.sign, which has the same row",
}


def numbers(*shape: int) -> torch.Tensor:
    return make(*shape or (3, 5), low=0.5)


def state() -> torch.Tensor:
    return torch.tensor([1, 2])


def draw(op: Any, *more: int) -> Callable[[torch.Tensor], Any]:
    return lambda state: op(state, [4], 0, torch.int64 if more else torch.float32, *more)


def unfused_attention(q: torch.Tensor, state: torch.Tensor) -> Any:
    return torch.ops.ocl.attention(q, q, q, None, state, p=0.5)


# Rows of ops.def that are not in TABLES -> a function whose graph contains the row, and its inputs.
FORMULAS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "add": (torch.add, [numbers(), numbers()]),
    "floordiv": (torch.floor_divide, [numbers(), numbers()]),
    "fma": (lambda x, y, z: torch.ops.prims.fma.default(x, y, z), [numbers(), numbers(), numbers()]),
    "frexp_exponent": (torch.frexp, [numbers()]),
    "frexp_mantissa": (torch.frexp, [numbers()]),
    "gelu_erf": (F.gelu, [numbers()]),
    "gelu_erf_slope": (aten.gelu_backward.default, [numbers(), numbers()]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), [numbers()]),
    "gelu_tanh_slope": (partial(aten.gelu_backward.default, approximate="tanh"), [numbers(), numbers()]),
    "ldexp": (torch.ldexp, [numbers(), torch.arange(-7, 8).view(3, 5)]),
    "order_key": (torch.sort, [numbers()]),
    "philox_bits": (draw(torch.ops.ocl.randint, 0, 9), [state()]),
    "philox_lane": (unfused_attention, [numbers(1, 2, 5, 8).double(), state()]),
    "philox_normal": (draw(torch.ops.ocl.normal), [state()]),
    "silu": (aten.silu.default, [numbers()]),
    "sub": (torch.sub, [numbers(), numbers()]),
    "softplus": (aten.mish.default, [numbers()]),
    "trigamma": (lambda x: torch.polygamma(1, x), [numbers()]),
    "truncdiv": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), [numbers(), numbers()]),
    "where": (lambda x: torch.where(x > 1, x, 0), [numbers()]),
}


def traced(function: Callable[..., Any], *inputs: Any) -> torch.fx.GraphModule:
    return make_fx(torch.func.functionalize(function), ocl_decomp_table(), tracing_mode="fake")(*inputs)


def ops_of(gm: torch.fx.GraphModule) -> set[str]:
    """Returns the scalar ops of the lowered graph."""
    return {op[0] for node in lower_module(gm).graph.nodes for op in getattr(node, "ops", ())}


def arguments(target: Any) -> list[Any]:
    """Returns a tensor or a number for each argument that the schema requires."""
    dtype = torch.int64 if any(word in str(target) for word in ("bitwise", "shift", "gcd")) else torch.float32
    wanted = [a for a in target._schema.arguments if not a.has_default_value()]
    return [make(3, 5, dtype=dtype) if str(a.type) == "Tensor" else 2 for a in wanted]


@pytest.mark.parametrize("name", [name for name in TABLES if overload(name) is not None])
def test_overload_is_lowered_by_its_row(name: str) -> None:
    target = overload(name)
    gm = traced(target, *arguments(target))
    is_kept = target in {node.target for node in gm.graph.nodes}
    assert is_kept == (name not in DECOMPOSED), f"{gm.graph}"
    if is_kept:
        assert TABLES[name] in ops_of(gm)


@pytest.mark.parametrize("row", sorted(FORMULAS))
def test_row_is_part_of_a_formula(row: str) -> None:
    if row == "fma" and overload("prims.fma.default") is None:
        pytest.skip("this torch has no prims.fma")
    function, inputs = FORMULAS[row]
    assert row in ops_of(traced(function, *inputs))


def test_every_row_has_a_case() -> None:
    by_table = {row for name, row in TABLES.items() if overload(name) is not None and name not in DECOMPOSED}
    rows = {row.name for row in ir.ops()}
    assert rows == by_table | FORMULAS.keys(), "a row of ops.def that no case reaches, or a case without a row"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.int64, torch.bool], ids=str)
def test_constants_fold_to_what_the_row_says(dtype: torch.dtype) -> None:
    """Computes each op on constants: by the interpreter, before and after simplification."""
    numbers = [0.0, -0.0, 1.5, -2.25, math.inf, math.nan] if dtype.is_floating_point else [0, 1, -1, 2, 5, -128]
    folded = set()
    for row in ir.ops():
        for values in itertools.product(numbers, repeat=row.arity):
            builder = ir.Builder()
            try:
                result = builder.op(row.name, [builder.constant(v, IR_DTYPES[dtype], [1]) for v in values])
            except UnsupportedError:
                break
            builder.output(result, [])
            graph = builder.finish()
            before = run_graph(graph, [])
            graph.simplify()
            if row.name not in {name for node in graph.nodes for name, *_ in node.ops}:
                folded.add(row.name)
                torch.testing.assert_close(run_graph(graph, []), before, rtol=0, atol=0, equal_nan=True)
    assert {"add", "maximum", "lt", "logical_not", "relu"} <= folded
