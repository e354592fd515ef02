# tests/no_device/schedule/test_attention_graphs.py: Attention nodes of IR graphs: their text, their verification, and the
# products that they replace.
from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.no_device.graphs.test_lowering import compiled
from torch_ocl_compile._C import ir
from torch_ocl_compile.errors import OclError

Tensor = torch.Tensor


def attentions(function: Any, *tensors: Tensor) -> list[Any]:
    """Returns the Attention nodes of a function's graphs, forward and backward."""
    graphs: list[ir.Graph] = []
    leaves = [x.clone().requires_grad_() for x in tensors]
    out = compiled(function, graphs, dynamic=False)(*leaves)
    out.sum().backward()
    want = [x.clone().requires_grad_() for x in tensors]
    function(*want).sum().backward()
    for a, b in zip(leaves, want, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    for graph in graphs:
        assert ir.parse_graph(graph.str()).str() == graph.str()
    return [n for g in graphs for n in g.nodes if n.kind == "attention"]


def qkv() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 5, 8) for _ in range(3)]


def test_written_out_attention_becomes_attention_nodes() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hidden = torch.ones(5, 5).tril() == 0
        s = (q @ k.transpose(-2, -1) / math.sqrt(8)).masked_fill(hidden, -math.inf)
        return torch.softmax(s, -1) @ v

    nodes = attentions(attend, *qkv())
    assert [n.attention.kind for n in nodes] == [
        ir.AttentionKind.kForward,
        ir.AttentionKind.kQuery,
        ir.AttentionKind.kKeyValue,
    ]
    assert all(n.attention.masked for n in nodes)
    # nan_rows: a row whose keys are all masked gives NaN. Masked scores are constants, so the gradients of such a row
    # are 0, not NaN.
    assert [n.attention.nan_rows for n in nodes] == [True, False, False]
    assert nodes[0].attention.scale == pytest.approx(8**-0.5)


def test_the_result_is_saved_once() -> None:
    """Backward reads it for the attention, and for the weight of the product behind it."""
    graphs: list[ir.Graph] = []

    def project(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        result = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v
        return result.transpose(1, 2).contiguous().view(10, 24) @ w

    leaves = [x.requires_grad_() for x in (*qkv(), torch.randn(24, 7))]
    compiled(project, graphs, dynamic=False)(*leaves).square().sum().backward()
    got = [x.grad for x in leaves]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    project(*exact).square().sum().backward()
    for gradient, x in zip(got, exact, strict=True):
        torch.testing.assert_close(gradient, x.grad.float(), rtol=1e-4, atol=1e-4)
    saved = [str(graphs[0].buffers[output.buffer].sizes) for output in graphs[0].outputs]
    assert [n.kind for n in graphs[0].nodes].count("attention") == 1
    assert saved.count("[10, 24]") + saved.count("[24, 10]") == 0 and saved.count("[2, 3, 5, 8]") == 1, saved


def test_soft_cap_and_blocks_of_the_mask() -> None:
    """The second block of the two keys that follow the first 16 is hidden."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = torch.arange(18) < 11
        blocks = torch.tensor([True, False]).view(1, 1, 1, 2)
        return torch.ops.ocl.attention(q, k, v, mask.expand(5, 18), None, blocks, cap=1.5)[0]

    q, k, v = qkv()[0], torch.randn(2, 3, 18, 8), torch.randn(2, 3, 18, 8)
    nodes = attentions(attend, q, k, v)
    assert [(n.attention.cap, n.attention.blocks) for n in nodes] == [(1.5, 16)] * 3


def other_dim(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -2) @ v


def scaled_behind_bias(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.mT + torch.ones(5, 5)) * 0.5, -1) @ v


def weights_on_the_right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.mT @ torch.softmax(q @ k.mT, -1)


def small_fill(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.mT).masked_fill(torch.ones(5, 5).triu(1) == 1, -1.0), -1) @ v


def kept_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    p = torch.softmax(q @ k.mT, -1)
    return p @ v + p[..., :1] * 0.5


@pytest.mark.parametrize("function", [other_dim, scaled_behind_bias, weights_on_the_right, small_fill, kept_weights])
def test_similar_formulas_are_not_attention(function: Any) -> None:
    assert not attentions(function, *qkv())


def test_verifier_checks_the_operands_of_attention() -> None:
    text = (
        "buffer b0 in0 f32 [1, 2, 5, 8] strides [80, 40, 8, 1] input 0\ninputs b0\n"
        "buffer b1 out f32 [1, 2, 5, 8]\nbuffer b2 sums f32 [2, 1, 2, 5]\n"
        "node attention forward scale 0.5 dropout 0.0 causal [1, 2, 5, 8] over []\n"
        + "  operand b0 [1, 2, 5, 8] at [i0, i1, i2, i3]\n" * 3
        + "  output b1\n  output b2\nresult b1 [1, 2, 5, 8] strides [] offset 0\n"
    )
    graph = ir.parse_graph(text)
    graph.verify()
    assert graph.nodes[0].attention.causal
    with pytest.raises(OclError, match="attention has the operands of its kind"):
        ir.parse_graph(text.replace("f32 [2, 1, 2, 5]", "f32 [1, 2, 5]")).verify()
