# tests/device/compiled/test_mutation.py: inputs that are written, views and aliases that are returned, and the cost of a KV cache.
import copy

import pytest
import torch
from torch.utils._pytree import tree_map_only

CACHE, ROWS = (4, 8, 1024), (4, 8, 2)


def index(c, *values):
    return torch.tensor(values, device=c.device)


def assign_slice(c, k):
    c[:, :, 5:7] = k
    return c.mean()


def assign_steps(c, k):
    c[:, :, 0:8:4] = k
    return c.mean()


def assign_select(c, k):
    c[:, :, -3] = k[:, :, 0]
    return c.mean(2)


def assign_nested(c, k):
    c[1, 2:4, 5:7] = k[0, :2]
    return c.mean()


def assign_twice(c, k):
    c[:, :, 5:7] = k
    mean = c.mean()
    c[:, :, 9:11] = k + mean
    return c.mean()


def assign_diagonal(c, k):
    c.diagonal(0, 0, 1).copy_(k[0, 0, 0])
    return c.mean()


def copied_rows(c, k):
    c.index_copy_(2, index(c, 5, 7), k)
    return c.mean()


def assign_indexed(c, k):
    c[:, :, index(c, 5, -1)] = k
    return c.mean()


def added_rows(c, k):
    c.index_add_(2, index(c, 5, 7), k)
    return c.mean()


def scattered(c, k):
    c.scatter_(2, index(c, 5, 7).expand(4, 8, 2), k)
    return c.mean()


def old_value_kept(c, k):
    old = c[:, :, 5:7] + 1
    window = c[:, :, 4:8]
    c[:, :, 5:7] = k
    return old, window.sum(), c.mean()


def old_clone_kept(c, k):
    old = c.clone()
    c[:, :, 5:7] = k
    return old.sum(), old, c.mean()


def shifted(c, k):
    c[:, :, 1:5] = c[:, :, 0:4].clone()
    return c.mean()


def input_returned(c, k):
    c[:, :, 5:7] = k
    return c, c[0], c.view(-1)[3:5]


def whole_input(c, k):
    c.mul_(2).add_(k[0, 0, 0])
    return c.mean()


def input_transposed(c, k):
    c.transpose(1, 2)[:, 5:7].copy_(k.transpose(1, 2))
    return c.mean()


def both_arguments(c, k):
    c[:, :, 0:2] += k
    k.zero_()
    return c.mean()


def swapped(c, k):
    a, b = c[0].clone(), c[1].clone()
    c[0], c[1] = b, a
    return c.mean()


# Function -> how many bytes each launch that stores to the input may read and write; None: the store is not in place.
CASES = {
    assign_slice: 1024,
    assign_steps: 1024,
    assign_select: 1024,
    assign_nested: 1024,
    assign_twice: 1024,
    assign_diagonal: 8 * 1024 * 8,
    copied_rows: 8192,
    assign_indexed: 8192,
    added_rows: None,
    scattered: None,
    old_value_kept: 1024,
    old_clone_kept: None,
    shifted: None,
    input_returned: 1024,
    whole_input: None,
    input_transposed: None,
    both_arguments: None,
    swapped: None,
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_written_input(ocl_device, function):
    torch.manual_seed(0)
    theirs = [torch.randn(CACHE), torch.randn(ROWS)]
    ours = [t.clone().to(ocl_device) for t in theirs]
    expected = function(*theirs)
    compiled = torch.compile(function, backend="ocl", fullgraph=True, options={"fallback": "error"})
    got = compiled(*ours)
    torch.testing.assert_close(tree_map_only(torch.Tensor, torch.Tensor.cpu, got), expected)
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.cpu(), reference)
    if CASES[function] is None:
        return
    with torch.ocl.record() as launches:
        compiled(*ours)
    torch.ocl.synchronize()
    stores = [k for k in launches if ("scatter" in k.origin or "index_put" in k.origin) and k.kind == "pointwise"]
    assert stores and all(k.bytes <= CASES[function] for k in stores), [(k.kind, k.bytes, k.origin) for k in launches]


