"""tests/device/test_templates_group.py: each *_group.cl template alone, with its default hooks, against torch in fp64 at edge sizes.

Runs on every OpenCL device found, CPU runtimes included: slow there, but their barriers and bounds are the specification's."""
import ctypes as C
import itertools

import pytest
import torch
import torch.nn.functional as F
from cl_binding import Kernel, Long, check, devices, lib

DEVICES = devices(cpu_only=False)
torch.manual_seed(0)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def launch(kernel: Kernel, groups, local: int, *args, out: torch.Tensor) -> torch.Tensor:
    """One launch of `groups` work-groups of `local` items; `out` is among args and returned with the result in it."""
    call = kernel.bind([groups[0] * local, *groups[1:]], *args, local_size=[local] + [1] * (len(groups) - 1))
    call()
    kernel.device.finish()
    if not kernel.device.is_cpu:
        memory = next(m for m, t in call.__defaults__[0] if t is out)
        storage = out.untyped_storage()
        check(lib.clEnqueueReadBuffer(kernel.device.queue, memory, 1, C.c_size_t(0), C.c_size_t(storage.nbytes()), C.c_void_p(storage.data_ptr()), 0, None, None), "read")
    return out


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def compare(got: torch.Tensor, want: torch.Tensor, depth: int) -> None:
    """`want` in fp64; the bound is a few roundings of a random sum of `depth` terms of size about one."""
    assert got.isfinite().all()
    worst = (got.double() - want).abs().max().item()
    assert worst <= 3e-6 * max(depth, 4) ** 0.5, worst


SMALL = dict(TILE_M=32, TILE_N=64, TILE_K=8, ITEM_M=4, ITEM_N=8)
TILES = {"128x128x16": {}, "64x64x16": dict(TILE_M=64, TILE_N=64, TILE_K=16, ITEM_M=8, ITEM_N=4), "32x64x8": SMALL, "16x64x16": dict(TILE_M=16, TILE_N=64, ITEM_M=4, ITEM_N=4)}


def tile(defines):
    d = dict(TILE_M=128, TILE_N=128, ITEM_M=8, ITEM_N=8) | {k: v for k, v in defines.items() if isinstance(v, int)}
    return d["TILE_M"], d["TILE_N"], d["TILE_M"] // d["ITEM_M"] * (d["TILE_N"] // d["ITEM_N"])


def gemm(device, a, b, splits=1, **defines):
    """a [batch, M, K], b [batch, K, N], any strides."""
    batch, M, K = a.shape
    N = b.shape[2]
    defines |= dict(KERNEL_NAME="gemm", A_K_MAJOR=int(a.stride(2) == 1), B_K_MAJOR=int(b.stride(2) != 1))
    tm, tn, local = tile(defines)
    extra = []
    if splits > 1:
        defines["SPLIT_K"] = 1
        extra = [ceil(ceil(K, splits), 4) * 4]
        splits = ceil(K, extra[0])
    out = torch.full((splits, batch, M, N), float("nan"))
    strides = [Long(s) for t in (a, b) for s in t.stride()]
    launch(device.build("gemm_group.cl", "gemm", **defines), (ceil(M, tm) * ceil(N, tn), splits, batch), local, a, b, M, N, K, *strides, *extra, out, out=out)
    return out.sum(0)


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 7), (65, 63, 17), (128, 128, 16), (129, 131, 33), (40, 200, 100)], ids=str)
@pytest.mark.parametrize("tiles", TILES)
def test_gemm_sizes(device, tiles, size):
    M, N, K = size
    a, b = torch.randn(2, M, K), torch.randn(2, K, N)
    compare(gemm(device, a, b, **TILES[tiles]), a.double() @ b.double(), K)


@pytest.mark.parametrize("a_t,b_t,vec", list(itertools.product((0, 1), (0, 1), (0, 1))))
@pytest.mark.parametrize("tiles", ["128x128x16", "32x64x8"])
def test_gemm_layouts(device, tiles, a_t, b_t, vec):
    M, N, K = (132, 136, 36) if vec else (133, 70, 35)
    a = torch.randn(2, K, M).mT if a_t else torch.randn(2, M, K)
    b = torch.randn(2, N, K).mT if b_t else torch.randn(2, K, N)
    compare(gemm(device, a, b, A_VEC4=vec, B_VEC4=vec, **TILES[tiles]), a.double() @ b.double(), K)


def test_gemm_split_offset_broadcast(device):
    a, b = torch.randn(5, 33, 90)[1:, :, 8:80], torch.randn(1, 72, 44).expand(4, 72, 44)
    compare(gemm(device, a, b, splits=3, A_VEC4=0, B_VEC4=1, **SMALL), a.double() @ b.double(), 72)
    a, b = torch.randn(2, 40, 1).expand(2, 40, 30), torch.randn(2, 30, 9)  # a row repeated along k
    compare(gemm(device, a, b, **SMALL), a.double() @ b.double(), 30)
