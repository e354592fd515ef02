# tests/device/test_packing.py: the kernel pack/group.cl, which is plain OpenCL C, alone and bit by bit on every OpenCL
# device.
"""pack/group.cl makes blocks that gemm/packed_warpgroup.cl copies to local memory. test_emulated_kernels.py multiplies
them in the emulator."""

import pytest
import torch
from cl_binding import Long, devices
from test_templates_group import ceil, launch

DEVICES = devices(cpu_only=False)
FORMS = {"rows": 0, "fragments": 1}
# (form of a block, dtype, macro TERMS: TF32 products that compute one fp32 product)
CASES = [
    ("rows", torch.float32, 3), ("rows", torch.float32, 1), ("fragments", torch.float32, 3), ("rows", torch.bfloat16, 1),
    ("rows", torch.float16, 1),
]  # fmt: skip


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Returns the nearest number with ten bits of mantissa; ties go away from zero."""
    return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def swizzled(lines: torch.Tensor) -> torch.Tensor:
    """Permutes the 16-byte chunks of each line of [..., 64 lines, 128 bytes], depending on the line's number."""
    chunk = 16 // lines.element_size()
    line, place = torch.arange(64)[:, None], torch.arange(8)[None, :]
    split = lines.unflatten(-1, (8, chunk))
    return split[..., line, place ^ (line & 7), :].flatten(-2)


def expected(x: torch.Tensor, form: str, terms: int) -> torch.Tensor:
    """Returns [batch, panels, steps, parts, 8 KB as int32], packed from x [batch, width, depth]."""
    step = 128 // x.element_size()
    batch, width, depth = x.shape
    padded = torch.zeros(batch, ceil(width, 64) * 64, ceil(depth, step) * step, dtype=x.dtype)
    padded[:, :width, :depth] = x
    blocks = padded.unflatten(1, (-1, 64)).unflatten(3, (-1, step)).transpose(2, 3)  # [batch, panels, steps, 64, step]
    if form == "fragments":
        # The width has the dimensions warp 4, half 2, row 8; the depth has eighth 4, half 2, first 4. In memory they
        # are in the order warp, eighth, row, first, half of the depth, half of the width.
        parts = blocks.unflatten(3, (4, 2, 8)).unflatten(6, (4, 2, 4)).permute(0, 1, 2, 3, 6, 5, 8, 7, 4)[:, :, :, None]
    elif x.element_size() == 2:
        parts = swizzled(blocks)[:, :, :, None]
    else:
        high = tf32(blocks.contiguous())
        low = (blocks - high).view(torch.int32) + 0x1000
        parts = torch.stack([swizzled(high)] + ([swizzled(low.view(torch.float32))] if terms == 3 else []), 3)
    return parts.contiguous().flatten(4).view(torch.int32)


ORDERED = [(*case, major) for case in CASES for major in range(3)]


@pytest.mark.parametrize("form, dtype, terms, major", ORDERED)
@pytest.mark.parametrize("size", [(64, 64), (65, 33), (130, 200), (1, 1), (200, 129)], ids=str)
@pytest.mark.parametrize("offset", [0, 1])
def test_pack(device, form, dtype, terms, major, size, offset):
    (width, depth), halves = size, dtype != torch.float32
    torch.manual_seed(width + depth)
    long, short = (depth, width) if major == 1 else (width, depth)
    row = ceil(long, 8) * 8 * (2 if major == 2 else 1)
    memory = torch.randn(offset + 2 * short * row).to(dtype)
    x = memory[offset:].view(2, short, row)[:, :, :: 2 if major == 2 else 1][:, :, :long]
    x = x if major == 1 else x.mT  # [batch, width, depth]
    want = expected(x, form, terms)
    out = torch.full((want.numel(),), -1, dtype=torch.int32)
    macros = {
        "FORM": FORMS[form],
        "MAJOR": major,
        "CHUNKED": int(major == 1 or (major == 0 and not halves)),
        "TERMS": terms,
        "VW": 4,
    }
    if halves:
        macros["IN_BF16" if dtype == torch.bfloat16 else "IN_HALF"] = 1
    pairs, panels = ceil(want.shape[2], 2), want.shape[1]
    groups = (pairs, panels, 2) if major == 1 else (panels, pairs, 2)
    strides = [Long(s) for s in (x.stride(0), 0, x.stride(1), x.stride(2))]
    launch(
        device.build("pack/group.cl", "pack_group", **macros), groups, 256, x, width, depth, 1, *strides, out, out=out
    )
    assert torch.equal(out, want.flatten())