class Counting(torch.nn.Module):
    """A module whose forward updates two buffers, a counter and a running mean, and reads them again."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            self.steps += 1
            self.mean.lerp_(y.mean(0), 0.1)
        return (y - self.mean).square().sum() / self.steps


def test_buffers_in_training(ocl_device):
    torch.manual_seed(0)
    model = Counting()
    ours = copy.deepcopy(model).to(ocl_device)
    compiled = torch.compile(ours, backend="ocl", fullgraph=True, options={"fallback": "error"})
    for _ in range(3):
        x = torch.randn(5, 6)
        expected, got = model(x), compiled(x.to(ocl_device))
        expected.backward()
        got.backward()
        torch.testing.assert_close(got.detach().cpu(), expected.detach())
    for (name, mine), reference in zip(ours.named_buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), reference, msg=lambda m, n=name: f"{n}: {m}")
    for (name, mine), reference in zip(ours.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), reference.grad, msg=lambda m, n=name: f"{n}: {m}")


def test_the_gradient_needs_a_result_that_is_a_view_of_a_written_input(ocl_device):
    def function(x, values, weight):
        x[:6].copy_(values)
        view = x[:7]
        return torch.mv(weight, view.clamp(-1.5, 0.9)), view

    given = torch.randn(8), torch.randn(6).requires_grad_(), torch.randn(5, 7).requires_grad_()
    there = [x.detach().clone().to(ocl_device).requires_grad_(x.requires_grad) for x in given]
    found = []
    for run, arguments in ((function, given), (torch.compile(function, backend="ocl"), there)):
        result, view = run(*arguments)
        found.append([result, view, *torch.autograd.grad(result.sum(), arguments[1:])])
        assert view.data_ptr() == arguments[0].data_ptr()
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), expected)


def test_data_of_an_argument_is_replaced(ocl_device):
    """The argument then has the memory of a result."""

    def function(x, y):
        z = x.sin() * y
        x.data = z.detach()
        return z, x + 1

    x, y = (torch.randn(6, 4, device=ocl_device)[1:] for _ in range(2))
    expected = x.cpu().sin() * y.cpu()
    z, more = torch.compile(function, backend="ocl")(x, y)
    assert x.data_ptr() == z.data_ptr()
    torch.testing.assert_close(x.cpu(), expected)
    torch.testing.assert_close(more.cpu(), expected + 1)


def test_moving_a_module_keeps_its_parameters(ocl_device):
    """Shared weights stay shared, and an optimizer that was made before the move still holds them."""
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 4), "head": torch.nn.Linear(4, 5, bias=False)})
    model["head"].weight = model["embedding"].weight
    weight = model["embedding"].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(ocl_device)
    assert model["head"].weight is weight and model["embedding"].weight is weight
    assert weight.device == torch.device(ocl_device) and optimizer.param_groups[0]["params"][0] is weight
    model.cpu()
    assert model["head"].weight is weight and weight.device.type == "cpu"


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32])
def test_mask_is_written_after_attention(ocl_device, mask_dtype):
    """Backward computes with the mask that forward had. Eager mode refuses the gradient of a float mask that was written."""

    def attend(q, k, v, mask):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        mask.zero_()
        return out

    mask = (torch.tensor([True, True, False]) if mask_dtype is torch.bool else torch.tensor([0.0, 1.0, -1.0])).expand(
        2, 1, 1, 3
    )
    given = [torch.randn(2, 1, n, 4) for n in (1, 3, 3)]

    def gradients(function, device):
        leaves = [x.to(device, copy=True).requires_grad_() for x in given]
        function(*leaves, mask.contiguous().to(device, copy=True)).sum().backward()
        return [x.grad.cpu() for x in leaves]

    compiled = torch.compile(attend, backend="ocl")
    if mask_dtype is torch.bool:
        torch.testing.assert_close(gradients(compiled, ocl_device), gradients(attend, "cpu"))
    else:
        with pytest.raises(Exception, match="modified by an inplace operation"):
            gradients(compiled, ocl_device)
