# tests/device/test_statistics.py: means and variances against fp64, along rows, columns and channels, short and long, far from 0.
import pytest
import torch

pytestmark = pytest.mark.sampled(every=4)
# sizes, reduced dimensions
SHAPES = [
    *(((2, 58, 8, 8), (0, 2, 3)), ((3, 17, 3, 3), (0, 2, 3)), ((2, 64, 24, 24), (0, 2, 3)), ((1, 5, 1, 9), (0, 2, 3))),
    *(((128, 40), (0,)), ((9, 33), (0,)), ((1500, 20), (0,)), ((40, 128), (1,)), ((20, 1501), (1,)), ((5, 8), (1,))),
]


@pytest.mark.parametrize("offset", [0.5, 100.0])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("sizes", "dims"), SHAPES, ids=lambda v: "x".join(map(str, v)))
def test_variance(ocl_device, sizes, dims, channels_last, offset):
    """Sums of squares that are taken around a poor guess of the mean, or that run through hundreds of terms, lose more."""
    if channels_last and len(sizes) < 4:
        pytest.skip("rows and columns have one layout")
    torch.manual_seed(0)
    x = torch.randn(sizes) + offset
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: torch.var_mean(t, dims), backend="ocl", options={"fallback": "error"})
    variance, mean = (t.cpu().double() for t in compiled(x.to(ocl_device)))
    exact_variance, exact_mean = torch.var_mean(x.double(), dims)
    ulp = torch.finfo(torch.float32).eps
    count = x.numel() // exact_mean.numel()
    # An element is not known better than an ulp of the offset, which moves a variance of 1 by so much.
    known = 1.5 * ulp + 2 * offset * ulp / count**0.5
    assert ((variance - exact_variance) / exact_variance).pow(2).mean().sqrt() < known
    assert (mean - exact_mean).pow(2).mean().sqrt() < ulp * max(1.0, offset)


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
@pytest.mark.parametrize("sizes", [(3, 700), (2, 10000)], ids=str)
def test_running_sum(ocl_device, name, sizes):
    """PyTorch carries fp64 along: so must we, or its like."""
    torch.manual_seed(0)
    x = torch.randn(sizes) * 3
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: getattr(t, name)(-1), backend="ocl", options={"fallback": "error"})
    exact, theirs = getattr(x.double(), name)(-1), getattr(x, name)(-1).double()
    ours = compiled(x.to(ocl_device)).cpu().double()
    assert (ours - exact).pow(2).mean() <= 4 * (theirs - exact).pow(2).mean()
