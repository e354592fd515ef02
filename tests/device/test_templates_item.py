"""tests/device/test_templates_item.py: convolutions and packs of */item.cl alone, with default epilogue macros,
against fp64."""
import pytest
import torch
import torch.nn.functional as F
from cl_binding import Long, devices

DEVICES = devices()
WIDTHS = [16, 8, 4]  # Values of the macro VW.
pytestmark = [pytest.mark.skipif(not DEVICES, reason="no OpenCL CPU device"), pytest.mark.sampled(first=10)]


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def agree(got: torch.Tensor, reference: torch.Tensor, terms: int) -> None:
    """Allows the error of fp32 sums of `terms` products of N(0, 1) numbers.

    The rms error is about 2.5e-8 * terms; the largest of many elements has up to 8 times that.
    """
    assert not got.isnan().any(), "not every element was written"
    error = (got.double() - reference).abs().max().item()
    assert error <= 4e-7 * (terms + 8), f"error {error:.2e} for {terms} terms"


def poison(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"))


def pack_panels(b: torch.Tensor, panel: int) -> torch.Tensor:
    """Packs [..., K, N] into [..., ceil(N/panel), K, panel], padded with zeros."""
    n = b.shape[-1]
    b = F.pad(b, (0, ceil(n, panel) * panel - n))
    return b.unflatten(-1, (-1, panel)).transpose(-2, -3).contiguous()


@pytest.mark.parametrize("VW", WIDTHS)
@pytest.mark.parametrize("layout", [0, 1, 2])
def test_pack(device, layout, VW):
    for N in (1, VW - 1, VW, 2 * VW, 2 * VW + 1, 5 * VW):
        for K in (1, VW - 1, VW, 31, 32, 33, 70):
            b = [torch.randn(2, K, N + 3)[:, :, :N], torch.randn(2, N, K + 1)[:, :, :K].mT, torch.randn(2, K, 2 * N)[:, :, ::2]][layout]
            panels = ceil(N, 2 * VW)
            y = poison(2, panels, K, 2 * VW)
            device.build("pack/item.cl", "pack_item", VW=VW, TN=2 * VW, K_RUN=32, B_LAYOUT=layout)(
                (panels, ceil(K, 32), 2), b, N, K, 1, Long(b.stride(0)), Long(0), b.stride(1), b.stride(2), y, panels, K)
            assert torch.equal(y, pack_panels(b, 2 * VW))


# ---- convolution ----


def nhwc(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous(memory_format=torch.channels_last)


def pack_filters(w: torch.Tensor, groups: int, panel: int,) -> torch.Tensor:
    """Packs filters [G*K, C, R, S] into [G][ceil(K/panel)][R][S][C][panel]."""
    k = w.shape[0] // groups
    w = F.pad(w.unflatten(0, (groups, k)), (0, 0, 0, 0, 0, 0, 0, ceil(k, panel) * panel - k)).unflatten(1, (-1, panel))
    # The dimensions of w are now group, panel, filter in the panel, C, R, S.
    return w.permute(0, 1, 4, 5, 3, 2).contiguous()


def conv(device, x, w, stride=(1, 1), pad=(0, 0), dil=(1, 1), groups=1, tap_block=1 << 20, gradient=False, out_hw=None, **macros):
    """Convolves, and compares with fp64. With `gradient`, x is dy [n, K, ..], and dx with the shape (n, C, *out_hw) is
    computed."""
    m = dict(VW=16, MR=6, NV=4, MT=4, RUN=0) | macros
    tn, panel = m["NV"] * m["VW"], m.get("PANEL", m["NV"] * m["VW"])
    R, S = w.shape[2:]
    if gradient:
        shape = (x.shape[0], w.shape[1] * groups, *out_hw)
        reference = torch.nn.grad.conv2d_input(shape, w.double(), x.double(), stride, pad, dil, groups)
        # The filters of the gradient: input and output channels of each group are swapped.
        swapped = w.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        packed, phases = pack_filters(swapped, groups, panel), stride
    else:
        reference = F.conv2d(x.double(), w.double(), None, stride, pad, dil, groups)
        packed, phases = pack_filters(w, groups, panel), (1, 1)
    n, channels, H, W = reference.shape
    C, K = x.shape[1] // groups, channels // groups
    # With RUN 1, the kernel needs an image that is padded already.
    if m["RUN"] == 1:
        x, pad = nhwc(F.pad(x, (pad[1], pad[1], pad[0], pad[0]))), (0, 0)
    y = poison(n, H, W, channels)
    kernel = device.build("conv/item.cl", "conv_item", DATA_GRADIENT=int(gradient), **m)
    kernel((ceil(n * ceil(H, phases[0]) * ceil(W, phases[1]), m["MR"] * m["MT"]), groups * ceil(K, tn), phases[0] * phases[1]),
           x, packed, torch.zeros(C), n, C, *x.shape[2:], K, H, W, groups, R, S, *stride, *pad, *dil, x.stride(2), x.stride(3),
           x.stride(1), tap_block, Long(x.stride(0)),
           y, H, W, channels)
    agree(y.permute(0, 3, 1, 2), reference, C * R * S)


# (N, C, H, W, K, R, S, stride, pad, dilation, groups)
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1), (2, 16, 7, 9, 64, 3, 3, 1, 1, 1, 1), (1, 33, 8, 5, 65, 3, 3, 2, 1, 1, 1), (2, 5, 13, 11, 63,
    3, 2, 3, 2, 1, 1),
    (1, 130, 6, 6, 31, 1, 1, 2, 0, 1, 1), (1, 8, 12, 12, 17, 3, 3, 1, 2, 2, 1), (1, 4, 15, 9, 20, 5, 1, 2, 3, 1, 1), (2, 12, 9, 9,
    24, 3, 3, 2, 1, 1, 3),
    (1, 6, 5, 5, 12, 3, 3, 1, 1, 1, 6), (1, 134, 6, 6, 132, 3, 3, 1, 1, 1, 2), (1, 3, 20, 20, 64, 7, 7, 2, 3, 1, 1), (2, 2, 4, 4,
    8, 2, 2, 2, 0, 1, 1), (1, 3, 3, 3, 5, 3, 3, 3, 4, 2, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(device, case):
    n, c, h, w_, k, r, s, stride, pad, dil, groups = case
    x, w = nhwc(torch.randn(n, c, h, w_)), torch.randn(k, c // groups, r, s)
    common = dict(stride=(stride, stride), pad=(pad, pad), dil=(dil, dil), groups=groups)
    conv(device, x, w, **common)
    conv(device, x, w, tap_block=2, MT=2, **common)
    conv(device, x, w, MR=12, NV=2, **common)
    for long in (0, 1):
        conv(device, x, w, MR=4, NV=1, MT=3, LONG_STORES=long, **common)
    if dil == 1 and groups == 1:
        conv(device, x, w, RUN=1, tap_block=3, **common)
    dy = nhwc(torch.randn_like(F.conv2d(x, w, None, stride, pad, dil, groups)))
    conv(device, dy, w, gradient=True, out_hw=(h, w_), **common)
    conv(device, dy, w, gradient=True, out_hw=(h, w_), tap_block=2, MT=1, **common)
    for long in (0, 1):
        conv(device, dy, w, gradient=True, out_hw=(h, w_), tap_block=2, MR=4, NV=1, LONG_STORES=long, **common)


@pytest.mark.parametrize("VW", WIDTHS)
def test_convolution_vector_widths(device, VW):
    x, w = nhwc(torch.randn(1, 20, 9, 8)), torch.randn(37, 20, 3, 3)
    for macros in (dict(NV=64 // VW if VW > 4 else 4), dict(MR=4, NV=2), dict(NV=1, PANEL=32)):
        conv(device, x, w, (2, 1), (1, 0), VW=VW, **macros)
        conv(device, nhwc(torch.randn(1, 37, 5, 6)), w, (2, 1), (1, 0), gradient=True, out_hw=(9, 8), VW=VW, **macros)


# ---- Winograd ----


def transformed_filters(w, gradient=False):
    """Returns G g G^T of filters w [K, C, 3, 3] as [16][C][K]. For the gradient of the input, the filters are turned, and their
    channels exchanged."""
    w = w.flip(2, 3).transpose(0, 1) if gradient else w
    g = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
    return torch.einsum("ir,kcrs,js->ijck", g, w, g).flatten(0, 1).contiguous()


def winograd(device, x, w, pad=(1, 1), gradient=False, out_hw=None, tile_block=5, items=2, panels_per_item=1, **macros):
    m = dict(VW=16, MR=6, NV=4) | macros
    tn = m["NV"] * m["VW"]
    if gradient:
        reference = torch.nn.grad.conv2d_input((x.shape[0], w.shape[1], *out_hw), w.double(), x.double(), 1, pad)
        pad = (2 - pad[0], 2 - pad[1])
    else:
        reference = F.conv2d(x.double(), w.double(), None, 1, pad)
    u = transformed_filters(w, gradient)
    _, C, K = u.shape
    panels = ceil(K, tn)
    u = F.pad(u, (0, panels * tn - K)).unflatten(2, (panels, tn)).transpose(1, 2).contiguous()
    n, _, H, W = reference.shape
    y, splits = poison(n, H, W, K), ceil(panels, panels_per_item)
    scratch = poison(items * splits * 16 * tile_block * (ceil(C, m["VW"]) * m["VW"] + tn))
    device.build("winograd/item.cl", "winograd_item", **m)(
        (items, splits, 1), x, u, torch.zeros(C), scratch, n, C, *x.shape[2:], K, H, W, *pad, x.stride(2), x.stride(3), tile_block,
        panels_per_item, Long(x.stride(0)), y, H, W, K)
    agree(y.permute(0, 3, 1, 2), reference, 9 * C)


@pytest.mark.parametrize("case", [(1, 1, 1, 1, 1, 1), (2, 16, 7, 6, 64, 1), (1, 17, 8, 9, 65, 0), (1, 40, 5, 5, 130, 2), (3, 64, 4,
    4, 30, 1)], ids=str)
def test_winograd(device, case):
    n, c, h, w_, k, pad = case
    x, w = nhwc(torch.randn(n, c, h, w_)), torch.randn(k, c, 3, 3)
    winograd(device, x, w, (pad, pad))
    winograd(device, x, nhwc(w), (pad, pad), tile_block=100, items=1, panels_per_item=2)
    winograd(device, nhwc(torch.randn(n, k, h + 2 * pad - 2, w_ + 2 * pad - 2)), w, (pad, pad), gradient=True, out_hw=(h, w_))
    for VW in WIDTHS:
        winograd(device, x, w, (pad, pad), VW=VW, NV=2, MR=4)


# ---- weight gradient ----


def conv_weight(device, x, dy, w_shape, stride=(1, 1), pad=(0, 0), dil=(1, 1), groups=1, splits=1, **macros):
    m = dict(VW=16, MR=8, NV=2, MT=9) | macros
    tn = m["NV"] * m["VW"]
    k, C, R, S = w_shape
    reference = torch.nn.grad.conv2d_weight(x.double(), w_shape, dy.double(), stride, pad, dil, groups)
    out, K = poison(splits, *w_shape), k // groups
    device.build("conv/weight_item.cl", "conv_weight_item", **m)(
        (groups * ceil(K, tn), ceil(R * S * C, m["MR"] * m["MT"]), splits), x, dy, x.shape[0], C, *x.shape[2:], K, *dy.shape[2:],
        groups, R, S, *stride, *pad, *dil,
        x.stride(2), x.stride(3), x.stride(1), dy.stride(2), dy.stride(3), dy.stride(1), Long(x.stride(0)), Long(dy.stride(0)),
        out, C, R, S)
    agree(out.sum(0), reference, x.shape[0] * dy.shape[2] * dy.shape[3])


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_weight_gradient(device, case):
    n, c, h, w_, k, r, s, stride, pad, dil, groups = case
    x, w_shape = nhwc(torch.randn(n, c, h, w_)), (k, c // groups, r, s)
    common = dict(stride=(stride, stride), pad=(pad, pad), dil=(dil, dil), groups=groups)
    dy = nhwc(torch.randn_like(F.conv2d(x, torch.zeros(w_shape), None, stride, pad, dil, groups)))
    conv_weight(device, x, dy, w_shape, **common)
    conv_weight(device, x.contiguous(), dy.contiguous(), w_shape, splits=3, **common)
    conv_weight(device, x, dy, w_shape, PIXEL_BLOCK=4, MT=2, splits=2, **common)
    for VW in WIDTHS:
        conv_weight(device, x, dy, w_shape, VW=VW, MR=4, NV=2, MT=1, **common)


def winograd_weight(device, x, dy, pad, splits=1, items=2, **macros):
    m = dict(VW=16, MR=8, NV=2, CB=64, KB=64, TILE_BLOCK=5) | macros
    C, K = x.shape[1], dy.shape[1]
    reference = torch.nn.grad.conv2d_weight(x.double(), (K, C, 3, 3), dy.double(), 1, pad)
    out = poison(splits, K, C, 3, 3)
    scratch = poison(items * 16 * (m["TILE_BLOCK"] * (m["CB"] + m["KB"]) + m["CB"] * m["KB"]))
    device.build("winograd/weight_item.cl", "winograd_weight_item", **m)(
        (items, 1, 1), x, dy, torch.zeros(max(C, K)), scratch, x.shape[0], C, *x.shape[2:], K, *dy.shape[2:], pad, pad,
        x.stride(2), x.stride(3), dy.stride(2), dy.stride(3), splits, Long(x.stride(0)), Long(dy.stride(0)), out, C)
    agree(out.sum(0), reference, x.shape[0] * dy.shape[2] * dy.shape[3])


@pytest.mark.parametrize("case", [(1, 16, 1, 1, 16, 1), (2, 16, 7, 6, 80, 1), (1, 48, 8, 9, 64, 0), (1, 80, 5, 5, 48, 2), (3, 64,
    4, 4, 144, 1)], ids=str)
def test_winograd_weight_gradient(device, case):
    n, c, h, w_, k, pad = case
    x = nhwc(torch.randn(n, c, h, w_))
    dy = nhwc(torch.randn(n, k, x.shape[2] + 2 * pad - 2, x.shape[3] + 2 * pad - 2))
    winograd_weight(device, x, dy, pad)
    winograd_weight(device, x, dy, pad, splits=2, items=3, CB=32, KB=96, TILE_BLOCK=4)
    for VW in WIDTHS:
        winograd_weight(device, x, dy, pad, VW=VW, MR=4, CB=32, KB=16)


def conv_weight_packed(device, x, dy, w_shape, stride, pad, dil, splits=1, items=2, **macros):
    m = dict(VW=16, MR=8, NV=2, CB=64, KB=64, PIXEL_BLOCK=5) | macros
    K, C, R, S = w_shape
    reference = torch.nn.grad.conv2d_weight(x.double(), w_shape, dy.double(), stride, pad, dil)
    out = poison(splits, *w_shape)
    scratch = poison(items * (m["PIXEL_BLOCK"] * (m["CB"] + m["KB"] + 2 * m["VW"]) + m["CB"] * m["KB"]))
    device.build("conv/weight_packed_item.cl", "conv_weight_packed_item", **m)(
        (items, 1, 1), x, dy, torch.zeros(C), scratch, x.shape[0], C, *x.shape[2:], K, *dy.shape[2:], R, S, stride, stride, pad,
        pad, dil, dil,
        x.stride(2), x.stride(3), dy.stride(2), dy.stride(3), splits, Long(x.stride(0)), Long(dy.stride(0)), out, C, R, S)
    agree(out.sum(0), reference, x.shape[0] * dy.shape[2] * dy.shape[3])


@pytest.mark.parametrize("case", [
    (1, 16, 1, 1, 16, 1, 1, 0, 1), (2, 80, 7, 6, 144, 1, 2, 0, 1), (2, 48, 9, 8, 80, 3, 2, 1, 1), (1, 16, 11, 12, 32, 3, 1, 2, 2),
    (1, 64, 9, 9, 16, 5, 3, 2, 1),
], ids=str)
def test_packed_weight_gradient(device, case):
    n, c, h, w_, k, r, stride, pad, dil = case
    x, w_shape = nhwc(torch.randn(n, c, h, w_)), (k, c, r, r)
    dy = nhwc(torch.randn_like(F.conv2d(x, torch.zeros(w_shape), None, stride, pad, dil)))
    conv_weight_packed(device, x, dy, w_shape, stride, pad, dil)
    conv_weight_packed(device, x, dy, w_shape, stride, pad, dil, splits=2, items=3, CB=32, KB=96, PIXEL_BLOCK=4)
    for VW in WIDTHS:
        conv_weight_packed(device, x, dy, w_shape, stride, pad, dil, VW=VW, MR=4, CB=32, KB=16)


# ---- depthwise ----


@pytest.mark.parametrize("VW", WIDTHS)
@pytest.mark.parametrize("case", [
    (1, 16, 1, 1, 3, 3, 1, 1, 1), (2, 37, 7, 9, 3, 3, 1, 1, 1), (2, 32, 11, 10, 3, 3, 2, 1, 1), (1, 24, 12, 12, 3, 3, 2, 1, 1), (1,
    17, 9, 14, 5, 3, 1, 2, 1),
    (1, 20, 13, 13, 3, 3, 3, 2, 1), (1, 16, 12, 11, 3, 3, 1, 2, 2), (1, 19, 13, 12, 2, 5, 2, 3, 2), (2, 16, 20, 20, 7, 7, 4, 3, 1),
], ids=str)
def test_depthwise(device, case, VW):
    n, c, h, w_, r, s, stride, pad, dil = case
    x, w = nhwc(torch.randn(n, c, h, w_)), torch.randn(c, 1, r, s)
    packed, macros = w.permute(2, 3, 0, 1).contiguous(), dict(VW=VW, R=r, S=s, STRIDE_H=stride, STRIDE_W=stride, DIL_H=dil, DIL_W=dil)
    reference = F.conv2d(x.double(), w.double(), None, stride, pad, dil, c)
    dy, (oh, ow), blocks = nhwc(torch.randn(reference.shape)), reference.shape[2:], ceil(c, VW)
    for kind, source, shape in ((0, x, reference.shape), (1, dy, x.shape)):
        y = poison(n, shape[2], shape[3], c)
        device.build("depthwise/item.cl", "depthwise_item", DEPTHWISE_KIND=kind, **macros)(
            (n * shape[2], ceil(blocks, 2), 1), source, packed, n, c, *source.shape[2:], *shape[2:], pad, pad, source.stride(2),
            source.stride(3), 2,
            Long(source.stride(0)), y, shape[2], shape[3], c)
        expected = reference if kind == 0 else torch.nn.grad.conv2d_input(x.shape, w.double(), dy.double(), stride, pad, dil, c)
        agree(y.permute(0, 3, 1, 2), expected, r * s)
    for splits in (1, 3):
        dw = poison(r, s, splits, c)
        device.build("depthwise/item.cl", "depthwise_item", DEPTHWISE_KIND=2, **macros)(
            (blocks, splits, 1), x, dy, n, c, h, w_, oh, ow, pad, pad, x.stride(2), x.stride(3), dy.stride(2), dy.stride(3),
            Long(x.stride(0)), Long(dy.stride(0)), dw, splits * c)
        agree(dw.sum(2).permute(2, 0, 1)[:, None], torch.nn.grad.conv2d_weight(x.double(), w.shape, dy.double(), stride, pad, dil,
            c), n * oh * ow)
