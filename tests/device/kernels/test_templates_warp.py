# tests/device/kernels/test_templates_warp.py: products, convolutions and attention on warp tensor cores at edge sizes.
"""The tests run where a device has warp tensor cores.

Each result is compared with fp64. The error may be twice that of PyTorch's own sums in the same dtype. Where TF32 is
allowed, the error may be that of operands rounded to TF32's ten bits.
"""

import pytest
import torch

from tests.device.kernels.test_templates_warpgroup import (
    ATTENTIONS,
    DIRECTIONS,
    DTYPES,
    GEMMS,
    LONG_HEADS,
    attention,
    matrices,
)
from torch_ocl_compile import config

aten = torch.ops.aten


pytestmark = pytest.mark.needs("mma")


def check(call, inputs, device, folder, allowed=0.0):
    """Runs `call` compiled and compares with fp64; one of its kernels must use warp tensor cores.

    `allowed`: the error allowed beyond twice PyTorch's own, relative to the size of the results.
    """
    torch._dynamo.reset()
    with config.override(dump=str(folder), disable="warpgroup"):
        got = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)(
            *(x.to(device) for x in inputs)
        )
    assert any("mma.sync" in path.read_text() for path in folder.rglob("*.cl")), "another template was chosen"
    exact, plain = call(*(x.double() for x in inputs)), call(*inputs)
    error, limit = ((y.double().cpu() - exact).pow(2).mean().sqrt() for y in (got, plain))
    assert torch.isfinite(got).all()
    assert error <= 2 * limit + (allowed + 1e-7) * exact.pow(2).mean().sqrt(), (error, limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "m,n,k,transposed", [*GEMMS, (1000, 2048, 200, "b"), (520, 1100, 136, "a"), (2051, 2050, 2049, "")]
)
def test_gemm(ocl_device, m, n, k, transposed, dtype, tmp_path):
    check(lambda a, b: torch.relu(a @ b + 1), matrices(m, n, k, transposed, dtype), ocl_device, tmp_path)


@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_tf32(ocl_device, transposed, tmp_path):
    torch.set_float32_matmul_precision("high")
    try:
        check(torch.mm, matrices(300, 260, 1000, transposed), ocl_device, tmp_path, 1e-3)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert any("#define TERMS 1\n" in path.read_text() for path in tmp_path.rglob("*.cl"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_of_an_input_that_is_not_aligned(ocl_device, dtype, tmp_path):
    a, b = torch.randn(128 * 64 + 1).to(dtype)[1:].view(128, 64), torch.randn(64, 128).to(dtype)
    check(torch.mm, (a, b), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batched(ocl_device, dtype, tmp_path):
    a, b = torch.randn(5, 65, 40).to(dtype), torch.randn(5, 40, 66).to(dtype)
    check(lambda a, b, c: torch.baddbmm(c, a, b), (a, b, torch.randn(5, 1, 66).to(dtype)), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, kind", DIRECTIONS, ids=lambda s: s if isinstance(s, str) else "-".join(map(str, s)))
def test_convolution(ocl_device, shape, kind, dtype, tmp_path):
    batch, c, k, h, w, r, s, stride, padding, dilation, groups = shape
    torch.manual_seed(sum(shape))
    x, weight = torch.randn(batch, c, h, w).to(dtype), torch.randn(k, c // groups, r, s).to(dtype)
    rest = (None, (stride,) * 2, (padding,) * 2, (dilation,) * 2, False, (0, 0), groups)
    if kind == "forward":
        check(lambda x, w: aten.convolution(x, w, *rest) + 1, (x, weight), ocl_device, tmp_path)
        return
    wanted = kind == "weight"
    dy = torch.randn_like(aten.convolution(x, weight, *rest))
    check(
        lambda dy, x, w: aten.convolution_backward(dy, x, w, *rest, (not wanted, wanted, False))[wanted],
        (dy, x, weight),
        ocl_device,
        tmp_path,
    )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_gradient_of_many_pixels(ocl_device, dtype, channels_last, tmp_path):
    """The gradient is computed in slices. A second kernel adds them in a fixed order, so two calls give the same
    bits."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x, dy = (torch.randn(5, c, 55, 57).to(dtype).contiguous(memory_format=layout) for c in (40, 72))
    weight = torch.randn(72, 40, 3, 3).to(dtype)

    def gradient(dy, x, weight):
        rest = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (False, True, False))
        return aten.convolution_backward(dy, x, weight, *rest)[1]

    check(gradient, (dy, x, weight), ocl_device, tmp_path)
    with config.override(disable="warpgroup"):
        again = torch.compile(gradient, backend="ocl", dynamic=False)
        first, second = (again(*(t.to(ocl_device) for t in (dy, x, weight))) for _ in range(2))
    assert torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ATTENTIONS + LONG_HEADS)
def test_attention(ocl_device, shape, dtype, tmp_path):
    check(*attention(shape, dtype), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_inputs_that_are_not_aligned(ocl_device, dtype, tmp_path):
    tensors = [torch.randn(2 * 3 * 70 * 64 + 1).to(dtype)[1:].view(2, 3, 70, 64) for _ in range(3)]
    check(torch.nn.functional.scaled_dot_product_attention, tensors, ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, tensor_cores", [(shape,
    True) for shape in ATTENTIONS + LONG_HEADS if shape[1] > 1] + [(ATTENTIONS[1], False)])
def test_gradients_of_attention(ocl_device, shape, tensor_cores, dtype, tmp_path):
    """The gradients read the row maxima and sums that the forward kernel stores. If the tensor core kernel of the
    gradient is disabled, the portable kernel computes it."""
    call, tensors = attention(shape, dtype)
    weight = torch.randn(*shape[0][:3], shape[3]).to(dtype)

    def gradients(function, device, of):
        q, k, v, *mask = (x.to(device, of if x.is_floating_point() else None) for x in tensors)
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(function(*leaves, *mask), leaves, weight.to(device, of))

    torch._dynamo.reset()
    function = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)
    with config.override(dump=str(tmp_path), disable="warpgroup" if tensor_cores else "warpgroup,attention_gradient_warp"):
        ours = gradients(function, ocl_device, dtype)
    texts = [path.read_text() for path in tmp_path.rglob("*.cl")]
    assert any("// kernels/attention/warp.cl" in text for text in texts)
    on_tensor_cores = tensor_cores and (dtype != torch.float32 or max(shape[0][3], shape[3]) <= 64)
    for number in (1, 2):
        kernels = [text for text in texts if "// kernels/attention/gradient_warp.cl" in text]
        assert any(f"#define PASS {number}\n" in text for text in kernels) == on_tensor_cores
    allowed = {torch.bfloat16: 2e-3, torch.float16: 3e-4}.get(dtype, 5e-7)
    for got, plain, exact in zip(
        ours, gradients(call, "cpu", dtype), gradients(call, "cpu", torch.float64), strict=True
    ):
        error, limit = ((x.double().cpu() - exact).pow(2).mean().sqrt() for x in (got, plain))
        assert error <= 2 * limit + allowed * exact.pow(2).mean().sqrt(), (error, limit)


def test_without_tensor_cores(ocl_device, tmp_path):
    torch._dynamo.reset()
    a = torch.randn(256, 256)
    with config.override(dump=str(tmp_path), disable="warpgroup,warp"):
        got = torch.compile(torch.mm, backend="ocl")(a.to(ocl_device), a.to(ocl_device))
    assert not any("mma.sync" in path.read_text() for path in tmp_path.rglob("*.cl"))
    torch.testing.assert_close(got.cpu(), a @ a, rtol=1e-4, atol=1e-4)
