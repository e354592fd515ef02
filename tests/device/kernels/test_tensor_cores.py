# tests/device/kernels/test_tensor_cores.py: products, convolutions and attention on warp and warpgroup tensor cores.
"""The tests run where a device has the instructions of the level. On warps, `disable` takes the kernels of warpgroups away.
test_kernels.py and test_emulated_kernels.py have batches, slices, operands that are not aligned, and dropout.

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

# Level -> the instruction in its kernels, and the option `disable`, which chooses it.
INSTRUCTIONS = {"warp": "mma.sync", "warpgroup": "wgmma.mma_async"}
DISABLED = {"warp": "warpgroup", "warpgroup": ""}
warp, warpgroup = pytest.mark.needs("mma"), pytest.mark.needs("wgmma")
on_levels = pytest.mark.parametrize(
    "level", [pytest.param("warp", marks=warp), pytest.param("warpgroup", marks=warpgroup)]
)
in_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def texts_in(folder):
    return [path.read_text() for path in folder.rglob("*.cl")]


def check(call, inputs, device, folder, level, allowed=0.0):
    """Runs `call` compiled and compares with fp64; one of its kernels must use the tensor cores of the level.

    `allowed`: the error allowed beyond twice PyTorch's own, relative to the size of the results.
    """
    torch._dynamo.reset()
    with config.override(dump=str(folder), disable=DISABLED[level]):
        got = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)(
            *(x.to(device) for x in inputs)
        )
    assert any(INSTRUCTIONS[level] in text for text in texts_in(folder)), "another template was chosen"
    exact, plain = call(*(x.double() for x in inputs)), call(*inputs)
    assert torch.isfinite(got).all()
    assert_close_to(exact, got, plain, allowed + 1e-7)


def assert_close_to(exact, got, plain, allowed):
    error, limit = ((y.double().cpu() - exact).pow(2).mean().sqrt() for y in (got, plain))
    assert error <= 2 * limit + allowed * exact.pow(2).mean().sqrt(), (error, limit)


def matrices(m, n, k, transposed, dtype=torch.float32):
    torch.manual_seed(m + n + k)
    a = torch.randn(k, m).to(dtype).t() if "a" in transposed else torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if "b" in transposed else torch.randn(k, n).to(dtype)
    return a, b


@in_dtypes
@pytest.mark.parametrize(
    "m,n,k,transposed", [*GEMMS, (1000, 2048, 200, "b"), (520, 1100, 136, "a"), (2051, 2050, 2049, "")]
)
@on_levels
def test_gemm(ocl_device, m, n, k, transposed, dtype, level, tmp_path):
    check(lambda a, b: torch.relu(a @ b + 1), matrices(m, n, k, transposed, dtype), ocl_device, tmp_path, level)


# (M, N, K, transposed operands)
PACKED = [
    (2051, 2050, 2049, ""), (2048, 2304, 2176, "b"), (2100, 2200, 2072, "a"), (1930, 2500, 2200, "ab"),
    (700, 800, 40960, "a"),
]  # fmt: skip


def was_packed(folder) -> bool:
    return any("// kernels/gemm/packed_warpgroup.cl" in text for text in texts_in(folder))


@in_dtypes
@pytest.mark.parametrize("m,n,k,transposed", PACKED)
@warpgroup
def test_packed_gemm(ocl_device, m, n, k, transposed, dtype, tmp_path):
    """In fp32 all of these products are large enough to pack their operands. In 16 bits they are read in place."""
    check(lambda a, b: torch.relu(a @ b + 1), matrices(m, n, k, transposed, dtype), ocl_device, tmp_path, "warpgroup")
    assert was_packed(tmp_path) == (dtype == torch.float32)


@pytest.fixture
def tf32():
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("transposed", ["", "ab"])
@warpgroup
def test_packed_tf32(ocl_device, transposed, tmp_path, tf32):
    check(torch.mm, matrices(2051, 2050, 2049, transposed), ocl_device, tmp_path, "warpgroup", 1e-3)
    assert was_packed(tmp_path)


@warpgroup
def test_packed_batches(ocl_device, tmp_path):
    a, b = torch.randn(3, 1030, 1500), torch.randn(1500, 1290)
    check(lambda a, b: torch.bmm(a, b.expand(3, 1500, 1290)), (a, b), ocl_device, tmp_path, "warpgroup")
    assert was_packed(tmp_path)


@warpgroup
def test_a_packed_weight_is_kept(ocl_device):
    """A packed weight is kept between inference calls, until it changes."""
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


@pytest.mark.parametrize("level, how", [
    *(pytest.param("warp", transposed, marks=warp) for transposed in ("", "a", "b", "ab")),
    *(pytest.param("warpgroup", how, marks=warpgroup) for how in ("b", "convolution", "attention")),
])  # fmt: skip
def test_tf32(ocl_device, level, how, tmp_path, tf32):
    """If the user allows TF32, results have fewer digits; the error may be that of operands with ten bits."""
    if how == "attention":
        check(*attention(ATTENTIONS[0], torch.float32), ocl_device, tmp_path, level, 2e-3)
    elif how == "convolution":
        inputs = torch.randn(2, 64, 14, 14), torch.randn(64, 64, 3, 3)
        check(torch.nn.functional.conv2d, inputs, ocl_device, tmp_path, level, 1e-3)
    else:
        check(torch.mm, matrices(300, 260, 1000, how), ocl_device, tmp_path, level, 1e-3)
    assert any(
        "#define TERMS 1\n" in text.split("// kernels/tensor_core/operands.cl")[0] for text in texts_in(tmp_path)
    )


@in_dtypes
@pytest.mark.parametrize("shape, kind", DIRECTIONS, ids=lambda s: s if isinstance(s, str) else "-".join(map(str, s)))
@on_levels
def test_convolution(ocl_device, shape, kind, dtype, level, tmp_path):
    batch, c, k, h, w, r, s, stride, padding, dilation, groups = shape
    torch.manual_seed(sum(shape))
    x, weight = torch.randn(batch, c, h, w).to(dtype), torch.randn(k, c // groups, r, s).to(dtype)
    rest = (None, (stride,) * 2, (padding,) * 2, (dilation,) * 2, False, (0, 0), groups)
    if kind == "forward":
        check(lambda x, w: aten.convolution(x, w, *rest) + 1, (x, weight), ocl_device, tmp_path, level)
        return
    wanted = kind == "weight"
    dy = torch.randn_like(aten.convolution(x, weight, *rest))

    def gradient(dy, x, w):
        return aten.convolution_backward(dy, x, w, *rest, (not wanted, wanted, False))[wanted]

    check(gradient, (dy, x, weight), ocl_device, tmp_path, level)


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


@pytest.mark.parametrize("level, shape, dtype", [
    *(pytest.param("warp", shape, dtype, marks=warp) for dtype in DTYPES for shape in ATTENTIONS + LONG_HEADS),
    *(pytest.param("warpgroup", shape, dtype, marks=warpgroup) for dtype in DTYPES for shape in ATTENTIONS),
    *(pytest.param("warpgroup", shape, dtype, marks=warpgroup) for dtype in DTYPES[1:] for shape in LONG_HEADS),
])  # fmt: skip
def test_attention(ocl_device, level, shape, dtype, tmp_path):
    check(*attention(shape, dtype), ocl_device, tmp_path, level)


WITH_HEADS = [shape for shape in ATTENTIONS + LONG_HEADS if shape[1] > 1]


@pytest.mark.parametrize("level, shape, dtype, tensor_cores", [
    *(pytest.param("warp", shape, dtype, True, marks=warp) for dtype in DTYPES for shape in WITH_HEADS),
    *(pytest.param("warp", ATTENTIONS[1], dtype, False, marks=warp) for dtype in DTYPES),
    *(pytest.param("warpgroup", shape, dtype, True, marks=warpgroup) for dtype in DTYPES[1:] for shape in WITH_HEADS),
])  # fmt: skip
def test_gradients_of_attention(ocl_device, level, shape, dtype, tensor_cores, tmp_path):
    """The gradients read the row maxima and sums that the forward kernel stores. If the tensor core kernel of the
    gradient is disabled, the portable kernel computes it."""
    call, tensors = attention(shape, dtype)
    torch.manual_seed(0)
    weight = torch.randn(*shape[0][:3], shape[3]).to(dtype)

    def gradients(function, device, of):
        q, k, v, *mask = (x.to(device, of if x.is_floating_point() else None) for x in tensors)
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(function(*leaves, *mask), leaves, weight.to(device, of))

    function = torch.compile(call, backend="ocl", options={"fallback": "error"}, dynamic=False)
    with config.override(
        dump=str(tmp_path), disable=DISABLED[level] if tensor_cores else "warpgroup,attention_gradient_warp"
    ):
        ours = gradients(function, ocl_device, dtype)
    texts = texts_in(tmp_path)
    assert level == "warpgroup" or any("// kernels/attention/warp.cl" in text for text in texts)
    on_tensor_cores = tensor_cores and (dtype != torch.float32 or max(shape[0][3], shape[3]) <= 64)
    kernels = [text for text in texts if f"// kernels/attention/gradient_{level}.cl" in text]
    for number in (1, 2):
        assert any(f"#define PASS {number}\n" in text for text in kernels) == on_tensor_cores
    allowed = {torch.bfloat16: 2e-3, torch.float16: 3e-4}.get(dtype, 5e-7)
    plain, exact = (gradients(call, "cpu", of) for of in (dtype, torch.float64))
    for parts in zip(exact, ours, plain, strict=True):
        assert_close_to(*parts, allowed)
