# tests/device/compiled/test_aliases.py: results that are views of one tensor share memory exactly where they do in eager mode.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def flipped(x):
    v = x.flip(-1)
    return v, v.expand(3, *v.shape)


def narrowed_twice(x):
    v = torch.special.xlog1py(x, x.abs())
    part = v.narrow(0, 0, 2)
    return part, part, v


def parts_alone(x):
    h = x.sin()
    return h[1:3], h[2:]


def pieces(x):
    return (x * 2).chunk(2, 1)


def rows(x):
    return torch.exp(x).unbind(0)


def orders(x):
    h = x + 1
    return h.t(), h.view(-1), h.reshape(2, 2, 6), h


def last_is_whole(x):
    h = x @ x.t()
    return h.diagonal(), h[:, ::2], h.select(0, 1), h


def overlapping(x):
    h = x.cos()
    return h.unfold(1, 3, 1), h


def strided(x):
    h = x.square()
    return h.as_strided((2, 3), (6, 2), 1), h.as_strided((5,), (1,), 2)


def copies(x):
    h = x.tanh()
    return h, h.clone(), h.contiguous(), h.t().contiguous(), h.t().clone().t()


def two_storages(x):
    a, b = x.sin(), x.cos()
    return a[0], b[0], a[1], b[1], torch.cat([a, b])


def of_inputs(x):
    return x[0], x.t(), x.sin()[0]


def of_a_reduction(x):
    values, indices = x.max(1)
    return values, values[1:], indices[:2], indices


def expanded_number(x):
    s = x.sum()
    return s, s.expand(3), s.view(1)


def channels_last(x):
    h = F.conv2d(x.view(1, 4, 6, 1).to(memory_format=torch.channels_last), torch.ones(4, 4, 1, 1, device=x.device))
    return h, h.permute(0, 2, 3, 1), h[:, 1]


def attention(x):
    qkv = x.view(1, 4, 2, 3)
    h = F.scaled_dot_product_attention(qkv, qkv, qkv)
    return h.transpose(1, 2), h


def changed_after_the_view(x):
    h = x * 3
    part = h[1]
    h.add_(1)
    part.mul_(2)
    return h, part


def input_changed(x):
    x.mul_(2)
    return x[0], x.view(-1)[3:], (x + 1)[0]


def padded(x):
    h = F.pad(x, (1, 1))
    return h[:, 1:-1], h


CASES = [
    flipped, narrowed_twice, parts_alone, pieces, rows, orders, last_is_whole, overlapping, strided, copies, two_storages,
    of_inputs, of_a_reduction, expanded_number, channels_last, attention, changed_after_the_view, input_changed, padded,
]  # fmt: skip


def shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def describe(tensors):
    """Returns which pairs of tensors share memory, and sizes, strides and (of those that share) offsets."""
    sharing = [[shares(a, b) for b in tensors] for a in tensors]
    places = [
        (tuple(t.shape), t.stride(), t.storage_offset() if sum(s) > 1 else None)
        for t, s in zip(tensors, sharing, strict=True)
    ]
    return sharing, places


def write_to_each(results):
    """Writes to one result after the other. Returns the contents of all results after each write."""
    seen = []
    with torch.no_grad():
        for k, result in enumerate(results):
            if result.dim() and result.is_floating_point():
                result[(0,) * result.dim()] = 100.0 + k
                seen.append([r.detach().cpu().clone() for r in results])
    return seen


