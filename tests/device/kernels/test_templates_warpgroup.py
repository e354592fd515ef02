# tests/device/kernels/test_templates_warpgroup.py: the kernels on warpgroup tensor cores at edge sizes.
"""The tests run where a device has warpgroup tensor cores.

Each result is compared with fp64. The error may be twice that of PyTorch's own sums in the same dtype. Where TF32 is
allowed, the error may be that of operands rounded to TF32's ten bits.
"""

import pytest
import torch

from torch_ocl_compile import config

aten = torch.ops.aten

# (M, N, K, transposed operands)
GEMMS = [
    (128, 128, 32, ""), (64, 64, 16, ""), (129, 130, 33, ""), (257, 65, 100, "a"), (100, 200, 77, "b"), (300, 260, 1000, "ab"),
    (64, 4096, 512, "b"), (1000, 72, 4096, ""), (33, 36, 64, "a"),
]  # fmt: skip
# (batch, C, K, H, W, R, S, stride, padding, dilation, groups)
CONVOLUTIONS = [
    (2, 64, 64, 14, 14, 3, 3, 1, 1, 1, 1), (3, 3, 64, 31, 29, 7, 7, 2, 3, 1, 1), (2, 4, 32, 9, 9, 3, 3, 1, 1, 1, 1),
    (2, 36, 72, 13, 11, 3, 3, 2, 1, 1, 1), (2, 128, 256, 7, 7, 1, 1, 1, 0, 1, 1), (2, 64, 96, 15, 15, 1, 1, 2, 0, 1, 1),
    (1, 32, 64, 20, 17, 3, 5, 1, 2, 2, 1), (2, 64, 128, 12, 12, 3, 3, 1, 1, 1, 2), (2, 40, 48, 10, 10, 5, 5, 3, 2, 1, 1),
]  # fmt: skip
# (convolution, direction). Gradients with few channels are left out: portable kernels compute them.
DIRECTIONS = [
    (s, kind) for s in CONVOLUTIONS for kind in ("forward", "data", "weight")
    if {"forward": 24, "data": s[1], "weight": s[1] * s[5] * s[6]}[kind] >= 24
]  # fmt: skip

# (queries [batch, heads, length, head size], keys, heads of keys, head size of v, causal, mask)
ATTENTIONS = [
    ((2, 3, 197, 64), 197, 3, 64, False, None), ((2, 4, 130, 64), 257, 2, 64, True, None), ((1, 2, 64, 64), 1, 2, 64, False, None),
    ((1, 2, 65, 40), 129, 1, 24, True, None), ((2, 2, 100, 64), 150, 2, 64, False, "bool"), ((2, 2, 100, 64), 150, 2, 64, True, "float"),
    ((1, 2, 300, 36), 300, 2, 36, False, None), ((1, 2, 1000, 64), 700, 2, 64, False, None),
]  # fmt: skip
LONG_HEADS = [
    ((2, 2, 197, 128), 300, 1, 128, False, None),
    ((1, 2, 130, 80), 257, 2, 96, True, None),
    ((1, 2, 70, 128), 64, 2, 128, False, "bool"),
]

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


pytestmark = pytest.mark.needs("wgmma")


def check(call, inputs, device, folder, allowed=0.0):
    """Runs `call` compiled and compares with fp64; one of its kernels must use warpgroup tensor cores.

    `allowed`: the error allowed beyond twice PyTorch's own, relative to the size of the results.
    """
    torch._dynamo.reset()
    with config.override(dump=str(folder)):
        got = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)(
            *(x.to(device) for x in inputs)
        )
    assert any("wgmma.mma_async" in path.read_text() for path in folder.rglob("*.cl")), "another template was chosen"
    exact, plain = call(*(x.double() for x in inputs)), call(*inputs)
    error, limit = ((y.double().cpu() - exact).pow(2).mean().sqrt() for y in (got, plain))
    assert torch.isfinite(got).all()
    assert error <= 2 * limit + (allowed + 1e-7) * exact.pow(2).mean().sqrt(), (error, limit)


def matrices(m, n, k, transposed, dtype=torch.float32):
    torch.manual_seed(m + n + k)
    a = torch.randn(k, m).to(dtype).t() if "a" in transposed else torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if "b" in transposed else torch.randn(k, n).to(dtype)
    return a, b


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m,n,k,transposed", [*GEMMS, (1000, 2048, 200, "b"), (520, 1100, 136, "a")])
def test_gemm(ocl_device, m, n, k, transposed, dtype, tmp_path):
    check(lambda a, b: torch.relu(a @ b + 1), matrices(m, n, k, transposed, dtype), ocl_device, tmp_path)


# (M, N, K, transposed operands)
PACKED = [
    (2051, 2050, 2049, ""), (2048, 2304, 2176, "b"), (2100, 2200, 2072, "a"), (1930, 2500, 2200, "ab"),
    (700, 800, 40960, "a"),
]  # fmt: skip


