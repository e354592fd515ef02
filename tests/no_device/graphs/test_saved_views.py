# tests/no_device/graphs/test_saved_views.py: saved values that are views of one buffer are results in that buffer, not copies.
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.no_device.scheduling import launch_order, render
from torch_ocl_compile._C import ir
from torch_ocl_compile.reference.interpreter import run_graph

ROWS, COLUMNS = 24, 30
Results = Callable[[ir.Builder, ir.Value], list[ir.Value]]


def slices(b: ir.Builder, y: ir.Value, bounds: list[tuple[int, int]]) -> list[ir.Value]:
    return [b.slice(y, 1, first, last, 1) for first, last in bounds]


# Name -> (the saved values, the number of buffers that hold them, strides and offset of the last)
CASES: dict[str, tuple[Results, int, str]] = {
    "reshaped": (lambda b, y: [b.reshape(y, [4, 6, COLUMNS])], 1, "strides [180, 30, 1] offset 0"),
    "permuted slices": (
        lambda b, y: [
            b.permute(b.reshape(x, [4, 6, 5, 2]), [0, 2, 1, 3]) for x in slices(b, y, [(0, 10), (10, 20), (20, 30)])
        ],
        1,
        "strides [180, 2, 30, 1] offset 20",
    ),
    "halves of the rows": (
        lambda b, y: [b.slice(y, 0, 0, 12, 1), b.slice(y, 0, 12, ROWS, 1)],
        1,
        "strides [30, 1] offset 360",
    ),
    "interleaved": (
        lambda b, y: [b.slice(y, 1, 0, COLUMNS, 2), b.slice(y, 1, 1, COLUMNS, 2)],
        1,
        "strides [30, 2] offset 1",
    ),
    "a third would keep the whole alive": (lambda b, y: slices(b, y, [(10, 20)]), 1, "strides [10, 1] offset 0"),
    "overlapping": (lambda b, y: slices(b, y, [(0, 20), (10, 20)]), 2, "strides [10, 1] offset 0"),
    "beside the whole": (lambda b, y: [y, b.reshape(y, [4, 6, COLUMNS])], 2, "strides [180, 30, 1] offset 0"),
    "twice": (lambda b, y: [b.reshape(y, [4, 6, COLUMNS])] * 2, 2, "strides [180, 30, 1] offset 0"),
    "expanded": (
        lambda b, y: [b.expand(b.reshape(y, [1, ROWS, COLUMNS]), [2, ROWS, COLUMNS])],
        1,
        "strides [720, 30, 1] offset 0",
    ),
    "no window": (lambda b, y: [b.reshape(b.permute(y, [1, 0]), [ROWS * COLUMNS])], 1, "strides [1] offset 0"),
}


@pytest.mark.parametrize("caps", ["cpu16", "warpgroup"])
@pytest.mark.parametrize("name", CASES)
def test_copies(name: str, caps: str) -> None:
    results, buffers, last = CASES[name]
    b = ir.Builder()
    x = b.input(ir.DType.kF32, [ROWS, COLUMNS], [COLUMNS, 1])
    y = b.realize(b.op("exp", [x]))
    for value in results(b, y):
        b.output(value, [])
    graph = b.finish()
    rendered = render(graph, caps)
    scheduled = rendered["graph"]
    lines = [line.split(" ", 2) for line in str(scheduled).splitlines() if line.startswith("result ")]
    assert len({buffer for _, buffer, _ in lines}) == buffers, rendered["schedule"]
    assert lines[-1][2].endswith(last)
    args = [torch.randn(ROWS, COLUMNS) for _ in graph.inputs]
    expected = run_graph(graph, args, [])
    for got, wanted in zip(run_graph(scheduled, args, [], launch_order(rendered)), expected, strict=True):
        torch.testing.assert_close(got, wanted)
