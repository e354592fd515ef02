# tests/device/compiled/test_lost_writes.py: in-place updates around attention are not lost when a pass replaces the attention in
# Dynamo's graph.
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def written_out(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def two_dimensions(q, k, v):
    return F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0])


def three_dimensions(q, k, v):
    return F.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True)


def four_dimensions(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


ATTENTIONS = [written_out, two_dimensions, three_dimensions, four_dimensions]


def method(x, state):
    state.add_(1)


def operator(x, state):
    state += x.mean()


def item(x, state):
    state[1, 2:4] = x[0, 0, 0, :2]


def out_argument(x, state):
    torch.mul(state, 2, out=state)


def foreach(x, state):
    torch._foreach_add_([state[0], state[1]], 1)


def in_place_function(x, state):
    F.relu(state.sub_(1), inplace=True)


def view(x, state):
    state.view(-1)[3:5].fill_(x.sum())


def buffers_of_a_normalisation(x, state):
    F.batch_norm(x.flatten(0, 2), state[0], state[1], training=True)


UPDATES = [method, operator, item, out_argument, foreach, in_place_function, view, buffers_of_a_normalisation]


@pytest.mark.parametrize("attend", ATTENTIONS)
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_update_beside_attention(ocl_device, attend, update, first):
    def step(x, w, state):
        if first:
            update(x, state)
        out = attend(x @ w, x, x)
        if not first:
            update(x, state)
        return out

    torch.manual_seed(0)
    x, w, state = torch.randn(2, 2, 16, 8), torch.randn(8, 8), torch.rand(4, 8)
    given = [t.to(ocl_device) for t in (x, w, state)]
    compiled = torch.compile(step, backend="ocl", fullgraph=True, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            want, got = step(x, w, state), compiled(*given)
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(given[2].cpu(), state, rtol=1e-5, atol=1e-6)


class Cached(nn.Module):
    """Attention with a key and value cache, which counts its calls."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(2, 16, 8))
        self.register_buffer("values", torch.zeros(2, 16, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, at):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys[:, at[None]] = k
        self.values.index_copy_(1, at[None], v)
        # Not in training: AOTAutograd confuses the tangents of integer and float buffers, on any backend.
        if not torch.is_grad_enabled():
            self.calls += 1
        return torch.softmax(q @ self.keys.transpose(1, 2) * 8**-0.5, -1) @ self.values


@pytest.mark.parametrize("trained", [False, True])
def test_cache_of_keys_and_values(ocl_device, trained):
    torch.manual_seed(1)
    want, got = Cached(), Cached()
    got.load_state_dict(want.state_dict())
    got.to(ocl_device)
    compiled = torch.compile(got, backend="ocl", fullgraph=True, dynamic=False)
    with torch.set_grad_enabled(trained):
        for step in range(3):
            x, at = torch.randn(2, 1, 8), torch.tensor(2 * step)
            for model, run, device in ((want, want, "cpu"), (got, compiled, ocl_device)):
                for buffer in (model.keys, model.values):
                    buffer.detach_()
                out = run(x.to(device), at.to(device))
                if trained:
                    model.zero_grad()
                    out.square().sum().backward()
                results = (out, *model.buffers(), *(p.grad for p in model.parameters() if trained))
                if device == "cpu":
                    expected = [t.detach().clone() for t in results]
            torch.testing.assert_close([t.detach().cpu() for t in results], expected, rtol=1e-4, atol=1e-5)
    assert got.calls.item() == (0 if trained else 3)


def mask_becomes_the_scores(q, k, v, mask):
    mask += q @ k.transpose(-1, -2)
    return torch.softmax(mask, -1) @ v


def mask_gets_the_scores(q, k, v, mask):
    return torch.softmax(mask.add_(q @ k.transpose(-1, -2)), -1) @ v


def scores_go_to_the_mask(q, k, v, mask):
    return torch.softmax(torch.matmul(q, k.transpose(-1, -2), out=mask), -1) @ v


def weights_go_to_the_mask(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-1, -2), -1, out=mask) @ v


def result_goes_to_v(q, k, v, mask):
    return torch.matmul(torch.softmax(q @ k.transpose(-1, -2) + mask, -1), v.clone(), out=v)


def keys_change_between(q, k, v, mask):
    scores = q @ k.transpose(-1, -2)
    v.mul_(2)
    return torch.softmax(scores + mask, -1) @ v


def mask_changes_between(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) + mask
    torch.add(mask, 1, out=mask)
    return torch.softmax(scores, -1) @ v


def scores_scaled_in_place(q, k, v, mask):
    scores = q @ k.transpose(-1, -2)
    scores *= 0.25
    scores += mask
    return F.dropout(torch.softmax(scores, -1), 0.0, True, True) @ v


def result_changed_in_place(q, k, v, mask):
    out = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    out.mul_(2)
    out[0] = 1
    return out


WRITES = [
    (mask_becomes_the_scores, False),
    (mask_gets_the_scores, False),
    (scores_go_to_the_mask, False),
    (weights_go_to_the_mask, False),
    (result_goes_to_v, False),
    (keys_change_between, False),
    (mask_changes_between, False),
    (scores_scaled_in_place, True),
    (result_changed_in_place, True),
]


@pytest.mark.parametrize(("function", "fused"), WRITES)
def test_writes_inside_attention(ocl_device, function, fused):
    """`fused`: attention is still one kernel, because only the attention reads the tensor that is written."""
    torch.manual_seed(2)
    tensors = [*(torch.randn(2, 2, 16, 8) for _ in range(3)), torch.randn(2, 2, 16, 16)]
    given = [t.to(ocl_device) for t in tensors]
    compiled = torch.compile(function, backend="ocl", fullgraph=True, dynamic=False)
    with torch.no_grad():
        for _ in range(2):
            with torch.ocl.record() as launches:
                got = compiled(*given)
            torch.testing.assert_close(got.cpu(), function(*tensors), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close([t.cpu() for t in given], tensors, rtol=1e-4, atol=1e-4)
    assert any(launch.kind == "attention" for launch in launches) == fused


def result_scaled(q, k, v, mask):
    out = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    out *= 2
    return out


def view_of_the_result_scaled(q, k, v, mask):
    out = torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v
    out.view(2, -1)[0].mul_(2)
    return out


def result_of_three_dimensions_scaled(q, k, v, mask):
    out = F.scaled_dot_product_attention(q[0], k[0], v[0])
    out.add_(1)
    return out


def mask_scaled_afterwards(q, k, v, mask):
    mask = mask * 1
    out = torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v
    mask.mul_(0)
    return out + mask[..., :8]


def plain(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v


LATER_WRITES = [
    (result_scaled, True),
    (view_of_the_result_scaled, True),
    (result_of_three_dimensions_scaled, True),
    (mask_scaled_afterwards, False),
    (plain, True),
]


@pytest.mark.parametrize(("function", "fused"), LATER_WRITES)
def test_gradient_of_attention_written_to_afterwards(ocl_device, function, fused):
    """The gradient of the attention op needs its result and its mask, which the gradient of separate products does not.
    Here the function or its caller overwrites them after the attention."""
    torch.manual_seed(3)
    tensors = [*(torch.randn(2, 2, 16, 8) for _ in range(3)), torch.randn(2, 2, 16, 16)]

    def run(function, device):
        given = [t.to(device) for t in tensors]
        leaves = [t.requires_grad_() for t in given[:3]]
        results = function(*given)
        out = results[0] if isinstance(results, tuple) else results
        out.mul_(3)
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    with torch.ocl.record() as launches:
        got = run(torch.compile(function, backend="ocl", fullgraph=True, dynamic=False), ocl_device)
    torch.testing.assert_close([t.cpu() for t in got], run(function, "cpu"), rtol=1e-3, atol=1e-3)
    assert any(launch.kind == "attention" for launch in launches) == fused


def test_operand_of_attention_written_afterwards(ocl_device):
    """Only q needs a gradient. With separate products, its gradient does not need the queries, so writing them is
    allowed."""

    def function(q, k, v):
        queries = q * 2
        out = torch.softmax(queries @ k.transpose(-1, -2), -1) @ v
        return out, queries.zero_()

    torch.manual_seed(4)
    tensors = [torch.randn(2, 2, 16, 8) for _ in range(3)]

    def run(function, device):
        q, k, v = (t.to(device) for t in tensors)
        out, _ = function(q.requires_grad_(), k, v)
        return [out, *torch.autograd.grad(out.square().sum(), q)]

    got = run(torch.compile(function, backend="ocl", fullgraph=True, dynamic=False), ocl_device)
    torch.testing.assert_close([t.cpu() for t in got], run(function, "cpu"), rtol=1e-3, atol=1e-3)


def test_a_constant_of_the_function_is_new_at_each_call(ocl_device):
    """Because of the graph break, the first graph returns the constant, and the second one writes to it. The next call
    must see the original constant."""

    def function(x):
        constant = torch.tensor([32, 21, 28], device=x.device)
        torch._dynamo.graph_break()
        return constant.add_(x)

    compiled = torch.compile(function, backend="ocl")
    for _ in range(3):
        assert compiled(torch.tensor(-2, device=ocl_device)).tolist() == [30, 19, 26]
