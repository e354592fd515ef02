"""tests/device/test_templates_group_attention.py: attention/group.cl alone, with each tile, its default epilogue macros and
both values of FEW_REGISTERS, and attention/few_rows_group.cl, against fp64. Dropout is tested in test_attention.py."""

import pytest
import torch
from cl_binding import Long
from test_templates_group import DEVICES, ceil, compare

FILES = "base/philox.cl attention/parameters.cl attention/dense_output.cl attention/group_tiles.cl attention/group.cl"
FEW_ROWS = "attention/parameters.cl attention/dense_output.cl attention/few_rows_group.cl"
# rows, columns, STEP, FEW_REGISTERS
TILES = [
    (64, 64, 16, 0),
    (32, 64, 8, 0),
    (64, 64, 8, 1),
    (32, 64, 8, 1),
    (32, 128, 8, 1),
    (16, 128, 8, 1),
    (16, 256, 8, 1),
]
# batch, heads, heads of k and v, queries, keys, head size of q and k, head size of v, causal, mask
CASES = [(2, 2, 1, 70, 65, 16, 16, 0, 0), (1, 3, 3, 33, 130, 64, 40, 0, 3), (1, 2, 1, 100, 100, 20, 68, 1, 0),
         (1, 1, 1, 65, 90, 128, 128, 0, 1), (1, 1, 1, 17, 300, 200, 256, 1, 0), (1, 2, 2, 1, 66, 33, 31, 0, 0)]  # fmt: skip

pytestmark = pytest.mark.sampled(first=10)


@pytest.fixture(params=DEVICES, ids=repr)
def device(request):
    return request.param


def strides(x: torch.Tensor) -> list[Long]:
    return [Long(s) for s in x.stride()[:3]]


def problem(case):
    """Returns the operands of a case, the results in fp64 (output, sums, gradients of q, k and v), and what a kernel gets of
    the mask."""
    batch, heads, kv_heads, queries, keys, depth, depth2, causal, mask_kind = case
    torch.manual_seed(0)
    q, k = torch.randn(batch, heads, queries, depth), torch.randn(batch, kv_heads, keys, depth)
    v, dout = torch.randn(batch, kv_heads, keys, depth2), torch.randn(batch, heads, queries, depth2)
    mask = {0: None, 1: torch.rand(batch, 1, queries, keys) > 0.3, 3: torch.randn(batch, 1, queries, keys)}[mask_kind]
    if mask_kind == 1:
        mask[..., 0] = True  # Each query sees a key.

    wide = [x.double().requires_grad_() for x in (q, k, v)]
    grouped = [x.repeat_interleave(heads // kv_heads, 1) for x in wide[1:]]
    scores = wide[0] @ grouped[0].mT * 0.125
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask_kind == 1 else scores + mask.double()
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), -torch.inf)
    want = scores.softmax(-1) @ grouped[1]
    gradients = torch.autograd.grad(want, wide, dout.double())
    largest = scores.detach().amax(-1)
    sums = torch.stack([largest, (scores.detach() - largest[..., None]).exp().sum(-1)])
    tail = [] if mask is None else [mask.view(torch.uint8) if mask_kind == 1 else mask]
    mask_strides = [] if mask is None else [Long(mask.stride(0)), Long(0), Long(mask.stride(2)), Long(mask.stride(3))]
    return (q, k, v, dout), (want.detach(), sums, gradients), (tail, mask_strides)


@pytest.mark.parametrize(("items", "held"), [(256, 8), (128, 4)])
@pytest.mark.parametrize("case", [*CASES, (2, 4, 2, 3, 517, 64, 64, 0, 3), (1, 2, 2, 1, 300, 8, 8, 0, 1)], ids=str)
def test_attention_few_rows(device, case, items, held):
    _, heads, kv_heads, queries, keys, depth, depth2, causal, mask_kind = case
    (q, k, v, _), (want, want_sums, _), (tail, mask_strides) = problem(case)
    kernel = device.build(FEW_ROWS, "attend", KERNEL_NAME="attend", DEPTH=depth, DEPTH2=depth2, WIDTH=depth2, CAUSAL=causal,
        MASK=mask_kind, VW=4, GROUP_SIZE=items, MOST_HELD=held, WHOLE_PARTS=int(depth % 4 == 0 and depth2 % 4 == 0))  # fmt: skip
    out, sums = torch.full(want.shape, torch.nan), torch.full(want_sums.shape, torch.nan)
    call = kernel.bind([queries * items, heads, len(q)], q, k, v, *tail, heads, heads // kv_heads, queries, keys, *strides(q),
        *strides(k), *strides(v), *mask_strides, out, sums, queries, local_size=[items, 1, 1])  # fmt: skip
    call()
    device.finish()
    kernel.read(call, out)
    kernel.read(call, sums)
    compare(out, want, keys + depth)
    compare(sums / want_sums.abs().clamp_min(1), want_sums / want_sums.abs().clamp_min(1), keys + depth)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_group(device, case, tile):
    batch, heads, kv_heads, queries, keys, depth, depth2, causal, mask_kind = case
    rows, columns, step, few = tile
    (q, k, v, dout), (want, want_sums, gradients), (tail, mask_strides) = problem(case)
    items = rows * columns // 16

    def run(pass_: int, inputs: list[torch.Tensor], others: list[Long], y: torch.Tensor, y1: torch.Tensor) -> None:
        kernel = device.build(FILES, "attend", KERNEL_NAME="attend", PASS=pass_, DEPTH=depth, DEPTH2=depth2,
            WIDTH=depth if pass_ else depth2, CAUSAL=causal, MASK=mask_kind, TILE_R=rows, TILE_C=columns, STEP=step,
            FEW_REGISTERS=few, MULTIPLY_DEPTH=2 if few else 16, QUADS=int(depth % 4 == 0 and depth2 % 4 == 0))  # fmt: skip
        groups = (ceil(keys if pass_ == 2 else queries, rows), kv_heads if pass_ == 2 else heads, batch)
        call = kernel.bind([groups[0] * items, *groups[1:]], *inputs, *tail, heads, heads // kv_heads, queries, keys, *others,
            *mask_strides, y, y1, keys if pass_ == 2 else queries, local_size=[items, 1, 1])  # fmt: skip
        call()
        device.finish()
        kernel.read(call, y)
        kernel.read(call, y1)

    out, sums = torch.full(want.shape, torch.nan), torch.full((2, batch, heads, queries), torch.nan)
    run(0, [q, k, v], [*strides(q), *strides(k), *strides(v)], out, sums)
    compare(out, want, keys + depth)
    compare(sums / want_sums.abs().clamp_min(1), want_sums / want_sums.abs().clamp_min(1), keys + depth)

    delta = (dout * out).sum(-1)
    statistics = [Long(s) for s in (*sums.stride()[:3], *delta.stride()[:2])]
    dq, unused = torch.full(q.shape, torch.nan), torch.zeros(1)
    run(1, [q, k, k, dout, v, sums, delta], [*strides(q), *strides(k), *strides(k), *strides(dout), *strides(v), *statistics],
        dq, unused)  # fmt: skip
    compare(dq, gradients[0], 8 * (keys + depth))
    dk, dv = torch.full(k.shape, torch.nan), torch.full(v.shape, torch.nan)
    run(2, [k, q, q, v, dout, sums, delta, dout],
        [*strides(k), *strides(q), *strides(q), *strides(v), *strides(dout), *statistics, *strides(dout)], dk, dv)  # fmt: skip
    compare(dk, gradients[1], 8 * (queries * heads // kv_heads + depth))
    compare(dv, gradients[2], 8 * (queries * heads // kv_heads + depth))
