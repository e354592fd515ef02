# tests/device/kernels/test_conv_statistics.py: mean and variance of a convolution's channels, computed by its own kernel, at edge sizes.
"""The tests run on warpgroup and warp tensor cores, where a device has them, and on CPUs. Statistics are compared with
those of the values that the kernel stores."""

import pytest
import torch

from torch_ocl_compile import config

# (C, K, H, W, filter size, stride, groups)
SHAPES = [
    (64, 64, 33, 31, 1, 1, 1), (16, 40, 41, 47, 3, 1, 1), (24, 300, 37, 30, 1, 1, 1), (64, 136, 40, 40, 3, 2, 1),
    (64, 96, 29, 29, 3, 1, 2), (16, 1000, 20, 20, 1, 1, 1), (8, 35, 50, 41, 3, 1, 1), (32, 54, 31, 29, 3, 2, 2),
]  # fmt: skip
# On CPUs, the kernel stores no statistics if a result is a sum of fewer than 64 products, nor for the convolution
# that the Winograd kernel computes.
OF_IMAGES = [(3, 64, 61, 47, 7, 2, 1), (3, 40, 35, 50, 5, 1, 1)]
OF_CPUS = [s for s in SHAPES if s[0] // s[6] * s[4] ** 2 >= 64 and s[:2] != (16, 40)] + [(64, 200, 33, 31, 1, 1, 1)]
KERNELS = {"wgmma": "conv/warpgroup", "mma": "conv/warp", "item": "conv/item", "image": "conv/image_item"}
ON_CPUS = ("item", "image")
LEVELS = [pytest.param(level, marks=pytest.mark.needs("cpu" if level in ON_CPUS else level)) for level in KERNELS]
ERRORS = {torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
# On CPUs, kernels store statistics of float32 only.
CASES = [
    pytest.param(shape, *param.values, dtype, marks=param.marks)
    for param in LEVELS
    for dtype in ((torch.float32,) if param.values[0] in ON_CPUS else ERRORS)
    for shape in {"item": OF_CPUS, "image": OF_IMAGES}.get(param.values[0], SHAPES)
]


def disabled_for(level):
    """Returns the kernels to disable so that the convolution uses those of this level."""
    return "warpgroup" if level == "mma" else ""


def block_of(shape, dtype, bias, offset, device):
    """Returns a convolution with its statistics, and inputs with so many images that the result does not fit in
    caches."""
    channels, filters, height, width, size, stride, groups = shape
    least = (9 if torch.ocl.get_device_properties(device).is_cpu else 50) << 20
    batch = 1 + least // (filters * -(-height // stride) * -(-width // stride) * dtype.itemsize)
    torch.manual_seed(0)
    x = torch.randn(batch, channels, height, width).contiguous(memory_format=torch.channels_last)
    w = torch.randn(filters, channels // groups, size, size) / (channels * size * size) ** 0.5
    if offset:
        # One channel of each group is constant, and only the middle of each filter has a weight for it. So every
        # result, at the edges too, is larger by `offset`.
        x[:, :: channels // groups] = offset
        w[:, 0], w[:, 0, size // 2, size // 2] = 0.0, 1.0
    b = [3 * torch.randn(filters)] if bias else []

    def block(x, w, *b):
        y = torch.nn.functional.conv2d(x, w, *b, stride=stride, padding=size // 2, groups=groups)
        return y, *torch.var_mean(y, (0, 2, 3), correction=0)

    return block, [t.to(dtype) for t in (x, w, *b)]


def launched(block, inputs, folder, disable):
    torch._dynamo.reset()
    folder.mkdir(exist_ok=True)
    with config.override(dump=str(folder), disable=disable):
        compiled = torch.compile(block, backend="ocl", options={"fallback": "error"}, dynamic=False)
        return compiled(*inputs), compiled(*inputs), [path.read_text() for path in folder.rglob("*.cl")]


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "shape, level, dtype", CASES, ids=lambda s: "-".join(map(str, s)) if isinstance(s, tuple) else str(s)
)
def test_statistics(ocl_device, shape, level, dtype, bias, offset, tmp_path):
    """`offset` makes means large compared with the spread. Two calls give the same bits."""
    disable = disabled_for(level)
    block, inputs = block_of(shape, dtype, bias, offset, ocl_device)
    (y, variance, mean), again, texts = launched(block, [t.to(ocl_device) for t in inputs], tmp_path, disable)
    kernels = [text.split("// kernels/base/types.cl")[0] for text in texts if f"// kernels/{KERNELS[level]}.cl" in text]
    assert any("#define STATISTICS 1" in macros for macros in kernels), "read from memory"
    assert any("#define BIAS 1" in macros for macros in kernels) == bias
    assert all(torch.equal(a, b) for a, b in zip((y, variance, mean), again, strict=True))

    exact = block(inputs[0][:1].double(), *(t.double() for t in inputs[1:]))[0]
    size = block(inputs[0][:1].double().abs(), *(t.double().abs() for t in inputs[1:]))[0]
    assert ((y[:1].cpu().double() - exact).abs() <= ERRORS[dtype] * size).all()
    exact_variance, exact_mean = torch.var_mean(y.cpu().double(), (0, 2, 3), correction=0)
    spread = exact_variance.sqrt()
    rounding = torch.finfo(dtype).eps  # Relative rounding error of a result.
    assert ((mean.cpu().double() - exact_mean).abs() <= 4 * rounding * (exact_mean.abs() + spread)).all()
    known = 2 * rounding + 8 * torch.finfo(torch.float32).eps * (1 + exact_mean.abs() / spread)
    assert ((variance.cpu().double() / exact_variance - 1).abs() <= known).all()


@pytest.mark.parametrize("level", LEVELS)
def test_statistics_can_be_disabled(ocl_device, level, tmp_path):
    disable = disabled_for(level)
    shape = OF_IMAGES[0] if level == "image" else SHAPES[0]
    block, inputs = block_of(shape, torch.float32, True, 0.0, ocl_device)
    inputs = [t.to(ocl_device) for t in inputs]
    results, _, texts = launched(block, inputs, tmp_path / "off", ",".join(filter(None, (disable, "conv_statistics"))))
    assert not any("#define STATISTICS 1" in text for text in texts)
    for with_them, without in zip(launched(block, inputs, tmp_path / "on", disable)[0], results, strict=True):
        torch.testing.assert_close(with_them.cpu(), without.cpu(), rtol=1e-5, atol=1e-5)


def test_batch_norm_of_a_constant_channel(ocl_device):
    """Every second filter is 0, so its channel equals the rounded bias everywhere, and batch norm makes it 0."""
    x, w, b = torch.randn(40, 16, 96, 96), torch.randn(72, 16, 3, 3), 100 * torch.randn(72)
    w[::2] = 0.0
    for dtype in (torch.float32, torch.bfloat16):

        def block(x, w, b):
            return torch.nn.functional.batch_norm(
                torch.nn.functional.conv2d(x, w, b, padding=1), None, None, training=True
            )

        torch._dynamo.reset()
        with torch.no_grad():
            got = torch.compile(block, backend="ocl", options={"fallback": "error"}, dynamic=False)(
                *(t.to(dtype).to(ocl_device) for t in (x, w, b))
            )
        assert (got[:, ::2].cpu().float().abs() <= 1e-2).all()
        assert (got[:, 1::2].cpu().float().std((0, 2, 3)) - 1).abs().max() <= 1e-2
