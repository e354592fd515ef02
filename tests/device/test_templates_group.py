"""tests/device/test_templates_group.py: convolutions of */group.cl alone, with default epilogue macros, against fp64.

The templates run on every OpenCL device. CPU runtimes are slow with them, but must give right results, too."""
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cl_binding import Kernel, Long, devices
from test_templates_item import transformed_filters

DEVICES = devices(cpu_only=False)
pytestmark = pytest.mark.sampled(first=10)
torch.manual_seed(0)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def launch(kernel: Kernel, groups, local: int, *args, out: torch.Tensor) -> torch.Tensor:
    """Launches `groups` work-groups of `local` work-items. `out` is among args and is returned with the result."""
    call = kernel.bind([groups[0] * local, *groups[1:]], *args, local_size=[local] + [1] * (len(groups) - 1))
    call()
    kernel.device.finish()
    kernel.read(call, out)
    return out


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def compare(got: torch.Tensor, want: torch.Tensor, depth: int) -> None:
    """Compares with `want` in fp64. The bound allows the rounding errors of a sum of `depth` random terms of size
    one."""
    assert got.isfinite().all()
    worst = (got.double() - want).abs().max().item()
    assert worst <= 3e-6 * max(depth, 4) ** 0.5, worst


FAMILIES = Path(__file__).resolve().parents[2] / "csrc" / "schedule" / "families"


def shipped(family: str, kind: str = "GROUP_TILE") -> dict[str, dict[str, int]]:
    """Returns the macros of each tile in a family's tiles.def, and of the first one for few registers."""
    row = rf"^{kind}\(\.rows = (\d+), \.columns = (\d+), \.item_rows = (\d+), \.item_columns = (\d+)"
    tiles = re.findall(row, (FAMILIES / family / "tiles.def").read_text(), re.M)
    found: dict[str, dict[str, int]] = {}
    for rows, columns, *item in tiles:
        name = f"{rows}x{columns}" if f"{rows}x{columns}" not in found else "{}x{} by {}x{}".format(rows, columns, *item)
        found[name] = dict(zip(("TILE_M", "TILE_N", "ITEM_M", "ITEM_N"), map(int, (rows, columns, *item)), strict=True))
    return found | {"in parts": next(iter(found.values())) | {"MULTIPLY_DEPTH": 2, "FIXED_THREADS": 1}}


CONV_TILES, WEIGHT_TILES = shipped("conv"), shipped("conv", "WEIGHT_GROUP_TILE")


def tile(defines):
    """Returns rows and columns of a tile, and the number of work-items."""
    d = dict(TILE_M=128, TILE_N=128, ITEM_M=8, ITEM_N=8) | {k: v for k, v in defines.items() if isinstance(v, int)}
    return d["TILE_M"], d["TILE_N"], d["TILE_M"] // d["ITEM_M"] * (d["TILE_N"] // d["ITEM_N"])


def nhwc(t: torch.Tensor) -> torch.Tensor:
    return t.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


# Name -> (batch, C, H, W, K, R, S, stride, pad, dilation, groups)
CONVS = {
    "3x3": (2, 16, 9, 11, 20, 3, 3, 1, 1, 1, 1),
    "3x3s2": (2, 32, 9, 8, 36, 3, 3, 2, 1, 1, 1),
    "1x1s2": (1, 20, 7, 7, 8, 1, 1, 2, 0, 1, 1),
    "3x3d2": (1, 17, 10, 9, 5, 3, 3, 1, 2, 2, 1),
    "3x3s2d3": (1, 8, 13, 12, 12, 3, 3, 2, 3, 3, 1),
    "5x3s3": (1, 6, 17, 14, 9, 5, 3, 3, 2, 1, 1),
    "groups": (2, 24, 8, 7, 36, 3, 3, 1, 1, 1, 3),
    "stem": (2, 3, 23, 21, 16, 7, 7, 2, 3, 1, 1),
    "one": (1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1),
}


