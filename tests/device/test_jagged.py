# tests/device/test_jagged.py: nested tensors with layout=torch.jagged as arguments of compiled functions, and attention of them.
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

LENGTHS = ([2, 5, 3], [4, 1, 7])  # Rows of the sequences of each call.
WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


BODIES = {
    "block": Block,
    "softmax": lambda: lambda x: (x * 2).softmax(-1),
    "sum of the rows": lambda: lambda x: x.sin().sum(1),
    "mean of the rows": lambda: lambda x: x.mean(1),
    "padded": lambda: lambda x: x.to_padded_tensor(-1.0) * 3,
    "values, changed in place": lambda: lambda x: x.values().cos().add_(1),
    "dense": lambda: lambda x: x * torch.arange(1.0, WIDTH + 1, device=x.device),
}


# PyTorch's own gradient of a sum over the rows is an error.
WITHOUT_GRADIENT = ("sum of the rows", "mean of the rows")


def jagged(lengths, device, dtype=torch.float32, requires_grad=True):
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randn(n, WIDTH, generator=generator).to(device, dtype) for n in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=requires_grad)


def results(body, x):
    """Returns the result, the gradient of the rows, and those of the parameters."""
    y = body(x)
    y = y.values() if y.is_nested else y
    if not x.requires_grad:
        return [y.cpu()]
    (y * torch.linspace(-1, 1, y.numel(), device=y.device, dtype=y.dtype).view(y.shape)).sum().backward()
    parameters = list(body.parameters()) if isinstance(body, nn.Module) else []
    return [t.detach().cpu() for t in (y, x.grad.values(), *(p.grad for p in parameters))]


def attend(x, causal):
    """Returns the attention of a sequence, or of a jagged tensor of sequences, to itself. [.., rows, WIDTH]"""
    q = x.unflatten(-1, (2, WIDTH // 2)).transpose(-3, -2)
    return F.scaled_dot_product_attention(q, q * 0.5, q + 1, is_causal=causal).transpose(-3, -2).flatten(-2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(ocl_device, causal, compiled):
    torch._dynamo.reset()
    for lengths in LENGTHS:
        rows = [x.detach().requires_grad_() for x in jagged(lengths, "cpu", torch.float64).unbind()]
        wanted = torch.cat([attend(x[None], causal)[0] for x in rows])
        weights = torch.linspace(-1, 1, wanted.numel(), dtype=torch.float64).view(wanted.shape)
        (wanted * weights).sum().backward()
        x = jagged(lengths, ocl_device)
        function = torch.compile(attend, backend="ocl", options={"fallback": "error"}) if compiled else attend
        got = function(x, causal).values()
        (got * weights.float().to(ocl_device)).sum().backward()
        assert_close(got.detach().cpu(), wanted.detach().float(), rtol=1e-5, atol=1e-5)
        assert_close(x.grad.values().cpu(), torch.cat([r.grad for r in rows]).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_compiled(ocl_device, name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    body, with_gradient = BODIES[name](), name not in WITHOUT_GRADIENT
    for lengths in LENGTHS:
        if isinstance(body, nn.Module):
            body = body.cpu().double()
            body.zero_grad()
        expected = results(body, jagged(lengths, "cpu", torch.float64, with_gradient))
        if isinstance(body, nn.Module):
            body = body.float().to(ocl_device)
            body.zero_grad()
        compiled = torch.compile(body, backend="ocl", options={"fallback": "error"})
        for got, wanted in zip(
            results(compiled, jagged(lengths, ocl_device, requires_grad=with_gradient)), expected, strict=True
        ):
            assert_close(got, wanted.float(), rtol=1e-5, atol=1e-5)
