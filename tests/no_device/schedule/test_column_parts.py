# tests/no_device/schedule/test_column_parts.py: products with many columns are computed in parts, which need little memory.
"""Graphs are scheduled for the capabilities of an H200 or of a smaller GPU like it. No device is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.no_device.scheduling import CAPS, launch_order, traced
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.reference.interpreter import run_graph

MIB = 1 << 20


def planned(function: Callable[..., Tensor], *args: Tensor, **caps: Any) -> dict[str, Any]:
    """The plan of the function's graph. Arguments with other sizes than the first are weights. Nothing is computed."""
    graphs: list[ir.Graph] = []

    def compiler(kind: str, gm: torch.fx.GraphModule, _: Any) -> Any:
        sizes = [node.meta["val"].shape for node in gm.graph.nodes if node.op == "placeholder"]
        weights = [i for i, size in enumerate(sizes) if size != args[0].shape]
        graphs.append(lower_module(gm, parameters=weights).graph)
        results = next(node for node in gm.graph.nodes if node.op == "output").args[0]
        return lambda *_: [torch.empty(node.meta["val"].shape, device="meta") for node in results]

    torch._dynamo.reset()
    torch.compile(function, backend=lambda gm, inputs: traced(gm, inputs, compiler), dynamic=False)(*args)  # type: ignore[no-untyped-call]
    rendered: dict[str, Any] = _C.exec.render(graphs[0], CAPS["warpgroup"] | caps, keeps=True)
    return rendered


def memory(plan: dict[str, Any]) -> tuple[int, int]:
    """The bytes that are kept between calls, and the most bytes of other intermediate results at a time."""
    kept = plan["kept"]
    spans = [
        tuple(map(int, m.groups()))
        for m in re.finditer(r"arena \d+, groups (\d+) to (\d+), (\d+) bytes", plan["schedule"])
    ]
    most = max(sum(size for a, b, size in spans if a <= g <= b and not kept[a]) for g in range(len(kept)))
    return sum(size for first, _, size in spans if kept[first]), most


def products(plan: dict[str, Any]) -> int:
    return sum(kernel["kind"] == "gemm" for kernel in plan["kernels"])


def head(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


# The last product of GPT-2 at 8 x 512.
HIDDEN, VOCABULARY = torch.empty(4096, 768, device="meta"), torch.empty(50257, 768, device="meta")


def test_one_part_is_packed_at_a_time() -> None:
    plan = planned(head, HIDDEN, VOCABULARY)
    assert products(plan) == 6 and len(plan["kernels"]) == 13
    kept, most = memory(plan)
    assert len({kernel["name"] for kernel in plan["kernels"]}) == 2  # The parts share a text.
    assert kept == 0
    # Packed, the weight has 150 MiB and the rows have 12.
    assert 36 * MIB < most < 38 * MIB


def test_a_weight_of_few_rows_stays_packed() -> None:
    """To pack it takes longer than the product."""
    kept, most = memory(planned(head, HIDDEN[:256], VOCABULARY))
    assert kept > 147 * MIB and most < MIB


def test_an_epilogue_keeps_the_product_whole() -> None:
    assert products(planned(lambda x, w: torch.relu(x @ w.t()), HIDDEN, VOCABULARY)) == 1


@pytest.mark.parametrize("rows, columns", [(256, 50257), (4096, 8448)])
def test_parts_have_many_tiles(rows: int, columns: int) -> None:
    assert products(planned(head, HIDDEN[:rows], VOCABULARY[:columns])) == 1


@pytest.mark.parametrize("transposed", [False, True])
def test_values(transposed: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(100, 4096), torch.randn(6211, 4096)
    if transposed:
        weight = weight.t().contiguous().t()
    plan = planned(head, x.to("meta"), weight.to("meta"), units=1)
    assert products(plan) == 4
    graph = plan["graph"]
    inputs = [x if str(graph.buffers[i].sizes[0]) == str(len(x)) else weight for i in graph.inputs]
    # The interpreter computes products from operands as they are.
    order = [node for node in launch_order(plan) if graph.nodes[node].kind != "pack"]
    (result,) = run_graph(graph, inputs, (), order)
    torch.testing.assert_close(result, x @ weight.t(), rtol=1e-4, atol=1e-3)