def agree(function, given, here, compiled):
    want, got = function(*here), compiled(*given)
    torch.testing.assert_close([r.detach().cpu() for r in got], [r.detach() for r in want], rtol=1e-4, atol=1e-5)
    assert describe([*got, *given]) == describe([*want, *here])
    if any(r.is_leaf for r in want):
        torch.testing.assert_close(write_to_each(got), write_to_each(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", CASES)
def test_inference(ocl_device, function, dynamic):
    compiled = torch.compile(function, backend="ocl", fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
    for _ in range(2):
        x = torch.linspace(-1, 2, 24).view(4, 6)
        agree(function, [x.to(ocl_device)], [x], compiled)


@pytest.mark.parametrize("function", [f for f in CASES if f is not input_changed])
def test_training(ocl_device, function):
    compiled = torch.compile(function, backend="ocl", fullgraph=True, dynamic=False, options={"fallback": "error"})
    for _ in range(2):
        here = torch.linspace(-1, 2, 24).view(4, 6).requires_grad_()
        there = here.detach().to(ocl_device).requires_grad_()
        want, got = function(here), compiled(there)
        torch.testing.assert_close([r.detach().cpu() for r in got], [r.detach() for r in want], rtol=1e-4, atol=1e-5)
        assert describe([*got, there]) == describe([*want, here])
        for results in (want, got):
            sum((k + 1) * r.sum() for k, r in enumerate(results) if r.is_floating_point()).backward()
        torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-4)


def halves(x):
    h = x * 2
    return h[x.shape[0] // 2 :], h[: x.shape[0] // 2], h[:, 1:]


def test_offsets_depend_on_sizes(ocl_device):
    compiled = torch.compile(halves, backend="ocl", fullgraph=True, dynamic=True)
    for rows in (5, 8, 3, 2):
        x = torch.arange(4.0 * rows).view(rows, 4)
        agree(halves, [x.to(ocl_device)], [x], compiled)


def test_shapes_change_apart(ocl_device):
    """Results that are the same whole tensor are two objects: changing the shape of one does not change the other."""

    def function(x):
        h = x + 1
        return h, h.view_as(h)

    a, b = torch.compile(function, backend="ocl", fullgraph=True)(torch.zeros(2, 3, device=ocl_device))
    assert shares(a, b)
    a.squeeze_().unsqueeze_(0)
    assert a.shape == (1, 2, 3) and b.shape == (2, 3)


def test_gradients_are_apart(ocl_device):
    """Two leaves whose gradients are views of one tensor: adding to one .grad does not change the other."""

    def function(a, b):
        return ((a.view(6) + b.t().reshape(6)) ** 2).sum()

    leaves = [
        torch.randn(2, 3, device=ocl_device).requires_grad_(),
        torch.randn(3, 2, device=ocl_device).requires_grad_(),
    ]
    torch.compile(function, backend="ocl", fullgraph=True)(*leaves).backward()
    assert not shares(leaves[0].grad, leaves[1].grad)


def by_first_row(x):
    """Reads the first row, and overwrites all rows."""
    return x.mul_(x[:1].expand_as(x))


def into_its_transpose(x):
    square = x[:, :3]
    return square.add_(square.t())


def scan_into_its_operand(x):
    return torch.cumsum(x.expand(x.shape[0], -1), 0, out=x)


@pytest.mark.parametrize("function", [by_first_row, into_its_transpose, scan_into_its_operand])
@pytest.mark.parametrize("rows", [3, 100_000])
def test_eager_ops_read_the_old_elements(ocl_device, function, rows):
    """If the result of an eager op shares memory with an operand, the op uses the elements from before the call."""
    if function is into_its_transpose and rows > 3:
        rows = 3
    start = torch.arange(4.0 * rows).view(rows, 4) % 7 + 1
    expected = {
        by_first_row: lambda: start * start[:1],
        into_its_transpose: lambda: start[:, :3] + start[:, :3].t(),
        scan_into_its_operand: lambda: torch.cumsum(start, 0),
    }[function]()
    torch.ocl.reset_fallback_counts()
    torch.testing.assert_close(function(start.to(ocl_device)).cpu(), expected)
    assert not torch.ocl.fallback_counts()


@pytest.mark.parametrize(
    "function", [lambda x: x.sub_(x[0]), lambda x: x[1:].add_(x[:-1]), lambda x: torch.add(x[:2], 1, out=x[1:])]
)
def test_a_part_of_the_result_as_operand_raises(ocl_device, function):
    """If the result partly overlaps an operand, the op raises as on the CPU, and writes nothing."""
    start = torch.arange(12.0).view(3, 4)
    for device in ("cpu", ocl_device):
        x = start.to(device, copy=True)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            function(x)
        torch.testing.assert_close(x.cpu(), start)
