# tests/device/compiled/test_unusual_graphs.py: unusual graphs from PyTorch's own compiler tests, which models seldom have.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten


def agree(function, *args, device, dynamic=False):
    """Asserts that the compiled function on the device has the values, dtypes and strides of the plain one on the CPU."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="ocl", fullgraph=True, dynamic=dynamic)
    got = compiled(*tree_map_only(torch.Tensor, lambda t: t.to(device), args))
    want = function(*args)
    torch.testing.assert_close(tree_map_only(torch.Tensor, torch.Tensor.cpu, got), want)
    assert [t.stride() for t in tree_leaves(got)] == [t.stride() for t in tree_leaves(want)]


POOLS = {
    "average in one dimension": lambda x: F.adaptive_avg_pool1d(x[0], 0),
    "average in two": lambda x: F.adaptive_avg_pool2d(x, (0, 3)),
    "average in three": lambda x: F.adaptive_avg_pool3d(x, (2, 0, 2)),
    "maximum": lambda x: F.adaptive_max_pool2d(x, (0, 3), return_indices=True),
    "of no images": lambda x: F.adaptive_avg_pool2d(x[:0], 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_adaptive_pooling_to_nothing(ocl_device, name):
    agree(POOLS[name], torch.randn(2, 3, 8, 8), device=ocl_device)


def arithmetic(a, b):
    return aten.add(a, b), aten.add(b, a), aten.sub(a, b), aten.mul(b, a)


def divisions(a, b):
    modes = [aten.div(a, b, rounding_mode=mode) for mode in (None, "floor", "trunc")]
    return (*modes, aten.div(a * 0.5, b), aten.div(a, b * 1.0, rounding_mode="floor"))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a tensor"])
@pytest.mark.parametrize(("function", "numbers"), [(arithmetic, (4, 3.3)), (divisions, (1024, 100))])
def test_ops_of_numbers(ocl_device, function, numbers, beside, dynamic):
    if beside:
        agree(lambda x, a, b: (x * 2, *function(a, b)), torch.randn(3), *numbers, device=ocl_device, dynamic=dynamic)
    else:
        agree(function, *numbers, device=ocl_device, dynamic=dynamic)


def filled(x):
    ones = torch.ones_like(x)
    return ones, aten.fill.Tensor(ones, torch.tensor(3.0)), ones.clone().fill_(torch.tensor(2.0))


def put_into(x):
    y = x.clone()
    y[1] = torch.tensor(7.0)
    return y


MADE_INSIDE = {
    "fill": filled,
    "setitem": put_into,
    "fmax": lambda x: (torch.fmax(x, torch.tensor(0.0)), torch.fmin(x + 1, torch.tensor(1))),
    "arithmetic": lambda x: x * torch.tensor(2.5) + torch.tensor(3),
    "integer first": lambda x: torch.tensor(2) - x,
    "where": lambda x: torch.where(x > 0, x, torch.tensor(0.5)),
    "masked_fill": lambda x: x.masked_fill(x > 0, torch.tensor(2.0)),
    "pow": lambda x: torch.pow(x.abs(), torch.tensor(2.0)),
    "lerp": lambda x: torch.lerp(x, x + 1, torch.tensor(0.5)),
    "index": lambda x: x[torch.tensor(2)],
}


@pytest.mark.parametrize("name", MADE_INSIDE)
def test_a_scalar_tensor_made_inside(ocl_device, name):
    agree(MADE_INSIDE[name], torch.randn(4, 5), device=ocl_device)


RESIZED = {
    "smaller": (lambda x: aten.resize(x, (2, 2)), (4, 4)),
    "other shape": (lambda x: aten.resize(x, (3, 2)), (2, 3)),
    "larger": (lambda x: aten.resize(x, (30,))[:16], (4, 4)),
    "transposed": (lambda x: aten.resize(x.t(), (2, 2)), (3, 4)),
    "slice": (lambda x: aten.resize(x[:, 1:].t(), (2, 2)), (3, 4)),
    "expanded": (lambda x: aten.resize(x.expand(3, 4), (2, 2)), (1, 4)),
    "channels last": (lambda x: aten.resize(x, (1, 2, 4, 4), memory_format=torch.channels_last), (1, 2, 4, 4)),
    "number": (lambda x: aten.resize(x.sum(), (1, 1)), (3,)),
    "to nothing": (lambda x: aten.resize(x, (0, 2)), (3,)),
    "like another": (lambda x: aten.resize_as(x, x[:2, :3]), (4, 4)),
    "like another, channels last": (
        lambda x: aten.resize_as(x, x[..., :2], memory_format=torch.channels_last),
        (1, 2, 4, 4),
    ),
}


@pytest.mark.parametrize("name", RESIZED)
def test_resize(ocl_device, name):
    function, shape = RESIZED[name]
    agree(function, torch.arange(float(torch.Size(shape).numel())).view(shape), device=ocl_device)


def test_resize_fills_what_it_adds(ocl_device):
    torch.use_deterministic_algorithms(True)
    try:
        for x in (torch.randn(4), torch.arange(4)):
            torch._dynamo.reset()
            got = torch.compile(lambda x: aten.resize(x, (7,)), backend="ocl")(x.to(ocl_device)).cpu()
            torch.testing.assert_close(got, aten.resize(x, (7,)), equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_rows_at_computed_places(ocl_device):
    """In solve(), back substitution loads several elements of a row whose number is computed. One vendor's assembler
    wrongly merged two of these loads."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((5, 5), (5,)))
    solve = torch.compile(torch.linalg.solve, backend="ocl", dynamic=False)
    x = solve(a.to(ocl_device).requires_grad_(), b.to(ocl_device).requires_grad_())
    torch.testing.assert_close(x.detach().cpu(), torch.linalg.solve(a, b), rtol=1e-11, atol=1e-11)
