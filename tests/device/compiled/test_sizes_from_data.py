# tests/device/compiled/test_sizes_from_data.py: a size that .item() reads may be 0, 1 or 2 in a later call of one compiled graph.
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_ocl_compile.compile import debug

SIZES = (3, 0, 1, 2, 70, 0)
# Of (x, n): x is (5, 6), n a number that the graph reads from a tensor. PyTorch itself does not trace prod, cummax, roll and batch
# norm of such a size, and the CPU has no FFT of no rows.
PROGRAMS = {
    "fill": lambda x, n: x.new_ones(n) * 2,
    "arange": lambda x, n: torch.arange(n, device=x.device) * x[0, 0],
    "sum of none": lambda x, n: (x.new_zeros(n, 6) + x[0]).sum(0),
    "sum in none": lambda x, n: (x.new_ones(n, 6) + x[0]).sum(1),
    "sum of all": lambda x, n: (x.new_ones(n, 6) + x[0]).sum(),
    "mean": lambda x, n: (x.new_ones(n, 6) + x[0]).mean(1),
    "mean over n": lambda x, n: (x.new_ones(6, n) * x[0, :, None]).mean(1),
    "variance": lambda x, n: torch.var_mean(x.new_ones(n, 6) * x[0], 1),
    "any, all": lambda x, n: ((x.new_zeros(n, 6) + x[0] > 0).any(0), (x.new_zeros(6, n) > 0).all(1)),
    "argmax": lambda x, n: (x.new_zeros(n, 6) + x[0]).argmax(1),
    "rows of a product": lambda x, n: x.new_ones(n, 5) @ x,
    "columns of a product": lambda x, n: x @ x.new_ones(6, n),
    "depth of a product": lambda x, n: x.new_ones(4, n) @ (x.new_ones(n, 6) * x[0]),
    "batch of a product": lambda x, n: torch.bmm(x.expand(n, 5, 6), x.t().expand(n, 6, 5)),
    "linear": lambda x, n: F.gelu(F.linear(x.new_ones(n, 6) * x[0], x, x[:, 0])),
    "cat": lambda x, n: torch.cat([x.new_ones(n, 6), x, x.new_zeros(n, 6)]),
    "pad": lambda x, n: F.pad(x, (0, n, n, 0)),
    "softmax": lambda x, n: (x.new_ones(n, 6) * x[0]).softmax(1),
    "softmax over n": lambda x, n: (x.new_ones(6, n) * x[0, :, None]).softmax(1),
    "cumsum": lambda x, n: (x.new_ones(n, 6) * x[0].detach()).cumsum(0),
    "flip": lambda x, n: (x.new_ones(n, 6) * x[0]).flip(0),
    "sort": lambda x, n: (torch.arange(n, device=x.device) * -1.5 * x[0, 0].sign()).sort().values,
    "norm": lambda x, n: F.layer_norm(x.new_ones(n, 6) * x[0], (6,)),
    "embedding": lambda x, n: F.embedding(torch.arange(n, device=x.device) % 5, x),
    "index": lambda x, n: x[torch.arange(n, device=x.device) % 5],
    "index_add": lambda x, n: x.index_add(0, torch.arange(n, device=x.device) % 5, x.new_ones(n, 6)),
    "scatter": lambda x, n: x.new_zeros(n, 6).scatter(1, x.new_zeros(n, 1, dtype=torch.int64), 3.0),
    "scatter_add": lambda x, n: x.scatter_add(0, torch.arange(n, device=x.device)[:, None].expand(n, 6) % 5, x.new_ones(n, 6)),
    "attention of n queries": lambda x, n: F.scaled_dot_product_attention(x.new_ones(1, 2, n, 6), *[x.expand(1, 2, 5, 6)] * 2),
    "attention over n keys": lambda x, n: F.scaled_dot_product_attention(x.expand(1, 2, 5, 6), *[x.new_ones(1, 2, n, 6)] * 2),
    "heads of attention": lambda x, n: F.scaled_dot_product_attention(*[x.expand(1, n, 5, 6)] * 3),
    "convolution": lambda x, n: F.conv1d(x.expand(n, 5, 6), x.new_ones(3, 5, 2)),
    "convolution of length n": lambda x, n: F.conv1d(x.new_ones(1, 5, n + 1) * x[:, :1], x.new_ones(3, 5, 1)),
    "depthwise": lambda x, n: F.conv2d(x.expand(n, 5, 5, 6), x.new_ones(5, 1, 3, 3), groups=5),
    "pooling": lambda x, n: F.max_pool2d(x.expand(n, 2, 5, 6), 2),
    "loss": lambda x, n: F.cross_entropy(x[0].expand(n, 6), torch.arange(n, device=x.device) % 6, reduction="sum"),
    "transpose": lambda x, n: (x.new_ones(n, 6) * x[0]).t().contiguous() + 1,
    "reshape": lambda x, n: (x.new_ones(n, 6) * x[0]).reshape(2 * n, 3).sum(1),
    "at least one": lambda x, n: x.new_ones(n).sum() / max(n, 1),
}  # fmt: skip


@pytest.mark.sampled(keep="fill|sum of|depth|least|keys")
@pytest.mark.parametrize("name", PROGRAMS)
def test_size_from_data(ocl_device, name):
    program = PROGRAMS[name]

    def function(x, size):
        n = size.item()
        torch._check(n >= 0)
        return program(x, n)

    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    with torch._dynamo.config.patch(capture_scalar_outputs=True), debug.collecting() as graphs:
        compiled = torch.compile(function, backend="ocl", fullgraph=True)
        for n in SIZES:
            compiled_before = len(graphs)
            gradient = x.clone().requires_grad_(), x.to(ocl_device).requires_grad_()
            # torch 2.11's other attention divides by the number of heads.
            with sdpa_kernel(SDPBackend.MATH):
                expected = function(gradient[0], torch.tensor(n))
            got = compiled(gradient[1], torch.tensor(n, device=ocl_device))
            results = [(got, expected)] if isinstance(expected, torch.Tensor) else list(zip(got, expected, strict=True))
            for mine, theirs in results:
                torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True, rtol=1e-5, atol=1e-5)
            if results[0][1].requires_grad:
                sum(theirs.sum() for _, theirs in results).backward()
                sum(mine.sum() for mine, _ in results).backward()
                mine, theirs = gradient[1].grad, gradient[0].grad
                torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True, rtol=1e-5, atol=1e-4)
            assert n == SIZES[0] or len(graphs) == compiled_before, "a size from data compiles a graph again"


@pytest.mark.parametrize("options", [{}, {"kernel_family": "group", "units": 64}], ids=["", "group"])
def test_sums_of_what_a_mask_selects(ocl_device, options):
    """A GPU cuts a sum of any length into slices. Of one element, a mask selects one or none: nothing may be read in advance."""

    def function(x):
        selected = x[x > 0]
        return selected.sum(), (selected * selected).sum() + 1, x.new_ones(selected.numel(), 3).sum(0)

    compiled = torch.compile(function, backend="ocl", options=options, dynamic=True)
    for n in (5, 70_000, -4, 1, -1, 300, 1_000_003):
        x = torch.rand(abs(n), dtype=torch.float64) * (1 if n > 0 else -1)
        for ours, exact in zip(compiled(x.float().to(ocl_device)), function(x), strict=True):
            torch.testing.assert_close(ours.cpu().double(), exact.double(), rtol=1e-5, atol=1e-5)
