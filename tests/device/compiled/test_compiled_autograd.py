# tests/device/compiled/test_compiled_autograd.py: compiled autograd: Dynamo traces the whole backward pass as one graph.
import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd, config
from torch.utils.checkpoint import checkpoint

from tests.device.exact import assert_as_exact

OURS = {"backend": "ocl", "options": {"fallback": "error"}}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model(tokens, table, weight, bias):
    x = F.embedding(tokens, table)
    return checkpoint(torch.tanh, F.gelu(F.layer_norm(x, (8,)) @ weight + bias), use_reentrant=False)


def loss_and_gradients(run, backward, tokens, *parameters):
    """Returns two losses and the gradients that their two backward passes add up. A hook triples one gradient."""
    parameters = [p.detach().clone().requires_grad_() for p in parameters]
    parameters[1].register_hook(lambda g: g * 3)
    losses = [run(t, *parameters).square().mean() for t in (tokens[:, 2:], tokens[:, :-1])]
    with backward:
        for loss in losses:
            loss.backward()
    return [*(x.detach().cpu() for x in losses), *(p.grad.cpu() for p in parameters)]


def assert_gradients(device, tokens):
    parameters = [torch.randn(20, 8), torch.randn(8, 8), torch.randn(8)]
    ours = [p.to(device) for p in parameters]
    run, backward = torch.compile(model, **OURS), compiled_autograd._enable(torch.compile(**OURS))
    got = loss_and_gradients(run, backward, tokens.to(device), *ours)
    assert_as_exact(got, lambda *p: loss_and_gradients(model, contextlib.nullcontext(), tokens, *p), *parameters)


def test_backward_of_a_compiled_model(ocl_device):
    """The backward graph has arguments on the CPU that nothing reads. When sizes change, the strides of a slice are symbols
    that are no size of any argument of this graph."""
    for rows, columns in ((3, 7), (4, 9), (5, 12)):
        assert_gradients(ocl_device, torch.randint(0, 20, (rows, columns)))


def test_backward_inside_of_a_compiled_function(ocl_device):
    def step(x, weight):
        loss = (F.gelu(x) @ weight).square().mean()
        loss.backward()
        return loss.detach()

    def gradient(run, device, x, weight):
        weight = weight.detach().to(device).requires_grad_()
        return run(x.to(device), weight).cpu(), weight.grad.cpu()

    for rows in (5, 6, 7):
        x, weight = torch.randn(rows, 8), torch.randn(8, 4)
        with config.patch(compiled_autograd=True):
            got = gradient(torch.compile(step, **OURS), ocl_device, x, weight)
        assert_as_exact(got, lambda x, w: gradient(step, "cpu", x, w), x, weight)
