# tests/device/compiled/test_jagged.py: nested tensors with layout=torch.jagged as arguments of compiled functions, and attention of them.
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from torch_ocl_compile.device import jagged_attention

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


@pytest.mark.sampled(first=3)
@pytest.mark.parametrize(
    "keys, heads, causal", [(None, 4, False), (None, 2, True), ([30, 70, 1, 2], 4, False)], ids=str
)
def test_attention_without_padding(ocl_device, monkeypatch, keys, heads, causal):
    """Where lengths differ much, nothing is padded: queries have other lengths than keys, and heads share keys."""
    if torch.__version__ < (2, 12):
        pytest.skip(
            "torch 2.11 does not say that it compiles while Dynamo calls the function, so all lengths are padded"
        )
    torch._dynamo.reset()
    monkeypatch.setattr(jagged_attention, "_padded", None)
    function = torch.compile(F.scaled_dot_product_attention, backend="ocl", options={"fallback": "error"})
    for lengths in ([100, 3, 0, 7], [5, 90, 17, 1]):
        generator = torch.Generator().manual_seed(sum(lengths))
        of_keys = keys or lengths
        parts = [torch.randn(sum(n), h, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
                 for n, h in ((lengths, 4), (of_keys, heads), (of_keys, heads))]  # fmt: skip
        split = [
            [x.transpose(0, 1) for x in rows.split(n)]
            for rows, n in zip(parts, (lengths, of_keys, of_keys), strict=True)
        ]
        wanted = torch.cat([F.scaled_dot_product_attention(*qkv, is_causal=causal, enable_gqa=heads != 4).transpose(0, 1)
                            for qkv in zip(*split, strict=True)])  # fmt: skip
        weights = torch.linspace(-1, 1, wanted.numel(), dtype=torch.float64).view(wanted.shape)
        exact = [wanted, *torch.autograd.grad((wanted * weights).sum(), parts)]

        offsets = [torch.tensor([0, *n]).cumsum(0).to(ocl_device) for n in (lengths, of_keys)]
        rows = [x.detach().float().to(ocl_device).requires_grad_() for x in parts]
        given = [torch.nested.nested_tensor_from_jagged(x, offsets[0] if keys is None or x is rows[0] else offsets[1], min_seqlen=0,
                                                        max_seqlen=100).transpose(1, 2) for x in rows]  # fmt: skip
        got = function(*given, is_causal=causal, enable_gqa=heads != 4).transpose(1, 2).values()
        found = [got, *torch.autograd.grad((got * weights.float().to(ocl_device)).sum(), rows)]
        for a, b in zip(found, exact, strict=True):
            assert_close(a.detach().cpu(), b.detach().float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_compiled(ocl_device, name):
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
