# tests/no_device/graphs/test_lowering.py: aten to IR without a device: rows of op_table, interpreted and compared with eager mode.
"""The graphs come from AOTAutograd on CPU tensors, forward and backward. The interpreter runs the ir.Graph, never aten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.utils._pytree import tree_flatten

from tests.op_cases import cases, results_of
from tests.op_row import Op, same, widened
from tests.op_table import INTERPRETED
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import attention_pattern
from torch_ocl_compile.compile.call import plan_call
from torch_ocl_compile.compile.joint_graph import ocl_partition
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.reference.interpreter import ReferencePlan

Compiled = Callable[..., Any]


def reference(gm: torch.fx.GraphModule, example_inputs: Any, *, graphs: list[ir.Graph] | None = None) -> Any:
    """A torch.compile backend that lowers graphs and runs them in the interpreter. Appends the graphs to `graphs`."""

    def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        lowered = lower_module(gm)
        lowered.graph.verify()
        if graphs is not None:
            graphs.append(lowered.graph)
        return plan_call(lowered, ReferencePlan(lowered.graph, lowered.calls))

    attention_pattern.rewrite(gm, "cpu")
    return aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=ocl_decomp_table(),
        partition_fn=ocl_partition,
        keep_inference_input_mutations=True,
    )(gm, example_inputs)


def compiled(function: Callable[..., Any], graphs: list[ir.Graph] | None = None, **settings: Any) -> Compiled:
    torch._dynamo.reset()
    return torch.compile(function, backend=partial(reference, graphs=graphs), **settings)


def with_gradients(op: Op, sample: tuple[Any, ...]) -> tuple[Any, ...]:
    def leaf(i: int, x: Any) -> Any:
        wanted = isinstance(x, torch.Tensor) and x.is_floating_point() and i not in op.constants
        return x.detach().clone().requires_grad_() if wanted else x

    return tuple(leaf(i, x) for i, x in enumerate(sample))


def leaves_of(sample: tuple[Any, ...]) -> list[torch.Tensor]:
    return [x for x in tree_flatten(sample)[0] if isinstance(x, torch.Tensor) and x.requires_grad]


def gradients(outputs: Any, sample: tuple[Any, ...]) -> list[Any]:
    leaves = leaves_of(sample)
    results = [o for o in tree_flatten(outputs)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    if not leaves or not results:
        return []
    loss = sum((o * (torch.arange(o.numel()).view(o.shape) % 7 + 1)).sum() for o in results)
    return list(torch.autograd.grad(loss, leaves, allow_unused=True))


# Ops whose decomposition gives row-major results, while eager mode keeps the strides of the input. A compiled function
# promises only the strides of the traced graph.
TRACED_OTHERWISE = {"logsigmoid", "pow_base"}


def assert_same_strides(got: Any, want: Any) -> None:
    """Asserts equal strides, except in dimensions with one element, whose stride has no meaning."""
    for x, y in zip(tree_flatten(got)[0], tree_flatten(want)[0], strict=True):
        if isinstance(y, torch.Tensor) and y.numel() > 1:
            assert [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1] == [
                s for s, n in zip(y.stride(), y.shape, strict=True) if n > 1
            ]


def check(op: Op, dtype: torch.dtype, samples: list[tuple[Any, ...]], wants_gradients: bool) -> None:
    """Compiles one function that runs all `samples`, and compares results, strides and gradients with eager mode."""
    ours = [with_gradients(op, sample) for sample in samples] if wants_gradients else samples
    theirs = [widened(sample) for sample in samples]
    theirs = [with_gradients(op, sample) for sample in theirs] if wants_gradients else theirs
    got, want = compiled(results_of, dynamic=False)(op, ours), [op.call(*sample) for sample in theirs]
    for one, other, sample in zip(got, want, samples, strict=True):
        same(one, other, op)
        if dtype is torch.float32 and op.name not in TRACED_OTHERWISE:
            assert_same_strides(one, op.call(*sample))
    if wants_gradients:
        expected = [g for w, s in zip(want, theirs, strict=True) for g in gradients(w, s) or [None] * len(leaves_of(s))]
        same(gradients(got, tuple(ours)) or [None] * len(expected), expected, op)


@pytest.mark.parametrize("op, dtype", cases(INTERPRETED, lambda op, position: 16 if position else 1))
def test_op(op: Op, dtype: torch.dtype, sweep: bool) -> None:
    """A plain run compiles all samples of a row in one graph; `--sweep` compiles each alone, also without gradients."""
    samples, has_gradient = op.samples(dtype), op.gradient and dtype.is_floating_point
    for group in [[sample] for sample in samples] if sweep else [samples]:
        check(op, dtype, group, has_gradient)
        if sweep and has_gradient:
            check(op, dtype, group, wants_gradients=False)


class Net(torch.nn.Module):
    """Convolution, batch norm, pooling, dropout, linear: the parts of a small CNN."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4 * 4 * 4, 10)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return self.linear(self.dropout(x.flatten(1)))


