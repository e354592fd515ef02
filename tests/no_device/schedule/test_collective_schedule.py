# tests/no_device/schedule/test_collective_schedule.py: the order of kernels, starts of collectives and waits in a schedule.
from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.no_device.scheduling import CAPS, collecting, launch_order, render
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile.stored_plan import _Pickler
from torch_ocl_compile.errors import InternalError
from torch_ocl_compile.reference.interpreter import run_graph

N, ONE = ir.IndexExpr(100_000), ir.IndexExpr(1)


class Builder:
    """Builds graphs of vectors. Call 2n starts a collective, and call 2n + 1 waits for it."""

    def __init__(self) -> None:
        self.b = ir.Builder()
        self.calls = 0

    def input(self, size: ir.IndexExpr = N) -> Any:
        return self.b.input(ir.DType.kF32, [size], [ONE], False, False)

    def start(self, x: Any) -> int:
        self.b.call(self.calls, [x], [], [])
        self.calls += 2
        return self.calls - 2

    def wait(self, call: int, size: ir.IndexExpr = N) -> Any:
        return self.b.call(call + 1, [], [(ir.DType.kF32, [size])], [[ONE]], call)[0]

    def sum(self, x: Any) -> Any:
        return self.b.reduce("sum", x, [0], False)[0]


def order(b: Builder, *outputs: Any, caps: str = "cpu16") -> list[str]:
    """Returns the launches: "start 0", "wait 0", and for kernels the kinds of their nodes."""
    for value in outputs:
        b.b.output(value, [ONE] * len(value.sizes))
    graph = b.b.finish()
    assert str(ir.parse_graph(str(graph))) == str(graph)
    rendered = render(graph, caps)
    nodes = rendered["graph"].nodes

    def title(group: list[int]) -> str:
        first = nodes[group[0]]
        if first.kind != "call":
            return " ".join(nodes[n].kind for n in group)
        return f"start {first.call}" if first.waits_for < 0 else f"wait {first.waits_for}"

    return [title(group) for group in rendered["groups"]]


@pytest.mark.parametrize("caps", CAPS)
def test_kernels_run_between_start_and_wait(caps: str) -> None:
    """In the graph, the wait follows the start directly, as with functional collectives in a compiled function."""
    b = Builder()
    x, w = b.input(), b.input()
    total = b.wait(b.start(x))
    other = b.b.op("exp", [w])
    found = order(b, b.b.op("mul", [total, total]), other, caps=caps)
    assert found[0] == "start 0" and found[-2:] == ["wait 0", "map"] and "map" in found[1:-2], found


def test_a_start_moves_before_work_that_it_does_not_need() -> None:
    b = Builder()
    x, w = b.input(), b.input()
    other = b.sum(b.b.op("exp", [w]))
    found = order(b, b.b.op("add", [b.wait(b.start(x)), other]))
    assert found[0] == "start 0" and found[-2] == "wait 0" and "reduce" in " ".join(found[1:-2]), found


def test_starts_keep_their_order_and_waits_need_not() -> None:
    """The second collective could start first, because it reads an input. But all ranks must keep one order of
    starts."""
    b = Builder()
    x, y = b.input(), b.input()
    first = b.start(b.b.op("exp", [x]))
    late = b.wait(first)
    second = b.wait(b.start(y))
    found = order(b, b.b.op("neg", [second]), b.b.op("neg", [late]))
    assert found == ["map", "start 0", "start 2", "wait 2", "map", "wait 0", "map"], found


def test_large_results_are_not_begun_early() -> None:
    large = ir.IndexExpr(40 << 20)
    b = Builder()
    x, w = b.input(large), b.input()
    other = b.b.op("exp", [w])
    found = order(b, b.b.op("neg", [b.wait(b.start(x), large)]), other)
    assert found.index("start 0") > 0, found


def test_a_value_that_only_the_waiting_kernel_reads_is_computed_there() -> None:
    b = Builder()
    x, w = b.input(), b.input()
    found = order(b, b.b.op("add", [b.wait(b.start(x)), b.b.op("exp", [w])]))
    assert found[:2] == ["start 0", "wait 0"] and len(found) == 3, found


