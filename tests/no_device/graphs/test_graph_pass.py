# tests/no_device/graphs/test_graph_pass.py: every kind of effect is recognised, and no pass over an FX graph can lose one.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ocl_compile.compile.joint_graph import keep_overwritten
from torch_ocl_compile.errors import InternalError
from torch_ocl_compile.fx import attention_ops  # noqa: F401  (defines torch.ops.ocl)
from torch_ocl_compile.fx.effects import Effect, effect_of, written
from torch_ocl_compile.fx.graph_pass import Changes, compare_copy, drop_dead_code, graph_pass

aten = torch.ops.aten
W, R, C, X = Effect.WRITE, Effect.RANDOM, Effect.CHECK, Effect.OTHER


def foreign(x: torch.Tensor) -> torch.Tensor:
    return x + 1


torch.compiler.allow_in_graph(foreign)


def inplace_operator(x: torch.Tensor) -> None:
    x += 1


def subtract_in_place(x: torch.Tensor) -> None:
    x -= x.sum()


def matmul_in_place(x: torch.Tensor) -> None:
    x @= x.clone()


def setitem(x: torch.Tensor) -> None:
    x[0] = 1


def set_data(x: torch.Tensor) -> None:
    x.data = x + 1


def no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x + 1


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu"):
        return x @ x


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))


def statistics(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, x[0], x[1], training=True)


# The effects of functions in Dynamo's graph, in order. x is a 4 x 4 matrix.
KINDS: list[tuple[Callable[[torch.Tensor], Any], list[Effect]]] = [
    (lambda x: x.add_(1), [W]),
    (lambda x: x.clamp_(min=0), [W]),
    (lambda x: x.transpose(0, 1).copy_(x + 1), [W]),
    (lambda x: torch.relu_(x), [W]),
    (lambda x: F.relu(x, inplace=True), [W]),
    (lambda x: F.relu(x, True), [W]),
    (lambda x: F.hardtanh(x, -1, 1, True), [W]),
    (lambda x: torch.add(x, 1, out=x), [W]),
    (lambda x: torch.max(x + 1, 0, out=(x[0], torch.empty(4, dtype=torch.int64))), [W]),
    (lambda x: torch._foreach_add_([x, x[0]], 1), [W]),
    (lambda x: aten.add_.Tensor(x, x), [W]),
    (lambda x: aten.add_(x, x), [W]),
    (lambda x: aten.add.out(x, x, out=x), [W]),
    (lambda x: torch.index_put_(x, (torch.tensor([0]),), torch.tensor(1.0)), [W]),
    (lambda x: F.embedding(torch.tensor([0]), x, max_norm=1.0), [W]),
    (inplace_operator, [W]),
    (subtract_in_place, [W]),
    (matmul_in_place, [W]),
    (setitem, [W]),
    (set_data, [X, W, X, X]),
    (statistics, [W]),
    (lambda x: torch.rand(3), [R]),
    (lambda x: torch.randn_like(x), [R]),
    (lambda x: torch.randperm(3), [R]),
    (lambda x: torch.bernoulli(x), [R]),
    (lambda x: x.bernoulli(), [R]),
    (lambda x: x.multinomial(1), [R]),
    (lambda x: torch.normal(x, 1.0), [R]),
    (lambda x: F.dropout(x, 0.5), [R]),
    (lambda x: F.dropout1d(x, 0.5), [R]),
    (lambda x: F.rrelu(x, training=True), [R]),
    (lambda x: torch.dropout(x, 0.5, True), [R]),
    (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), [R]),
    (lambda x: aten.native_dropout(x, 0.5, True), [R]),
    (lambda x: torch.ops.ocl.attention(x, x, x, None, None, p=0.5), [R]),
    (lambda x: x.normal_(), [W]),
    (lambda x: torch._assert_async(x.sum() > 0), [C]),
    (lambda x: foreign(x), [X]),
    (branches, [X]),
    (no_grad, [X, X]),
    (autocast, [X, X]),
    # Functions without effects
    (lambda x: x + 1, []),
    (lambda x: (x.add(1).mul(2), x[0], x.T, x @ x, -x, ~(x > 0) & (x < 1) | (x > 2), abs(x)), []),
    (lambda x: F.dropout(x, 0.5, training=False), []),
    (lambda x: F.dropout(x, 0.0), []),
    (lambda x: F.scaled_dot_product_attention(x, x, x), []),
    (lambda x: F.relu(x), []),
    (lambda x: F.softmax(x, -1).masked_fill(x > 0, 0.0).to(torch.float64).view(16), []),
    (lambda x: F.batch_norm(x, x[0], x[1], training=False), []),
    (lambda x: F.layer_norm(F.gelu(F.linear(x, x)), (4,)), []),
    (lambda x: (torch.full((3,), 1.0), torch.zeros(3), torch.arange(4), torch.tensor(1.0), torch.cat([x, x])), []),
    (lambda x: aten.add(x, x) + aten.add.Tensor(x, x), []),
    (lambda x: torch.ops.ocl.attention(x, x, x, None, None), []),
]