def train(model: torch.nn.Module, function: Compiled, optimizer: Any, step: Compiled, steps: int = 3) -> list[float]:
    losses = []
    for i in range(steps):
        x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(i))
        loss = torch.nn.functional.cross_entropy(function(x), torch.arange(5))
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "sgd_foreach": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adam_foreach": partial(torch.optim.Adam, lr=0.01, foreach=True),
    "adamw_foreach": partial(torch.optim.AdamW, lr=0.01, foreach=True, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(name: str) -> None:
    """Compiles forward, backward and the optimizer's step; buffers and parameters change in place."""

    def run(is_compiled: bool) -> tuple[list[float], Any]:
        torch.manual_seed(0)
        model = Net()
        optimizer = OPTIMIZERS[name](model.parameters())
        function = compiled(model) if is_compiled else model
        step = torch.compile(lambda: optimizer.step(), backend=reference) if is_compiled else optimizer.step
        return train(model, function, optimizer, step), model.state_dict()

    ours, theirs = run(True), run(False)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-3, atol=1e-4)


def test_clip_grad_norm() -> None:
    def clip(*grads: torch.Tensor) -> list[torch.Tensor]:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return list(torch._foreach_mul(grads, (1.0 / (norm + 1e-6)).clamp(max=1.0)))

    grads = [torch.randn(3, 4), torch.randn(5)]
    torch.testing.assert_close(compiled(clip)(*grads), clip(*grads))


def test_dynamic_shapes() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        y = (x @ w).relu()
        n = x.shape[0]
        return y.sum(0) / n, y.reshape(-1)[:n], torch.cat([y, y * n]), y.softmax(0).mean(), torch.arange(n) * 2, n + 1

    graphs: list[ir.Graph] = []
    ours = compiled(function, graphs)
    for n in (4, 7, 9):
        x, w = torch.randn(n, 6), torch.randn(6, 3)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        torch.testing.assert_close(ours(x, w), function(x, w))
    assert any(g.symbols for g in graphs)


def test_dynamic_training() -> None:
    model = Net()
    function = compiled(model, dynamic=True)
    for n in (3, 6):
        x = torch.randn(n, 1, 8, 8)
        model.zero_grad()
        function(x).square().sum().backward()
        ours = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        torch.testing.assert_close(ours, [p.grad for p in model.parameters()], rtol=1e-3, atol=1e-4)


def test_mutation_keeps_old_contents() -> None:
    def swap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        b[1:3] += 1
        return old * 1, a[0]

    ours, theirs = [torch.arange(5.0), torch.ones(5)], [torch.arange(5.0), torch.ones(5)]
    torch.testing.assert_close(compiled(swap)(*ours), swap(*theirs))
    torch.testing.assert_close(ours, theirs)


def test_pooling_keeps_no_input() -> None:
    """Backward of max_pool2d reads int8 offsets of the maxima, and not the input of forward."""
    graphs: list[ir.Graph] = []
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    compiled(lambda x: torch.nn.functional.max_pool2d(x, 2), graphs)(x).sum().backward()
    inputs = [graphs[1].buffers[b] for b in graphs[1].inputs]
    assert sorted(str(b.dtype) for b in inputs) == ["DType.kF32", "DType.kI8"]


def test_forbidden_fallback_names_the_op() -> None:
    from torch_ocl_compile.errors import UnsupportedError

    gm = torch.fx.symbolic_trace(lambda x: torch.ops.aten.linalg_inv_ex.default(x))
    for node in gm.graph.nodes:
        node.meta["val"] = torch.empty(3, 4, device="meta")
    with pytest.raises(UnsupportedError, match=r"aten\.linalg_inv_ex\.default.*\n.*float32\[3, 4\]"):
        lower_module(gm, fallback="error")


def dropping(checkpointed: bool) -> Callable[..., Any]:
    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.exp(), 0.25)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)

    return function


@pytest.mark.parametrize("checkpointed", [False, True])
def test_dropout_draws_the_same_numbers_in_backward(checkpointed: bool) -> None:
    """Only the random state is saved, and the gradient uses the mask of forward."""
    from torch_ocl_compile.lowering.elementwise.random import functionalise

    saved: list[int] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def partition(joint: torch.fx.GraphModule, joint_inputs: Any, **settings: Any) -> Any:
            functionalise(joint, "cpu")
            return ocl_partition(joint, joint_inputs, **settings)

        def compiler(gm: torch.fx.GraphModule, _: Any) -> Any:
            lowered = lower_module(gm)
            saved.append(sum(t.numel() * t.element_size() for t in lowered.traced if isinstance(t, torch.Tensor)))
            return plan_call(lowered, ReferencePlan(lowered.graph, lowered.calls))

        table = ocl_decomp_table()
        return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=table, partition_fn=partition)(
            gm, inputs
        )

    torch._dynamo.reset()
    x = torch.randn(1000, requires_grad=True)
    y = torch.compile(dropping(checkpointed), backend=backend)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    # The derivative of exp(x) * mask / (1 - p) by x is the result itself.
    torch.testing.assert_close(grad, y.detach())
    assert 0.2 < (y == 0).double().mean() < 0.3
    # Forward returns y, x or exp(x), and the random state, but no mask.
    assert saved[0] <= 2 * 4000 + 4000 + 16
