# tests/device/ops/test_layouts.py: results and gradients of convolutions are channels-last where they are on the CPU, eager
# and compiled.
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.device.exact import assert_as_exact

pytestmark = pytest.mark.sampled(first=12, every=48)
# Name -> (function, shape of the input, shape of the weight)
CONVOLUTIONS = {
    "conv2d": (F.conv2d, (2, 6, 9, 8), (4, 6, 3, 3)),
    "unit": (F.conv2d, (2, 6, 9, 8), (4, 6, 1, 1)),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 6, 9, 8), (4, 6, 3, 3)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=6), (2, 6, 9, 8), (6, 1, 3, 3)),
    "transposed": (F.conv_transpose2d, (2, 6, 9, 8), (6, 4, 3, 3)),
    "conv3d": (F.conv3d, (2, 6, 5, 6, 7), (4, 6, 3, 3, 3)),
    "conv1d": (F.conv1d, (2, 6, 9), (4, 6, 3)),
}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def laid_out(sizes, channels_last):
    x = torch.randn(sizes)
    return x.contiguous(memory_format=LAST[x.dim()]) if channels_last and x.dim() in LAST else x


def with_gradients(function, x, w):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = function(x, w)
    return [y, *torch.autograd.grad(y.square().sum(), (x, w))]


@pytest.mark.parametrize("layouts", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(ocl_device, name, layouts):
    """Results and input gradients have the strides of those on the CPU. The weight's gradient has the strides of the
    weight, so that the optimizer needs no copy."""
    torch.manual_seed(0)
    function, *sizes = CONVOLUTIONS[name]
    x, w = (laid_out(s, last) for s, last in zip(sizes, layouts, strict=True))
    expected = with_gradients(function, x, w)
    ported = x.to(ocl_device), w.to(ocl_device)
    for run in (function, torch.compile(function, backend="ocl", options={"fallback": "error"})):
        got = with_gradients(run, *ported)
        assert_as_exact(got, lambda x, w: with_gradients(function, x, w), x, w)
        assert [mine.stride() for mine in got] == [like.stride() for like in (expected[0], expected[1], w)]


def test_changing_sizes(ocl_device):
    compiled = torch.compile(F.conv2d, backend="ocl", dynamic=True, options={"fallback": "error"})
    w = torch.randn(4, 3, 3, 3)
    for size in (5, 8, 11):
        x = laid_out((2, 3, size, size + 1), True)
        got = compiled(x.to(ocl_device), w.to(ocl_device)).cpu()
        assert_as_exact(got, F.conv2d, x, w)
        assert got.is_contiguous(memory_format=torch.channels_last)


def test_chain(ocl_device):
    """The results of ops after a convolution are channels-last, too."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 2, 2), nn.Upsample(scale_factor=2)
    )  # fmt: skip
    x = laid_out((2, 3, 10, 12), True)
    expected = model(x)
    model = model.to(ocl_device)
    assert expected.is_contiguous(memory_format=torch.channels_last)

    def run(x):
        return model(x)

    for function in (run, torch.compile(run, backend="ocl", options={"fallback": "error"})):
        got = function(x.to(ocl_device)).cpu()
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
        assert got.stride() == expected.stride()


def test_copies_of_one_tensor(ocl_device):
    """An operand that cannot be read in place is copied once for several products. After a write to it, it is copied
    again."""

    def products(a, w, y):
        rows = (a * 2).permute(1, 0, 2).reshape(300, 128)
        first, second = rows @ w, rows.t() @ y
        a.add_(1)
        changed = a.permute(1, 0, 2).reshape(300, 128)
        return first, second, changed @ w, changed.t() @ y

    given = [torch.randn(sizes) for sizes in ((2, 300, 64), (128, 70), (300, 50))]
    got = torch.compile(products, backend="ocl")(*(x.to(ocl_device) for x in given))
    assert_as_exact(got, products, *given)


def test_joined_tensors_with_equal_parts(ocl_device):
    """A tensor that is a part of two concatenated tensors is copied into both."""

    def products(a, b, w):
        first, second = torch.cat([a, a * b], 1), torch.cat([a, b], 1)
        return first @ w, second @ w, first.t() @ second

    given = [torch.randn(sizes) for sizes in ((6, 4), (6, 4), (8, 5))]
    got = torch.compile(products, backend="ocl")(*(x.to(ocl_device) for x in given))
    assert_as_exact(got, products, *given)


def test_a_rotation_is_read_in_place(ocl_device):
    """Rotary embeddings join the halves of a tensor, one of them negated. Products read the halves without a copy."""

    def rotated(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    given = [torch.randn(2, 3, 5, 16, requires_grad=True), torch.randn(5, 16), torch.randn(5, 16)]
    on_device = [x.detach().to(ocl_device).requires_grad_(x.requires_grad) for x in given]
    compiled = torch.compile(rotated, backend="ocl")
    assert_as_exact(compiled(*on_device), rotated, *given)
    compiled(*on_device).sum().backward()
    rotated(*given).sum().backward()
    torch.testing.assert_close(on_device[0].grad.cpu(), given[0].grad)
    with torch.no_grad(), torch.ocl.record() as launches:
        compiled(*on_device)
    assert len(launches) == 1