def dynamo_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    found: list[GraphModule] = []

    def keep(gm: GraphModule, _: Any) -> Any:
        found.append(gm)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep, dynamic=False)(*inputs)
    assert len(found) == 1
    return found[0]


def effects(gm: GraphModule) -> list[Effect]:
    return [e for e in map(effect_of, gm.graph.nodes) if e is not None]


@pytest.mark.parametrize(("function", "kinds"), KINDS)
def test_kinds(function: Callable[[torch.Tensor], Any], kinds: list[Effect]) -> None:
    gm = dynamo_graph(function, torch.rand(4, 4))
    assert effects(gm) == kinds, gm.code
    for node in gm.graph.nodes:
        assert (effect_of(node) is W) == bool(written(node))


def test_aten_graphs() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        aten._assert_async.msg(x.sum() > 0, "positive")
        y.copy_(x)
        torch.ops.ocl.rng_reserve(x.device, 1)
        return aten.bernoulli.p(x, 0.5) + aten.native_dropout(x, 0.5, True)[0] + x.sin()

    assert effects(make_fx(function)(torch.rand(4), torch.rand(4))) == [C, W, R, R, R]


def test_counting_is_no_write() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        n += 1
        return x * n

    found: list[GraphModule] = []
    torch._dynamo.reset()
    torch.compile(function, backend=lambda gm, _: found.append(gm) or gm.forward, dynamic=True)(torch.rand(4), 3)
    assert effects(found[0]) == []


def add_in_place(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    count.add_(1)
    return x * 2


def targets(gm: GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op.startswith("call")]


@graph_pass
def erases_all_that_is_unread(gm: GraphModule, changes: Changes) -> None:
    gm.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))


