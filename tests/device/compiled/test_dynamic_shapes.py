# tests/device/compiled/test_dynamic_shapes.py: one compilation for many batch sizes and lengths; sizes 0 and 1; sizes that depend on data.
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

from torch_ocl_compile.compile import debug

pytestmark = pytest.mark.sampled(first=4, keep="mlp batch-training")
SIZES = [4, 7, 2, 16, 33, 64, 17, 3]


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 5))

    def forward(self, x):
        return self.layers(x)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Transformer(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(50, width)
        self.positions = nn.Parameter(torch.randn(70, width))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 50)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions[: ids.shape[1]]
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(y)
        return self.head(x + self.mlp(self.norm2(x)))


def ids(*shape):
    return torch.randint(0, 50, shape)


CASES = {
    "mlp batch": (MLP, lambda n: torch.randn(n, 12)),
    "cnn batch": (CNN, lambda n: torch.randn(n, 3, 16, 16)),
    "transformer batch": (Transformer, lambda n: ids(n, 6)),
    "transformer length": (Transformer, lambda n: ids(2, n)),
}


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_many_sizes_in_two_compilations(ocl_device, name, train):
    """The first size is compiled as a constant, the second as a symbol, which serves all others."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, sample = CASES[name]
    model = make().train(train)
    ours = copy.deepcopy(model).to(ocl_device)
    run = torch.compile(ours, backend="ocl", options={"fallback": "error"})
    torch._dynamo.utils.counters.clear()
    before = debug.compiled_graphs() + debug.loaded_graphs()
    for size in SIZES:
        x = sample(size)
        model.zero_grad()
        ours.zero_grad()
        with torch.set_grad_enabled(train):
            expected, got = model(x), run(x.to(ocl_device))
        torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
        if not train:
            continue
        weights = torch.randn_like(expected)
        expected.backward(weights)
        got.backward(weights.to(ocl_device))
        for (parameter, mine), reference in zip(ours.named_parameters(), model.parameters(), strict=True):
            scale = max(1.0, reference.grad.abs().max().item())
            torch.testing.assert_close(
                mine.grad.cpu(),
                reference.grad,
                rtol=1e-3,
                atol=2e-5 * scale,
                msg=lambda m, p=parameter, s=size: f"{p}, {s}: {m}",
            )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert debug.compiled_graphs() + debug.loaded_graphs() - before <= (4 if train else 2)


@pytest.mark.parametrize("name", CASES)
def test_size_one_and_many(ocl_device, name):
    """PyTorch compiles a separate graph for size 1; all other sizes share one graph."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, sample = CASES[name]
    model = make().eval()
    run = torch.compile(copy.deepcopy(model).to(ocl_device), backend="ocl", options={"fallback": "error"})
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        for size in (1, 3, 1, 5, 8, 1, 13):
            x = sample(size)
            torch.testing.assert_close(run(x.to(ocl_device)).cpu(), model(x), rtol=1e-4, atol=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


@pytest.mark.parametrize("dynamic", [True, None], ids=["symbols", "constants"])
@pytest.mark.parametrize("shape", [(0, 12), (3, 0)], ids=str)
def test_no_elements(ocl_device, shape, dynamic):

    def function(x):
        return (
            x.exp() + 1,
            x.sum(),
            x.sum(0),
            torch.cat([x, x], 0),
            (x @ x.t()).relu(),
            x.reshape(-1),
            x.mean(1, keepdim=True),
        )

    run = torch.compile(function, backend="ocl", dynamic=dynamic, fullgraph=True)
    for rows, cols in (shape, (2, 3), shape):
        x = torch.randn(rows, cols)
        torch.testing.assert_close([t.cpu() for t in run(x.to(ocl_device))], list(function(x)), equal_nan=True)


def test_sizes_in_arithmetic(ocl_device):
    """The function uses sizes as numbers, bounds of slices, repeats, positions, and results."""

    def function(x, y):
        n, m = x.shape
        half = x[: n // 2, m - 2 :]
        positions = torch.arange(n, device=x.device)[:, None] * m + torch.arange(m, device=x.device)
        return (
            half * n + 1.5 * m,
            positions,
            x.repeat(2, 1)[1 : n + 1],
            torch.full((m, n), n / m, device=x.device),
            y.view(m, n).t() / n,
            n * m,
        )

    run = torch.compile(function, backend="ocl", dynamic=True, fullgraph=True, options={"fallback": "error"})
    for n, m in ((4, 6), (9, 5), (2, 3)):
        x, y = torch.randn(n, m), torch.randn(n * m)
        expected, got = function(x, y), run(x.to(ocl_device), y.to(ocl_device))
        assert got[-1] == expected[-1]
        torch.testing.assert_close([t.cpu() for t in got[:-1]], list(expected[:-1]))


def test_numbers_of_64_bits(ocl_device):
    """Integers that change between calls are no sizes: kernels with few elements get them whole, too."""

    def function(x, n):
        return (
            x + n,
            torch.arange(n, n + 3, device=x.device),
            x > n,
            torch.full((2,), n, device=x.device),
            x.clamp(max=n),
        )

    x = torch.tensor([1, -5, 2**40])
    run = torch.compile(function, backend="ocl", fullgraph=True, options={"fallback": "error"})
    for n in (5, 7, 2**31, 2**53 + 1, -(2**62), 2):
        torch.testing.assert_close([t.cpu() for t in run(x.to(ocl_device), n)], list(function(x, n)))


# Sizes that no index expression of the core expresses, so that the host computes them for each call.

COMPUTED = {
    "part": lambda x: x[: int(x.shape[0] * 0.7)] * 2,
    "part, rounded up": lambda x: x[: math.ceil(x.shape[0] * 0.7) + 1].sin(),
    "rounded": lambda x: x[: round(x.shape[0] / 3)].cumsum(0),
    "side of an image": lambda x: (lambda side: x[: side * side].view(side, side, -1).mT * 2)(int(x.shape[0] ** 0.5)),
    "logarithm": lambda x: x[: int(math.log2(x.shape[0]))] * x.shape[0],
    "two, one of the other": lambda x: x[int(int(x.shape[0] * 0.7) * 0.7) : int(x.shape[0] * 0.7)] * 2,
    "power": lambda x: x.sum() + torch.ones(2 ** (x.shape[0] // 8), device=x.device),
    "distance": lambda x: x[: abs(x.shape[0] - 20)] * 2,
    "resampled": lambda x: F.interpolate(x.T[None], scale_factor=0.7)[0],
}


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", COMPUTED)
def test_sizes_that_the_host_computes(ocl_device, name, train):
    function = COMPUTED[name]
    torch._dynamo.reset()
    run = torch.compile(function, backend="ocl", dynamic=True, fullgraph=True, options={"fallback": "error"})
    for rows in (9, 16, 25, 12):
        x = torch.randn(rows, 4, requires_grad=train)
        y = x.detach().to(ocl_device).requires_grad_(train)
        expected, got = function(x), run(y)
        torch.testing.assert_close(got.cpu(), expected)
        if train:
            expected.square().sum().backward()
            got.square().sum().backward()
            torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_fractional_pooling_of_many_sizes(ocl_device):
    """The distance of the windows depends on the sizes, and all its digits decide where they begin."""

    def pool(x, samples):
        return torch.ops.aten.fractional_max_pool2d(x, [2, 2], [5, 4], samples)

    run = torch.compile(pool, backend="ocl", dynamic=True, fullgraph=True, options={"fallback": "error"})
    for rows, cols in ((7, 9), (31, 12), (150, 211)):
        x, samples = torch.randn(2, 3, rows, cols), torch.rand(2, 3, 2)
        torch.testing.assert_close(
            [t.cpu() for t in run(x.to(ocl_device), samples.to(ocl_device))], list(pool(x, samples))
        )


# By default, a size that depends on data causes a graph break. With the options below, PyTorch traces it as a symbol.

DATA_DEPENDENT = {
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "boolean mask": lambda x: x[x > 0] * 2,
    "masked_select": lambda x: x.masked_select(x > 0.5).sum() + 1,
    "where": lambda x: torch.where(x > 0)[0] * 2,
    "item": lambda x: x * x.abs().sum().round().int().item(),
    "item as size": lambda x: x.new_ones(3 + int((x > 0).sum().item())) * 2,
    "tolist": lambda x: x * sum((x > 0).sum(0).tolist()),
    "unique": lambda x: x.round().unique() + 1,
    "repeat_interleave": lambda x: x.repeat_interleave((x[:, 0] > 0).long() + 1, 0) + 1,
    "number as a size and a value": lambda x: (lambda n: x.new_zeros(n).fill_(float(n)))(
        int(x.abs().sum().item()) % 5 + 2
    ),
    "number in a new tensor": lambda x: x + torch.tensor(x.mean().item(), device=x.device),
}


@pytest.mark.parametrize("captured", [False, True], ids=["graph break", "captured"])
@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_sizes_that_data_decide(ocl_device, name, captured):
    torch.manual_seed(0)
    function = DATA_DEPENDENT[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=captured, capture_dynamic_output_shape_ops=captured):
        run = torch.compile(function, backend="ocl")
        for _ in range(3):
            x = torch.randn(6, 5)
            torch.testing.assert_close(run(x.to(ocl_device)).cpu(), function(x))


def on_cpu(results):
    return tree_map(torch.Tensor.cpu, results)


def last_chunk_broadcast(x, y):
    return F.mse_loss(x, y.chunk(2, 0)[-1])


def last_piece_expanded(x, y):
    last = y.split(2, 0)[-1]
    return x * last + last.sum(), torch.where(x > 0, last, 0.5)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("function", [last_chunk_broadcast, last_piece_expanded])
def test_a_composed_size_that_is_one(ocl_device, function):
    """The last of two chunks of 3 rows has one row, which broadcasts. Only a guard says that its size, an expression of
    the symbol s such as s - (s + 1) // 2, is 1."""
    compiled = torch.compile(function, backend="ocl", fullgraph=True)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    given = [x.to(ocl_device), y.to(ocl_device)]
    for t in given:
        torch._dynamo.maybe_mark_dynamic(t, 0)
    torch.testing.assert_close(on_cpu(compiled(*given)), function(x, y))


def add_to_the_rest(x, v):
    x[1:].add_(v)
    return x.sum()


def set_nothing(x, v):
    x[0:0, 2] = v
    x[1:, 3].copy_(v)
    return x * 2


def write_nothing(x, v):
    x[1:].index_copy_(1, torch.tensor([0], device=x.device), x[1:, :1].clone())
    x[1:].masked_fill_(x[1:] > 0, 3)
    x.select(0, 0)[5:].fill_(2)
    return x + v


@pytest.mark.parametrize("function", [add_to_the_rest, set_nothing, write_nothing])
def test_writes_to_windows_without_elements(ocl_device, function):
    compiled = torch.compile(function, backend="ocl", fullgraph=True)
    for rows in (1, 3, 2, 4):
        x, v = torch.randn(rows, 5, 1), torch.randn(1)
        given = [x.to(ocl_device), v.to(ocl_device)]
        torch.testing.assert_close(on_cpu(compiled(*given)), function(x, v))
        torch.testing.assert_close(given[0].cpu(), x)


def test_rows_of_a_concatenation(ocl_device):
    """The second concatenation is written by two kernels. A loop over 2 * n elements, divided by n, gives their rows."""

    def function(x):
        rows = torch.vstack([x, x])
        return torch.cat([rows, rows[:1]], 0)

    compiled = torch.compile(function, backend="ocl", dynamic=True, fullgraph=True, options={"verify": True})
    for size in (2, 7, 3):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x.to(ocl_device)).cpu(), function(x))


def test_attention_whose_head_size_is_a_symbol(ocl_device):
    """It runs eagerly, with results of the traced sizes and without the gradients that nobody asked for."""

    def attend(x, q, k, v):
        torch.func.vmap(lambda z, u: z * u.sum(), in_dims=(0, None))(x, x)
        return F.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(0)
    x, q, k, v = torch.randn(8), torch.randn(2, 3, 5, 16), torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 16)
    wide = q.double().requires_grad_()
    expected = F.scaled_dot_product_attention(wide, k.double(), v.double())
    expected.sum().backward()
    here = q.to(ocl_device).requires_grad_()
    run = torch.compile(attend, backend="ocl", dynamic=True)
    out = run(x.to(ocl_device).requires_grad_(), here, k.to(ocl_device), v.to(ocl_device))
    out.sum().backward()
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(here.grad.cpu().double(), wide.grad, rtol=1e-5, atol=1e-6)
