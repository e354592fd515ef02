# tests/device/test_packing.py: the kernel pack/group.cl, which is plain OpenCL C, alone and bit by bit on every OpenCL
# device.
"""pack/group.cl makes blocks that gemm/packed_warpgroup.cl copies to local memory. test_emulated_kernels.py multiplies
them in the emulator."""

import pytest
import torch
from cl_binding import Long, devices
from test_templates_group import ceil, launch

DEVICES = devices(cpu_only=False)
# (macro PAIRS: whether fp32 becomes pairs of fp16, dtype, macro TERMS: products that compute one fp32 product)
CASES = [
    (0, torch.float32, 3),
    (0, torch.float32, 1),
    (1, torch.float32, 3),
    (0, torch.bfloat16, 1),
    (0, torch.float16, 1),
]


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


def pairs_of(blocks: torch.Tensor) -> torch.Tensor:
    """Returns the blocks [batch, panels, steps, 64, 64] as pairs of fp16 with scales: [batch, panels, steps, floats]."""
    largest = blocks.double().abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, 2.0 ** (14 - largest.log2().floor()), 2.0**126).clamp(2.0**-114, 2.0**126)
    scaled = blocks.double() * scale
    high = scaled.half()
    low = ((scaled - high.double()) * 2048).half()
    parts = [swizzled(part.contiguous()).contiguous().flatten(3).view(torch.float32) for part in (high, low)]
    return torch.cat([*parts, scale.reciprocal().float()[..., 0]], 3)


def expected(x: torch.Tensor, pairs: int, terms: int) -> torch.Tensor:
    """Returns [batch, panels, steps, ...] as int32, packed from x [batch, width, depth]."""
    step = 64 if pairs else 128 // x.element_size()
    batch, width, depth = x.shape
    padded = torch.zeros(batch, ceil(width, 64) * 64, ceil(depth, step) * step, dtype=x.dtype)
    padded[:, :width, :depth] = x
    blocks = padded.unflatten(1, (-1, 64)).unflatten(3, (-1, step)).transpose(2, 3)  # [batch, panels, steps, 64, step]
    if pairs:
        return pairs_of(blocks.contiguous()).contiguous().view(torch.int32)
    if x.element_size() == 2:
        parts = swizzled(blocks)[:, :, :, None]
    else:
        high = tf32(blocks.contiguous())
        low = (blocks - high).view(torch.int32) + 0x1000
        parts = torch.stack([swizzled(high)] + ([swizzled(low.view(torch.float32))] if terms == 3 else []), 3)
    return parts.contiguous().flatten(4).view(torch.int32)


ORDERED = [(*case, major) for case in CASES for major in range(3)]


@pytest.mark.parametrize("pairs, dtype, terms, major", ORDERED)
@pytest.mark.parametrize("size", [(64, 64), (65, 33), (130, 200), (1, 1), (200, 129)], ids=str)
@pytest.mark.parametrize("offset", [0, 1])
def test_pack(device, pairs, dtype, terms, major, size, offset):
    (width, depth), halves = size, dtype != torch.float32
    torch.manual_seed(width + depth)
    long, short = (depth, width) if major == 1 else (width, depth)
    row = ceil(long, 8) * 8 * (2 if major == 2 else 1)
    memory = torch.randn(offset + 2 * short * row)
    if pairs:  # Lines of unlike size, and elements far smaller than the largest of their line.
        memory *= 2.0 ** torch.randint(-60, 60, memory.shape)
    memory = memory.to(dtype)
    x = memory[offset:].view(2, short, row)[:, :, :: 2 if major == 2 else 1][:, :, :long]
    x = x if major == 1 else x.mT  # [batch, width, depth]
    want = expected(x, pairs, terms)
    out = torch.full((want.numel(),), -1, dtype=torch.int32)
    macros = {
        "PAIRS": pairs,
        "MAJOR": major,
        "CHUNKED": int(major == 1 or (major == 0 and not halves)),
        "TERMS": terms,
        "VW": 4,
    }
    if halves:
        macros["IN_BF16" if dtype == torch.bfloat16 else "IN_HALF"] = 1
    steps, panels = ceil(want.shape[2], 2), want.shape[1]
    groups = (steps, panels, 2) if major == 1 else (panels, steps, 2)
    strides = [Long(s) for s in (x.stride(0), 0, x.stride(1), x.stride(2))]
    launch(
        device.build("pack/group.cl", "pack_group", **macros), groups, 256, x, width, depth, 1, *strides, out, out=out
    )
    assert torch.equal(out, want.flatten())