def test_work_moves_before_a_wait_only_if_there_is_memory() -> None:
    """In program order, the first product is freed before the second is computed. If the second one is computed before
    the wait, both need memory at the same time.
    """

    def found(rows: int) -> list[str]:
        b = Builder()
        m, k = ir.IndexExpr(rows), ir.IndexExpr(8)

        def product() -> Any:
            left = b.b.input(ir.DType.kF32, [ONE, m, k], [m * k, k, ONE], False, False)
            right = b.b.input(ir.DType.kF32, [ONE, k, m], [k * m, m, ONE], False, False)
            return b.b.contract(left, right, ir.DType.kF32)

        first = product()
        total = b.wait(b.start(b.input(ONE)), ONE)
        scaled = b.b.op("mul", [first, b.b.expand(b.b.reshape(total, [ONE, ONE, ONE]), [ONE, m, m])])
        result = b.b.reduce("max", scaled, [0, 1, 2], False)[0]
        return order(b, result, b.b.reduce("max", product(), [0, 1, 2], False)[0])

    assert found(100).index("wait 0") > found(100).index("contract", 2)
    assert found(6400).index("wait 0") < found(6400).index("contract", 2)


def test_a_result_that_nothing_reads_is_waited_for() -> None:
    b = Builder()
    x = b.input()
    b.wait(b.start(x))
    assert order(b, b.b.op("exp", [x])) == ["start 0", "map", "wait 0"]


def test_small_independent_kernels_do_not_join_the_batch_of_those_that_wait() -> None:
    small = ir.IndexExpr(10)
    b = Builder()
    x, w = b.input(small), b.input(ir.IndexExpr(20))
    total = b.wait(b.start(x), small)
    found = order(b, b.b.op("neg", [total]), b.b.op("neg", [w]), caps="gpu")
    assert found == ["start 0", "map", "wait 0", "map"], found


def test_a_wait_for_a_later_call_is_refused() -> None:
    b = Builder()
    total = b.wait(0)
    b.start(total)
    b.b.output(total, [ONE])
    with pytest.raises(InternalError, match="a call waits only for an earlier call"):
        render(b.b.finish(), "cpu16")


@pytest.fixture
def fake_group() -> Iterator[None]:
    """A process group with two ranks, of which only rank 0 exists. Its collectives do not change their tensors."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def seen_calls(function: Callable[..., Any], *args: Any) -> Any:
    seen: list[Any] = []
    with torch.no_grad():
        collecting(function, seen, fullgraph=True)(*args)
    (graph,) = seen
    return graph


def waits_of(graph: ir.Graph) -> list[int]:
    return [node.waits_for for node in graph.nodes if node.kind == "call"]


@pytest.mark.usefixtures("fake_group")
def test_functional_collectives_become_two_calls() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        total = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
        parts = collectives.all_reduce_coalesced([x, w], "sum", dist.group.WORLD)
        return total + 1, w.exp(), parts[0] - 1, parts[1] - 1, collectives.wait_tensor(total) + 2

    x, w = torch.rand(1000), torch.rand(1000)
    seen = seen_calls(function, x, w)
    assert waits_of(seen.graph) == [-1, 0, -1, 2, 2]
    scheduled = render(seen.graph, "cpu16")
    # After pickling, each wait must still belong to the call that starts its collective.
    file = io.BytesIO()
    _Pickler(file).dump(seen.calls)
    for calls in (seen.calls, pickle.loads(file.getvalue())):
        for got in run_graph(scheduled["graph"], [x, w], calls, launch_order(scheduled)), function(x, w):
            torch.testing.assert_close(list(got), [x * 2 + 1, w.exp(), x - 1, w - 1, x * 2 + 2])


@pytest.mark.usefixtures("fake_group")
def test_a_result_that_is_used_without_a_wait_is_waited_for_at_once() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name) + 1

    seen = seen_calls(function, torch.rand(10))
    assert waits_of(seen.graph) == [-1] and seen.graph.nodes[0].outputs