@graph_pass
def says_that_it_erases(gm: GraphModule, changes: Changes) -> None:
    for node in reversed(list(gm.graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output"):
            changes.erase(node)


LOSSES = [(f, k) for f, k in KINDS if k and k[0] is not X and "x" in f.__code__.co_varnames]


@pytest.mark.parametrize(("function", "kinds"), LOSSES)
@pytest.mark.parametrize("faulty", [erases_all_that_is_unread, says_that_it_erases])
def test_a_lost_effect_is_an_error(function: Any, kinds: list[Effect], faulty: Any) -> None:
    def beside(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        function(x)
        return y

    gm = dynamo_graph(beside, torch.rand(4, 4))
    with pytest.raises(InternalError, match=faulty.__name__):
        faulty(gm)


def test_the_message_names_pass_node_and_line() -> None:
    gm = dynamo_graph(add_in_place, torch.rand(4), torch.zeros(1))
    with pytest.raises(InternalError, match=r"says_that_it_erases lost a node that writes to a tensor") as error:
        says_that_it_erases(gm)
    assert "add_(l_count_: float32[1] on cpu, 1)" in str(error.value)
    assert "test_graph_pass.py" in str(error.value) and "count.add_(1)" in str(error.value)


def test_a_pure_node_may_not_vanish_either() -> None:
    gm = dynamo_graph(lambda x: (x + 1, x * 2), torch.rand(4))

    @graph_pass
    def erases_others(gm: GraphModule, changes: Changes) -> None:
        output = next(iter(reversed(gm.graph.nodes)))
        lost: Node = output.args[0][1]
        output.args = ((output.args[0][0],),)
        gm.graph.erase_node(lost)

    with pytest.raises(InternalError, match="erased a node that it did not replace"):
        erases_others(gm)


def swapped(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    x.mul_(2)
    return x + 0


def test_order_of_writes() -> None:
    @graph_pass
    def swaps(gm: GraphModule, changes: Changes) -> None:
        first, second = (n for n in gm.graph.nodes if effect_of(n) is W)
        second.append(first)

    with pytest.raises(InternalError, match="changed the order of effects"):
        swaps(dynamo_graph(swapped, torch.rand(4)))


def test_target_of_a_write() -> None:
    @graph_pass
    def copies_first(gm: GraphModule, changes: Changes) -> None:
        write = next(n for n in gm.graph.nodes if effect_of(n) is W)
        with gm.graph.inserting_before(write):
            copy = gm.graph.call_method("clone", (write.args[0],))
        write.replace_input_with(write.args[0], copy)

    with pytest.raises(InternalError, match="made a node write to something else"):
        copies_first(dynamo_graph(add_in_place, torch.rand(4), torch.zeros(1)))


def test_two_writes_to_one_input_both_stay() -> None:
    """keep_overwritten gives readers a copy of the old contents. A second copy_ does not count as a reader."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.sin()
        aten.copy_.default(x, y)
        aten.copy_.default(x, z)
        return z

    gm = make_fx(function)(torch.rand(4), torch.rand(4))
    keep_overwritten(gm)
    x, y = torch.rand(4), torch.rand(4)
    sine = x.sin()
    gm(x, y)
    torch.testing.assert_close(x, sine)


def test_a_new_effect_is_declared() -> None:
    @graph_pass
    def draws(gm: GraphModule, changes: Changes) -> None:
        with gm.graph.inserting_before(next(iter(gm.graph.nodes)).next):
            gm.graph.call_function(torch.rand, (3,))

    with pytest.raises(InternalError, match="added a node with an effect"):
        draws(dynamo_graph(add_in_place, torch.rand(4), torch.zeros(1)))


def test_a_moved_effect_is_none_lost() -> None:
    @graph_pass
    def adds_twice(gm: GraphModule, changes: Changes) -> None:
        write = next(n for n in gm.graph.nodes if effect_of(n) is W)
        with gm.graph.inserting_before(write):
            made = gm.graph.call_function(torch.add, write.args, {"out": write.args[0]})
        changes.move_effect(write, made)
        changes.replace(write, made)

    gm = dynamo_graph(add_in_place, torch.rand(4), torch.zeros(1))
    adds_twice(gm)
    assert [e for e in effects(gm)] == [W]
    count = torch.zeros(1)
    gm(*(count if "count" in n.name else torch.rand(4) for n in gm.graph.nodes if n.op == "placeholder"))
    assert count.item() == 1


def test_dead_code() -> None:
    def function(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        x.cos() + 1
        count.add_(1)
        F.dropout(x)
        return x.sin()

    gm = dynamo_graph(function, torch.rand(4), torch.zeros(1))
    drop_dead_code(gm)
    assert [t for t in targets(gm) if "dropout" not in t] == ["add_", "sin"] and len(targets(gm)) == 3


def test_copies() -> None:
    """compare_copy() compares a graph with copies of its nodes, such as host_part.extract makes."""
    gm = dynamo_graph(swapped, torch.rand(4))
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    compare_copy("extract", gm.graph.nodes, copies)
    first, second = (n for n in gm.graph.nodes if effect_of(n) is W)
    with pytest.raises(InternalError, match="extract lost a node that writes"):
        compare_copy("extract", gm.graph.nodes, {n: c for n, c in copies.items() if n is not second})
    with pytest.raises(InternalError, match="changed the order"):
        compare_copy("extract", gm.graph.nodes, {**copies, first: copies[second], second: copies[first]})
