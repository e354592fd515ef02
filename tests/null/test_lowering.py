# tests/null/test_lowering.py: aten -> IR without a device: every row of op_table through the interpreter, against eager.
"""The graphs come from AOTAutograd on CPU tensors, forward and backward; what runs is the ir.Graph, never aten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.utils._pytree import tree_flatten

from tests.op_table import OPS, Op
from torch_ocl_compile._C import ir
from torch_ocl_compile.call import Call
from torch_ocl_compile.decompositions import ocl_decomp_table
from torch_ocl_compile.interpreter import ReferencePlan
from torch_ocl_compile.joint_graph import ocl_partition
from torch_ocl_compile.lowering.graph import lower_module

Compiled = Callable[..., Any]


def reference(gm: torch.fx.GraphModule, example_inputs: Any, *, graphs: list[ir.Graph] | None = None) -> Any:
    """A torch.compile backend that lowers and interprets. `graphs` collects what it lowered."""

    def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        lowered = lower_module(gm)
        lowered.graph.verify()
        if graphs is not None:
            graphs.append(lowered.graph)
        return Call(lowered, ReferencePlan(lowered.graph, lowered.calls)).boxed()

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


def gradients(outputs: Any, sample: tuple[Any, ...]) -> list[Any]:
    leaves = [x for x in tree_flatten(sample)[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    results = [o for o in tree_flatten(outputs)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
    if not leaves or not results:
        return []
    loss = sum((o * (torch.arange(o.numel()).view(o.shape) % 7 + 1)).sum() for o in results)
    return list(torch.autograd.grad(loss, leaves, allow_unused=True))


def cases() -> list[Any]:
    return [pytest.param(op, d, id=f"{op.name}-{str(d).removeprefix('torch.')}") for op in OPS for d in op.dtypes]


@pytest.mark.parametrize("op, dtype", cases())
def test_op(op: Op, dtype: torch.dtype) -> None:
    function = compiled(op.call, dynamic=False)
    for sample in op.samples(dtype):
        expected = op.call(*sample)
        torch.testing.assert_close(function(*sample), expected, rtol=op.rtol, atol=op.atol, equal_nan=True)
        if op.gradient and dtype.is_floating_point:
            ours, theirs = with_gradients(op, sample), with_gradients(op, sample)
            got, want = gradients(function(*ours), ours), gradients(op.call(*theirs), theirs)
            torch.testing.assert_close(got, want, rtol=op.rtol, atol=op.atol, equal_nan=True)


@pytest.mark.parametrize("op", [o for o in OPS if o.dtypes[0] is torch.float32], ids=lambda o: o.name)
def test_output_strides(op: Op) -> None:
    """User-visible results have the strides that eager gives."""
    function = compiled(op.call, dynamic=False)
    for sample in op.samples(torch.float32):
        for got, want in zip(tree_flatten(function(*sample))[0], tree_flatten(op.call(*sample))[0], strict=True):
            if isinstance(want, torch.Tensor) and want.numel() > 1:
                assert [s for s, n in zip(got.stride(), got.shape, strict=True) if n > 1] == [
                    s for s, n in zip(want.stride(), want.shape, strict=True) if n > 1
                ]