def conv_tensors(case):
    n, c, h, w, k, r, s, stride, pad, dilation, groups = case
    x, weight = torch.randn(n, c, h, w), torch.randn(k, c // groups, r, s)
    return x, weight, F.conv2d(x.double(), weight.double(), None, stride, pad, dilation, groups)


def conv(device, x, packed, out_shape, case, data=0, **defines):
    """Convolves x, given by its strides, with filters that are packed as [R][S][C][groups*K]."""
    *_, r, s, stride, pad, dilation, groups = case
    batch, channels, in_h, in_w = x.shape
    _, out_channels, out_h, out_w = out_shape
    C_, K = channels // groups, out_channels // groups
    defines |= dict(KERNEL_NAME="conv", DATA_GRADIENT=data, W_VEC4=int(K % 4 == 0))
    if not defines.get("FLAT"):
        assert x.stride(1) == 1 or channels == 1
        defines |= dict(X_VEC4=int(C_ % 4 == 0), ALIGNED_BASES=int("TILE_M" in defines))
    tm, tn, local = tile(defines)
    step = stride if data else 1
    pixels = batch * ceil(out_h, step) * ceil(out_w, step)
    out = torch.full((batch, out_h, out_w, out_channels), float("nan"))
    scalars = [batch, C_, K, in_h, in_w, out_h, out_w, r, s, stride, stride, pad, pad, dilation, dilation, Long(x.stride(0)),
        x.stride(2), x.stride(3), x.stride(1)]
    launch(device.build("conv/pixels.cl conv/group.cl", "conv", **defines), (ceil(pixels, tm) * ceil(K, tn), groups, step * step), local, x,
        packed, *scalars, out, out=out)
    return out.permute(0, 3, 1, 2)


@pytest.mark.sampled(first=20)
@pytest.mark.parametrize("flat", (0, 1))
@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("tiles", CONV_TILES)
def test_conv_forward(device, tiles, name, flat):
    case = CONVS[name]
    x, weight, want = conv_tensors(case)
    constants = dict(FILTER_R=7, FILTER_S=7, FILTER_C=3) if name == "stem" else {}
    x = x if flat else nhwc(x)
    got = conv(device, x, weight.permute(2, 3, 1, 0).contiguous(), want.shape, case, FLAT=flat, **constants, **CONV_TILES[tiles])
    compare(got, want, weight[0].numel())


@pytest.mark.parametrize("flat", (0, 1))
@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("tiles", ["64x64"])
def test_conv_data(device, tiles, name, flat):
    case = CONVS[name]
    x, weight, y = conv_tensors(case)
    dy, groups = torch.randn(y.shape), case[-1]
    want = torch.nn.grad.conv2d_input(x.shape, weight.double(), dy.double(), case[7], case[8], case[9], groups)
    packed = weight.view(groups, -1, *weight.shape[1:]).permute(3, 4, 1, 0, 2).contiguous()
    got = conv(device, dy if flat else nhwc(dy), packed, x.shape, case, data=1, FLAT=flat, **CONV_TILES[tiles])
    compare(got, want, weight[:, 0].numel())


@pytest.mark.sampled(first=20)
@pytest.mark.parametrize("channels_last", (1, 0))
@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("tiles", WEIGHT_TILES)
def test_conv_weight(device, tiles, name, channels_last):
    case = CONVS[name]
    x, weight, y = conv_tensors(case)
    dy = torch.randn(y.shape)
    *_, stride, pad, dilation, groups = case
    want = torch.nn.grad.conv2d_weight(x.double(), weight.shape, dy.double(), stride, pad, dilation, groups)
    if channels_last:
        x, dy = nhwc(x), nhwc(dy)
    batch, _, H, W = x.shape
    _, filters, P, Q = dy.shape
    (_, C_, R, S), K = weight.shape, filters // groups
    defines = dict(KERNEL_NAME="dw", DY_VEC4=int(channels_last and K % 4 == 0),
        X_VEC4=int(channels_last and C_ % 4 == 0)) | WEIGHT_TILES[tiles]
    if tiles == "64x64":
        defines |= dict(FILTER_R=R, FILTER_S=S)
    tm, tn, local = tile(defines)
    split_pixels = 50 if tiles == "64x64" else batch * P * Q
    splits = ceil(batch * P * Q, split_pixels)
    out = torch.full((splits, filters, R, S, C_), float("nan"))
    scalars = [batch, C_, K, H, W, P, Q, R, S, stride, stride, pad, pad, dilation, dilation, split_pixels]
    for t in (dy, x):
        scalars += [Long(t.stride(0)), t.stride(2), t.stride(3), t.stride(1)]
    built = device.build("conv/pixels.cl conv/weight_group.cl", "dw", **defines)
    launch(built, (ceil(R * S * C_, tn) * ceil(K, tm), groups, splits), local, dy,
        x, *scalars, out, out=out)
    compare(out.sum(0).permute(0, 3, 1, 2), want, batch * P * Q)


# (batch, C, H, W, K, pad)
WINOGRADS = [(1, 1, 3, 3, 1, 0), (2, 9, 7, 10, 34, 1), (2, 16, 8, 8, 64, 1), (3, 20, 5, 13, 7, 2)]


def winograd(device, x, weight, pad, channels, data=False, **defines):
    """Convolves NHWC x with weight [K, C, 3, 3], or computes the data gradient with x = dy. channels: of a work-group."""
    u = transformed_filters(weight, data)
    _, C_, K = u.shape
    pad = 2 - pad if data else pad
    batch, _, H, W = x.shape
    P, Q = H + 2 * pad - 2, W + 2 * pad - 2
    out = torch.full((batch, P, Q, K), float("nan"))
    kernel = device.build("winograd/group.cl", "wino", KERNEL_NAME="wino", U_VEC4=int(K % 4 == 0), CHANNELS=channels, **defines)
    groups = ceil(batch * ceil(P, 2) * ceil(Q, 2), 32) * ceil(K, channels)
    launch(kernel, (groups,), 256, x, u, batch, C_, K, H, W, P, Q, pad, pad, Long(x.stride(0)), x.stride(2), x.stride(3), out, out=out)
    return out.permute(0, 3, 1, 2)


@pytest.mark.parametrize("prefetch", (0, 1))
@pytest.mark.parametrize("channels", (32, 16))
@pytest.mark.parametrize("case", WINOGRADS, ids=str)
def test_winograd(device, case, channels, prefetch):
    n, c, h, w, k, pad = case
    x, weight = nhwc(torch.randn(n, c, h, w)), torch.randn(k, c, 3, 3)
    want = F.conv2d(x.double(), weight.double(), padding=pad)
    compare(winograd(device, x, weight, pad, channels, FETCH_AHEAD=prefetch), want, c * 9)
    dy = nhwc(torch.randn(want.shape))
    want = torch.nn.grad.conv2d_input(x.shape, weight.double(), dy.double(), padding=pad)
    compare(winograd(device, dy, weight, pad, channels, data=True, FETCH_AHEAD=prefetch), want, k * 9)


# (batch, channels, H, W, filter, stride, pad, dilation)
DEPTHWISES = [(2, 32, 9, 11, 3, 1, 1, 1), (2, 70, 8, 7, 3, 2, 1, 1), (1, 8, 13, 12, 5, 2, 2, 1), (1, 5, 12, 14, 3, 3, 0, 2), (1, 4,
    10, 9, 7, 1, 3, 1), (1, 1, 3, 3, 3, 1, 0, 1)]


@pytest.mark.parametrize("channels_last", (1, 0))
@pytest.mark.parametrize("case", DEPTHWISES, ids=str)
def test_depthwise(device, case, channels_last):
    n, c, H, W, size, stride, pad, dilation = case
    x, weight = torch.randn(n, c, H, W), torch.randn(c, 1, size, size)
    want = F.conv2d(x.double(), weight.double(), None, stride, pad, dilation, c)
    dy = torch.randn(want.shape)
    if channels_last:
        x, dy = nhwc(x), nhwc(dy)
    packed, (P, Q) = weight.permute(2, 3, 1, 0).contiguous(), want.shape[2:]
    macros = dict(KERNEL_NAME="dw", FILTER_R=size, FILTER_S=size, STRIDE_H=stride, STRIDE_W=stride, DILATION_H=dilation,
        DILATION_W=dilation)
    macros["QUADS"] = int(channels_last and c % 4 == 0)
    strip = 4 if 4 % stride == 0 else stride

    def strides(t):
        return [Long(t.stride(0)), t.stride(2), t.stride(3), t.stride(1)]

    y = torch.full((n, P, Q, c), float("nan"))
    grid = (ceil(ceil(c, 4) * ceil(Q, strip), 128), P, n)
    launch(device.build("depthwise/group.cl", "dw", OPERATION=0, **macros), grid, 128, x, packed, c, H, W, P, Q, pad, pad,
        *strides(x), y, out=y)
    compare(y.permute(0, 3, 1, 2), want, size * size)

    dx = torch.full((n, H, W, c), float("nan"))
    grid = (ceil(ceil(c, 4) * ceil(W + pad % stride, strip), 128), H, n)
    launch(device.build("depthwise/group.cl", "dw", OPERATION=1, **macros), grid, 128, dy, packed, c, P, Q, H, W, pad, pad,
        *strides(dy), dx, out=dx)
    compare(dx.permute(0, 3, 1, 2), torch.nn.grad.conv2d_input(x.shape, weight.double(), dy.double(), stride, pad, dilation, c),
        size * size)

    split_strips, rows = 20, size if size * size <= 25 else 1
    splits = ceil(n * P * ceil(Q, strip), split_strips)
    dw = torch.full((size, size, splits, c), float("nan"))
    scalars = [n, c, H, W, P, Q, pad, pad, split_strips, *strides(dy), *strides(x)]
    launch(device.build("depthwise/group.cl", "dw", OPERATION=2, **macros), (ceil(c, 64), ceil(size, rows), splits), 256, dy, x,
        *scalars, dw, out=dw)
    want = torch.nn.grad.conv2d_weight(x.double(), weight.shape, dy.double(), stride, pad, dilation, c)
    compare(dw.sum(2).permute(2, 0, 1)[:, None], want, n * P * Q)
