# tests/device/ops/test_statistics.py: means and variances against fp64: along rows, columns and channels, with large means; batch norm.
import copy

import pytest
import torch

from torch_ocl_compile.eager import compile as eager

pytestmark = pytest.mark.sampled(first=4, every=16)
# (sizes, reduced dimensions)
SHAPES = [
    *(((2, 58, 8, 8), (0, 2, 3)), ((3, 17, 3, 3), (0, 2, 3)), ((2, 64, 24, 24), (0, 2, 3)), ((1, 5, 1, 9), (0, 2, 3))),
    *(((128, 40), (0,)), ((9, 33), (0,)), ((1500, 20), (0,)), ((40, 128), (1,)), ((20, 1501), (1,)), ((5, 8), (1,))),
]


@pytest.mark.parametrize("offset", [0.5, 100.0])
@pytest.mark.parametrize(
    ("sizes", "dims", "channels_last"),
    [(*shape, last) for shape in SHAPES for last in ((False, True) if len(shape[0]) == 4 else (False,))],
    ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else str(v),
)
def test_variance(ocl_device, sizes, dims, channels_last, offset):
    """The bound fails if squares are summed around a poor estimate of the mean, or if hundreds of terms are added one
    by one."""
    torch.manual_seed(0)
    x = torch.randn(sizes) + offset
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(lambda t: torch.var_mean(t, dims), backend="ocl", options={"fallback": "error"})
    variance, mean = (t.cpu().double() for t in compiled(x.to(ocl_device)))
    exact_variance, exact_mean = torch.var_mean(x.double(), dims)
    ulp = torch.finfo(torch.float32).eps
    count = x.numel() // exact_mean.numel()
    # Elements are rounded to an ulp of the offset, which changes a variance of 1 by a similar amount.
    known = 1.5 * ulp + 2 * offset * ulp / count**0.5
    assert ((variance - exact_variance) / exact_variance).pow(2).mean().sqrt() < known
    assert (mean - exact_mean).pow(2).mean().sqrt() < ulp * max(1.0, offset)


# (batch, C, K, H, W, filter size, stride, groups)
CONVOLUTIONS = [(3, 64, 70, 103, 99, 1, 1, 1), (2, 66, 64, 130, 131, 3, 2, 2), (1, 3, 64, 366, 370, 7, 2, 1)]


@pytest.mark.parametrize("vector_floats", [0, 8])
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=lambda s: "-".join(map(str, s)))
def test_channels_of_a_convolution(ocl_device, shape, offset, vector_floats):
    """A convolution's kernel stores statistics in slices. They must agree with its results, and two calls must give the
    same bits."""
    batch, channels, filters, height, width, size, stride, groups = shape
    torch.manual_seed(0)
    x = torch.randn(batch, channels, height, width).contiguous(memory_format=torch.channels_last)
    w = torch.randn(filters, channels // groups, size, size)
    # One channel of each group is constant, and only the middle of each filter has a weight for it. So every result,
    # at the edges too, is larger by `offset`.
    if offset:
        x[:, :: channels // groups] = offset
        w[:, 0], w[:, 0, size // 2, size // 2] = 0.0, 1.0
    x, w = x.to(ocl_device), w.to(ocl_device)

    def block(x, w):
        y = torch.nn.functional.conv2d(x, w, stride=stride, padding=size // 2, groups=groups)
        return y, *torch.var_mean(y, (0, 2, 3))

    options = {"fallback": "error", "vector_floats": vector_floats}
    compiled = torch.compile(block, backend="ocl", options=options, dynamic=False)
    results = compiled(x, w)
    assert all(torch.equal(a, b) for a, b in zip(results, compiled(x, w), strict=True))
    y, variance, mean = (t.cpu().double() for t in results)
    exact_variance, exact_mean = torch.var_mean(y, (0, 2, 3))
    ulp = torch.finfo(torch.float32).eps
    far = exact_mean.abs() / exact_variance.sqrt()
    assert ((variance / exact_variance - 1).abs() < 8 * ulp * (1 + far)).all()
    assert ((mean - exact_mean).abs() < 4 * ulp * (exact_mean.abs() + exact_variance.sqrt())).all()


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
@pytest.mark.parametrize("sizes", [(3, 700), (2, 10000)], ids=str)
def test_running_sum(ocl_device, name, sizes):
    """PyTorch computes the running sum in fp64. Our error may be at most twice PyTorch's."""
    torch.manual_seed(0)
    x = torch.randn(sizes) * 3
    compiled = torch.compile(lambda t: getattr(t, name)(-1), backend="ocl", options={"fallback": "error"})
    exact, theirs = getattr(x.double(), name)(-1), getattr(x, name)(-1).double()
    ours = compiled(x.to(ocl_device)).cpu().double()
    assert (ours - exact).pow(2).mean() <= 4 * (theirs - exact).pow(2).mean()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("gradient", [False, True], ids=["inference", "gradient"])
@pytest.mark.parametrize(
    "name", ["native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"]
)
def test_batch_norm_saves_nothing_in_evaluation(ocl_device, name, gradient, compiled):
    """As on the CPU, the saved statistics are empty tensors in evaluation, and backward uses the running statistics."""
    torch.manual_seed(0)
    flags = () if name.endswith("no_training") else (False,)
    given = (torch.randn(3, 2, 3, 4), torch.rand(2), torch.rand(2), torch.rand(2), torch.rand(2) + 1)

    def run(device):
        x, *rest = (t.to(device) for t in given)
        x.requires_grad_(gradient)
        function = getattr(torch.ops.aten, name)
        torch._dynamo.reset()
        call = torch.compile(function, backend="ocl") if compiled and device != "cpu" else function
        results = call(x, *rest, *flags, 0.1, 1e-5)
        if gradient:
            results = (*results, *torch.autograd.grad(results[0].square().sum(), x))
        return [t.detach().cpu() for t in results]

    expected, got = run("cpu"), run(ocl_device)
    assert [t.shape for t in got] == [t.shape for t in expected] and len(got[1]) == 0
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_cumulative_batch_norm_needs_no_plan_for_each_step(ocl_device, dtype, affine, monkeypatch):
    """BatchNorm2d(momentum=None) has another momentum at each step, as update_bn of torch.optim.swa_utils does."""
    torch.manual_seed(0)
    reference = torch.nn.BatchNorm2d(3, momentum=None, affine=affine)
    ours = copy.deepcopy(reference).to(ocl_device)
    limit = 2e-5 if dtype is torch.float32 else 2e-3
    made, compile_op = [], eager.compile_op
    monkeypatch.setattr(eager, "compile_op", lambda name, *rest: (made.append(name), compile_op(name, *rest))[1])
    for step in range(12):
        x = (torch.randn(4, 3, 5, 6) + step).to(dtype)
        expected, got = reference(x.float()), ours(x.to(ocl_device)).cpu()
        torch.testing.assert_close(got, expected.to(dtype), rtol=limit, atol=limit)
        if step == 5:
            made.clear()
    assert "aten::native_batch_norm" not in made
    torch.testing.assert_close(
        [ours.running_mean.cpu(), ours.running_var.cpu()], [reference.running_mean, reference.running_var]
    )
