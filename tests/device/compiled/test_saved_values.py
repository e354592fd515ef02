# tests/device/compiled/test_saved_values.py: gradients where the saved values are windows on one buffer, in both kernel families.
"""The backward graph may overwrite a saved value. Here each op's gradient overwrites one window while another is still read."""

import pytest
import torch
import torch.nn.functional as F

from torch_ocl_compile import config

ROWS, WIDTH = 40, 48


def heads(x, w):
    """Queries, keys and values are slices of one product."""
    q, k, v = (x @ w).view(4, 10, 3, 4, -1).permute(2, 0, 3, 1, 4)
    return (torch.softmax(q @ k.transpose(-1, -2), -1) @ v).sigmoid()


def gates(x, w):
    a, b, c = (x @ w).chunk(3, 1)
    return a.sigmoid() * b.tanh() + c.exp() * a.tanh()


def reshaped(x, w):
    return F.gelu(x @ w).view(4, 10, -1) @ (w.t() * 0.1)


@pytest.mark.parametrize("family", ["item", "group"])
@pytest.mark.parametrize("function", [heads, gates, reshaped])
def test_gradients(ocl_device, function, family):
    torch.manual_seed(2)
    x, w = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH) / 7
    compiled = torch.compile(
        function, backend="ocl", options={"fallback": "error", "kernel_family": family}, dynamic=False
    )

    def run(f, device, dtype):
        x_, w_ = (t.to(device, dtype).requires_grad_() for t in (x, w))
        y = f(x_, w_)
        y.backward(torch.linspace(-1, 1, y.numel(), device=device, dtype=dtype).view(y.shape))
        return [t.detach().cpu() for t in (y, x_.grad, w_.grad)]

    for got, expected in zip(
        run(compiled, ocl_device, torch.float32), run(function, "cpu", torch.float64), strict=True
    ):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_call_retains_the_graph_after_one_that_did_not(ocl_device):
    """The backward graph that the first call compiled may overwrite saved values; the second one runs a plan that does not."""
    torch._dynamo.reset()
    with config.override(
        cache_size_mb=0
    ):  # A stored graph would be loaded without what torch knows of the overwriting.
        run = torch.compile(gates, backend="ocl")
        x, w = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH) / 8
        expected = w.double().requires_grad_()
        gates(x.double(), expected).sum().backward()
        given = w.to(ocl_device).requires_grad_()
        run(x.to(ocl_device), given).sum().backward()
        loss = run(x.to(ocl_device), given).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    torch.testing.assert_close(given.grad.cpu(), 3 * expected.grad.float(), rtol=1e-4, atol=1e-3)