def was_packed(folder) -> bool:
    return any("// kernels/gemm/packed_warpgroup.cl" in path.read_text() for path in folder.rglob("*.cl"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m,n,k,transposed", PACKED)
def test_packed_gemm(ocl_device, m, n, k, transposed, dtype, tmp_path):
    """In fp32 all of these products are large enough to pack their operands. In 16 bits they are read in place."""
    check(lambda a, b: torch.relu(a @ b + 1), matrices(m, n, k, transposed, dtype), ocl_device, tmp_path)
    assert was_packed(tmp_path) == (dtype == torch.float32)


@pytest.mark.parametrize("transposed", ["", "ab"])
def test_packed_tf32(ocl_device, transposed, tmp_path):
    torch.set_float32_matmul_precision("high")
    try:
        check(torch.mm, matrices(2051, 2050, 2049, transposed), ocl_device, tmp_path, 1e-3)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert was_packed(tmp_path)


def test_packed_batches(ocl_device, tmp_path):
    a, b = torch.randn(3, 1030, 1500), torch.randn(1500, 1290)
    check(lambda a, b: torch.bmm(a, b.expand(3, 1500, 1290)), (a, b), ocl_device, tmp_path)
    assert was_packed(tmp_path)


def test_a_packed_weight_is_kept(ocl_device):
    """A packed weight is kept between inference calls, until it changes."""
    torch._dynamo.reset()
    model, x = torch.nn.Linear(2048, 1030).to(ocl_device), torch.randn(2000, 2048)
    compiled = torch.compile(model, backend="ocl", options={"fallback": "error"})

    def packs() -> int:
        with torch.ocl.record() as launches, torch.no_grad():
            got = compiled(x.to(ocl_device)).cpu()
        want = x.double() @ model.weight.detach().cpu().double().t() + model.bias.detach().cpu().double()
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)
        return sum(launch.kind == "pack" for launch in launches)

    counts = [packs(), packs()]
    with torch.no_grad():
        model.weight.mul_(2)
    assert [*counts, packs(), packs()] == [2, 1, 2, 1]


@pytest.mark.parametrize("how", ["gemm", "convolution", "attention"])
def test_tf32(ocl_device, how, tmp_path):
    """If the user allows TF32, results have fewer digits; the error may be that of operands with ten bits."""
    torch.set_float32_matmul_precision("high")
    try:
        if how == "gemm":
            check(lambda a, b: a @ b, matrices(300, 260, 1000, "b"), ocl_device, tmp_path, 1e-3)
        elif how == "attention":
            check(*attention(ATTENTIONS[0], torch.float32), ocl_device, tmp_path, 2e-3)
        else:
            convolve = torch.nn.functional.conv2d
            check(convolve, (torch.randn(2, 64, 14, 14), torch.randn(64, 64, 3, 3)), ocl_device, tmp_path, 1e-3)
    finally:
        torch.set_float32_matmul_precision("highest")
    heads = [path.read_text().split("// kernels/tensor_core/operands.cl")[0] for path in tmp_path.rglob("*.cl")]
    assert any("#define TERMS 1\n" in head for head in heads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_of_an_offset_view(ocl_device, dtype, tmp_path):
    a, b = torch.randn(70, 131).to(dtype)[1:, 3:], torch.randn(128, 67).to(dtype)[:, 1:]
    check(torch.mm, (a, b), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemm_of_an_input_that_is_not_aligned(ocl_device, dtype, tmp_path):
    """The view begins at element 1, so its rows are not aligned to 16 bytes. This is known only at the call."""
    a, b = torch.randn(128 * 64 + 1).to(dtype)[1:].view(128, 64), torch.randn(64, 128).to(dtype)
    check(torch.mm, (a, b), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batched(ocl_device, dtype, tmp_path):
    check(torch.bmm, (torch.randn(5, 65, 40).to(dtype), torch.randn(5, 40, 66).to(dtype)), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, kind", DIRECTIONS, ids=lambda s: s if isinstance(s, str) else "-".join(map(str, s)))
def test_convolution(ocl_device, shape, kind, dtype, tmp_path):
    batch, c, k, h, w, r, s, stride, padding, dilation, groups = shape
    torch.manual_seed(sum(shape))
    x, weight = torch.randn(batch, c, h, w).to(dtype), torch.randn(k, c // groups, r, s).to(dtype)
    rest = (None, (stride,) * 2, (padding,) * 2, (dilation,) * 2, False, (0, 0), groups)
    dy = torch.randn_like(aten.convolution(x, weight, *rest))
    if kind == "forward":
        check(lambda x, w: aten.convolution(x, w, *rest) + 1, (x, weight), ocl_device, tmp_path)
    else:
        mask, place = ((True, False, False), 0) if kind == "data" else ((False, True, False), 1)
        check(
            lambda dy, x, w: aten.convolution_backward(dy, x, w, *rest, mask)[place],
            (dy, x, weight),
            ocl_device,
            tmp_path,
        )


def attention(shape, dtype):
    """Returns a call, and its inputs as views of [batch, length, heads, size]."""
    q, keys, heads, size, causal, mask = shape
    torch.manual_seed(sum(q) + keys)
    batch, queries = q[0], q[2]
    of = [(batch, queries, q[1], q[3]), (batch, keys, heads, q[3]), (batch, keys, heads, size)]
    tensors = [torch.randn(s).to(dtype).transpose(1, 2) for s in of]
    if mask == "bool":
        tensors.append(torch.rand(batch, 1, queries, keys) > 0.4)
        # The result of a query without visible keys is zero.
        tensors[3][0, 0, 3] = False
    elif mask == "float":
        tensors.append(torch.randn(queries, keys).to(dtype))

    def call(q, k, v, *mask):
        if causal and mask:
            bias = torch.full((queries, keys), -torch.inf, device=q.device, dtype=mask[0].dtype).triu(1)
            mask = (mask[0] + bias,)
        given = (
            {"attn_mask": mask[0].to(q.dtype) if mask[0].is_floating_point() else mask[0]}
            if mask
            else {"is_causal": causal}
        )
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != q.shape[1], **given)

    return call, tensors


@pytest.mark.parametrize("dtype, shape", [
    *((dtype, shape) for dtype in DTYPES for shape in ATTENTIONS), *((dtype, shape) for dtype in DTYPES[1:] for shape in LONG_HEADS),
])  # fmt: skip
def test_attention(ocl_device, shape, dtype, tmp_path):
    check(*attention(shape, dtype), ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_inputs_that_are_not_aligned(ocl_device, dtype, tmp_path):
    tensors = [torch.randn(2 * 3 * 70 * 64 + 1).to(dtype)[1:].view(2, 3, 70, 64) for _ in range(3)]
    check(torch.nn.functional.scaled_dot_product_attention, tensors, ocl_device, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("shape", [shape for shape in ATTENTIONS + LONG_HEADS if shape[1] > 1])
def test_gradients_of_attention(ocl_device, shape, dtype, tmp_path):
    call, tensors = attention(shape, dtype)
    torch.manual_seed(0)
    weight = torch.randn(*shape[0][:3], shape[3]).to(dtype)

    def gradients(function, device, of):
        q, k, v, *mask = (x.to(device, of if x.is_floating_point() else None) for x in tensors)
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(function(*leaves, *mask), leaves, weight.to(device, of))

    torch._dynamo.reset()
    function = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)
    with config.override(dump=str(tmp_path)):
        ours = gradients(function, ocl_device, dtype)
    texts = [path.read_text() for path in tmp_path.rglob("*.cl")]
    for number in (1, 2):
        assert any("// kernels/attention/gradient_warpgroup.cl" in text and f"#define PASS {number}\n" in text for text in texts)
    allowed = 2e-3 if dtype is torch.bfloat16 else 3e-4
    for got, plain, exact in zip(
        ours, gradients(call, "cpu", dtype), gradients(call, "cpu", torch.float64), strict=True
    ):
        error, limit = ((x.double().cpu() - exact).pow(2).mean().sqrt() for x in (got, plain))
        assert error <= 2 * limit + allowed * exact.pow(2).mean().sqrt(), (error, limit)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_under_dropout(ocl_device, dtype, tmp_path):
    """Compares with the formula of attention. v ends in an identity matrix, so the result shows the dropout mask that
    the kernel drew."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 2, 60, 16) * 0.5, torch.randn(2, 2, 60, 16) * 0.5, torch.randn(2, 2, 60, 4)
    tensors = [x.to(dtype) for x in (q, k, torch.cat((v, torch.eye(60).expand(2, 2, 60, 60)), -1))]
    weight = torch.randn(2, 2, 60, 64).to(dtype)
    torch._dynamo.reset()
    function = torch.compile(
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25),
        backend="ocl", options={"fallback": "error"}, dynamic=False,
    )  # fmt: skip
    with config.override(dump=str(tmp_path)):
        leaves = [x.to(ocl_device).requires_grad_() for x in tensors]
        out = function(*leaves)
        got = torch.autograd.grad(out, leaves, weight.to(ocl_device))
    texts = [path.read_text() for path in tmp_path.rglob("*.cl")]
    for number in (0,) if dtype is torch.float32 else (0, 1, 2):
        assert any(
            "wgmma.mma" in text and f"#define PASS {number}\n" in text and "#define DROPOUT 1\n" in text
            for text in texts
        )
    keep = (out.detach().cpu()[..., 4:] != 0).double()
    assert 0.7 < keep.mean() < 0.8
    exact = [x.double().requires_grad_() for x in tensors]
    result = (torch.softmax(exact[0] @ exact[1].mT / 4, -1) * keep / 0.75) @ exact[2]
    wanted = torch.autograd.grad(result, exact, weight.double())
    allowed = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[dtype]
    for a, b in zip((out.detach(), *got), (result.detach(), *wanted), strict=True):
        assert (a.cpu().double() - b).norm() <= allowed * b.norm()
