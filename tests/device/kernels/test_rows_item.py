# tests/device/kernels/test_rows_item.py: softmax of rows and sums of columns in the form for CPUs: odd lengths, infinities.
import math

import pytest
import torch
import torch.nn.functional as F


def masked(x):
    return torch.softmax((x * 0.125).masked_fill(x > 1.0, -math.inf), -1)


ROWS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "masked": masked,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "two of one result": lambda x: torch.softmax(x, -1) + torch.softmax(x * x, -1),
    "beside its element": lambda x: x * torch.softmax(x, -1) - x,
    "softmax of softmax": lambda x: torch.softmax(torch.softmax(x, -1) * 5, -1),
}


def tensors(result):
    return result if isinstance(result, tuple) else (result,)


def compare(device, f, x, dynamic=False, first=0, **options):
    """Compares with fp64. `first`: the element of the memory with which x begins; vector loads need aligned rows."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="ocl", options={"fallback": "error", **options}, dynamic=dynamic)
    on_device = torch.empty(x.numel() + first, dtype=x.dtype, device=device)[first:].view(x.shape).copy_(x)
    ours, again = compiled(on_device), compiled(on_device)
    assert torch.equal(on_device.cpu(), x)
    for a, b, theirs, exact in zip(*map(tensors, (ours, again, f(x), f(x.double()))), strict=True):
        assert a.dtype == theirs.dtype and torch.equal(a, b)
        if not theirs.is_floating_point():
            assert torch.equal(a.cpu(), theirs)
            continue
        error, most = ((t.double() - exact).norm() / exact.norm() for t in (a.cpu(), theirs))
        # With few results, PyTorch may have no error at all, so about two ulp are allowed.
        assert error <= 2 * most + 3e-7


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("rows", "length"), [(5, 16), (9, 31), (131, 197), (3, 1023), (2, 8200)])
def test_rows(ocl_device, name, dtype, rows, length):
    torch.manual_seed(0)
    compare(ocl_device, ROWS[name], (torch.randn(rows, length) * 2 + 0.5).to(dtype))


@pytest.mark.parametrize("name", ["softmax", "masked", "log_softmax"])
def test_long_rows(ocl_device, name):
    """The rows do not fit in caches, and there are fewer of them than cores."""
    torch.manual_seed(0)
    compare(ocl_device, ROWS[name], torch.randn(4, (1 << 18) + 7))


@pytest.mark.parametrize("name", ["softmax", "masked", "two of one result"])
def test_rows_of_any_length(ocl_device, name):
    torch.manual_seed(0)
    compare(ocl_device, ROWS[name], torch.randn(7, 203), dynamic=True)


@pytest.mark.parametrize("length", [64, 77])
def test_infinities(ocl_device, length):
    """Infinities and NaN as whole rows and as single elements. Masked and very negative elements must give exactly
    0."""
    x = torch.randn(9, length)
    for row, value in enumerate((math.inf, -math.inf, math.nan)):
        x[row] = value
        x[3 + row, length - 1] = x[3 + row, 3] = value
    x[6, 1:] -= 90.0
    x[7, 1:] = -3e38
    x[8, :5] = 3e38

    def f(x):
        return torch.softmax(x, -1), torch.log_softmax(x, -1), torch.ops.aten._safe_softmax(x, -1)

    compiled = torch.compile(f, backend="ocl", options={"fallback": "error"}, dynamic=False)
    for ours, theirs in zip(compiled(x.to(ocl_device)), f(x), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True, atol=2e-38, rtol=2e-6)
        assert not (ours.cpu()[4] == 0).logical_xor(theirs[4] == 0).any()


COLUMNS = {
    "sum": lambda x: x.sum(0),
    "two sums": lambda x: (x.sum(0), (x * x).sum(0)),
    "mean, then more": lambda x: x.mean(0).exp() * 2,
    "var_mean": lambda x: torch.var_mean(x, 0),
    "amax": lambda x: x.amax(0),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(("rows", "columns"), [(70, 3), (530, 33), (1100, 197), (40, 335), (64, 1027), (33, 2047)])
def test_columns(ocl_device, name, rows, columns):
    torch.manual_seed(0)
    compare(ocl_device, COLUMNS[name], torch.randn(rows, columns) + 0.5)
