# tests/device/distributed/distributed_collectives.py: checks of each collective, compared with gloo on CPU tensors.
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.testing import assert_close

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64,
    torch.bool,
)  # fmt: skip
MOVED_ONLY = (torch.int16, torch.uint16, torch.complex64, torch.float8_e4m3fn)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OPS = (
    ReduceOp.SUM,
    ReduceOp.AVG,
    ReduceOp.PRODUCT,
    ReduceOp.MIN,
    ReduceOp.MAX,
    ReduceOp.BAND,
    ReduceOp.BOR,
    ReduceOp.BXOR,
)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
# The number of fp32 elements of a tensor that is sent in more than one piece of 4 MiB.
LONG = 1_500_000


def allowed(dtype, op):
    if op in BITWISE:
        return dtype not in FLOATS
    return op != ReduceOp.AVG or dtype in FLOATS


def values(me, count, dtype, rank=None):
    """Returns small numbers that depend on the rank. Sums and products over 4 ranks do not overflow."""
    generator = torch.Generator().manual_seed(17 + (me.rank if rank is None else rank))
    return torch.randint(0, 3, (count,), generator=generator).to(dtype)


def both(me, count, dtype):
    host = values(me, count, dtype)
    return host, host.to(me.device)


def same(mine, reference):
    kind = torch.uint8 if mine.dtype.itemsize == 1 else mine.dtype
    assert mine.dtype == reference.dtype
    assert_close(mine.cpu().view(kind), reference.view(kind), rtol=0, atol=0)


def check_all_reduce(me):
    for dtype in DTYPES:
        for op in filter(lambda op: allowed(dtype, op), OPS):
            host, mine = both(me, 37, dtype)
            dist.all_reduce(host, op=op)
            dist.all_reduce(mine, op=op)
            if dtype == torch.bool:
                host = host.view(torch.uint8).bool()
            if dtype in (torch.float16, torch.bfloat16) and op == ReduceOp.AVG:
                assert_close(mine.cpu(), host)
            elif dtype != torch.bool or op != ReduceOp.SUM:
                same(mine, host)


def check_reductions_that_gloo_lacks(me):
    short = [values(me, 9, torch.int16, rank) for rank in range(me.size)]
    mine = short[me.rank].to(me.device)
    dist.all_reduce(mine)
    same(mine, torch.stack(short).sum(0).to(torch.int16))
    scaled = values(me, 9, torch.bfloat16).to(me.device)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    expected = sum(values(me, 9, torch.float32, rank) * 0.5 for rank in range(me.size))
    same(scaled, expected.bfloat16())
    mine = torch.full((3,), 2 + 1j, device=me.device)
    dist.all_reduce(mine)
    assert mine.tolist() == [me.size * (2 + 1j)] * 3
    with_bool = torch.tensor([me.rank == 0, False], device=me.device)
    dist.all_reduce(with_bool)
    assert with_bool.tolist() == [True, False]


def check_halves_are_summed_in_fp32(me):
    """1 + 2**-11 + 2**-11 in fp16 is 1 if each sum is rounded, and 1 + 2**-10 if only the result is."""
    x = torch.tensor([1.0 if me.rank == 0 else 2.0**-11], dtype=torch.float16, device=me.device)
    dist.all_reduce(x)
    exact = torch.tensor([1 + (me.size - 1) * 2.0**-11], dtype=torch.float64).half()
    assert x.cpu().tolist() == exact.tolist()


def check_refused_reductions(me):
    for dtype, op in ((torch.int32, ReduceOp.AVG), (torch.float32, ReduceOp.BAND), (torch.float8_e4m3fn, ReduceOp.SUM)):
        with pytest.raises(NotImplementedError, match="ReduceOp"):
            dist.all_reduce(torch.zeros(3, device=me.device).to(dtype), op=op)


def check_moves(me):
    for dtype in DTYPES + MOVED_ONLY:
        host = values(me, 8 * me.size, dtype)
        every = [values(me, 8 * me.size, dtype, rank) for rank in range(me.size)]
        mine = host.to(me.device)
        gathered = [torch.empty_like(mine) for _ in range(me.size)]
        dist.all_gather(gathered, mine)
        for one, reference in zip(gathered, every, strict=True):
            same(one, reference)
        whole = torch.empty(8 * me.size**2, dtype=dtype, device=me.device)
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat(every))
        sent = mine.clone()
        dist.broadcast(sent, src=me.size - 1)
        same(sent, every[-1])
        swapped = torch.empty_like(mine)
        dist.all_to_all_single(swapped, mine)
        same(swapped, torch.cat([e.view(me.size, 8)[me.rank] for e in every]))


def check_reduce(me):
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        host, mine = both(me, 21, dtype)
        before = mine.clone()
        dist.reduce(host, dst=1)
        dist.reduce(mine, dst=1)
        same(mine, host if me.rank == 1 else before.cpu())


def check_reduce_scatter(me):
    for dtype in DTYPES[:-1]:
        for op in filter(lambda op: allowed(dtype, op), OPS):
            host = values(me, 5 * me.size, dtype)
            every = host.clone()
            dist.all_reduce(every, op=op)
            result = torch.empty(5, dtype=dtype, device=me.device)
            dist.reduce_scatter_tensor(result, host.to(me.device), op=op)
            assert_close(result.cpu(), every.view(me.size, 5)[me.rank])
            parts = list(host.to(me.device).chunk(me.size))
            dist.reduce_scatter(result, parts, op=op)
            assert_close(result.cpu(), every.view(me.size, 5)[me.rank])


def check_gather_and_scatter(me):
    mine = values(me, 6, torch.float32).to(me.device)
    received = [torch.empty_like(mine) for _ in range(me.size)] if me.rank == 0 else None
    dist.gather(mine, received, dst=0)
    for rank, one in enumerate(received or []):
        same(one, values(me, 6, torch.float32, rank))
    result = torch.empty_like(mine)
    dist.scatter(result, received, src=0)
    same(result, mine.cpu())


def check_uneven_all_to_all(me):
    """Rank r sends r + s + 1 rows to rank s."""
    sizes = [me.rank + other + 1 for other in range(me.size)]
    sent = torch.full((sum(sizes), 2), float(me.rank), device=me.device)
    got = torch.empty(sum(sizes), 2, device=me.device)
    dist.all_to_all_single(got, sent, sizes, sizes)
    expected = torch.cat([torch.full((size, 2), float(rank)) for rank, size in enumerate(sizes)])
    same(got, expected)
    lists = [torch.empty(size, 2, device=me.device) for size in sizes]
    dist.all_to_all(lists, list(sent.split(sizes)))
    same(torch.cat(lists), expected)


def check_long_tensors(me):
    """The tensors are sent in several pieces, of which the last one is shorter."""
    host = torch.arange(LONG, dtype=torch.float32) % 1001 + me.rank
    mine = host.to(me.device)
    dist.all_reduce(mine)
    total = sum((torch.arange(LONG, dtype=torch.float32) % 1001 + rank) for rank in range(me.size))
    same(mine, total)
    out = torch.empty(LONG * me.size, device=me.device)
    dist.all_gather_into_tensor(out, host.to(me.device))
    for rank, part in enumerate(out.chunk(me.size)):
        same(part, torch.arange(LONG, dtype=torch.float32) % 1001 + rank)
    part = torch.empty(LONG, device=me.device)
    dist.reduce_scatter_tensor(part, out)
    same(part, (torch.arange(LONG, dtype=torch.float32) % 1001 + me.rank) * me.size)
    moved = host.to(me.device) if me.rank == 0 else torch.zeros(LONG, device=me.device)
    if me.rank == 0:
        dist.send(moved, 1, tag=1)
    elif me.rank == 1:
        dist.recv(moved, tag=1)
    if me.rank < 2:
        same(moved, torch.arange(LONG, dtype=torch.float32) % 1001)


def check_views_and_empty(me):
    whole = torch.ones(4, 6, device=me.device)
    dist.all_reduce(whole[1:3])
    assert whole.sum(1).tolist() == [6, 6 * me.size, 6 * me.size, 6]
    turned = torch.ones(3, 2, device=me.device).t()
    dist.all_reduce(turned)
    assert turned.sum().item() == 6 * me.size
    dist.all_reduce(torch.empty(0, device=me.device))
    with pytest.raises(ValueError, match="contiguous"):
        dist.all_reduce(whole[:, :2])


def check_point_to_point(me):
    """Each rank sends and receives at the same time; a receive without a source returns its sender."""
    other = (me.rank + 1) % me.size
    before = (me.rank - 1) % me.size
    sent, got = torch.full((LONG,), float(me.rank), device=me.device), torch.zeros(LONG, device=me.device)
    ops = [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got[0].item() == before and got[-1].item() == before
    tags = [torch.full((3,), float(tag), device=me.device) for tag in (5, 6)]
    results = [torch.zeros(3, device=me.device) for _ in tags]
    works = [dist.isend(t, other, tag=tag) for t, tag in zip(tags, (5, 6), strict=True)]
    works += [dist.irecv(results[i], before, tag=tag) for i, tag in ((1, 6), (0, 5))]
    for work in works:
        work.wait()
    assert [r[0].item() for r in results] == [5, 6]
    for tag in (7,) if me.uses_nccl else (0, 7):
        if me.rank == 0:
            sources = [dist.recv(torch.zeros(1, device=me.device), tag=tag) for _ in range(me.size - 1)]
            assert sorted(sources) == list(range(1, me.size))
        else:
            dist.send(torch.ones(1, device=me.device), 0, tag=tag)
    x = torch.full((2,), float(me.rank), device=me.device)
    if me.rank == 0:
        dist.send(x, 1)
    elif me.rank == 1:
        dist.recv(x, 0)
        assert x.tolist() == [0, 0]


def check_coalesced(me):
    tensors = [torch.full((4,), float(i + me.rank), device=me.device) for i in range(3)]
    with dist._coalescing_manager(device=me.device, async_ops=True) as works:
        for tensor in tensors:
            dist.all_reduce(tensor)
    works.wait()
    ranks = sum(range(me.size))
    assert [t[0].item() for t in tensors] == [ranks + i * me.size for i in range(3)]


def check_subgroups(me):
    evens = dist.new_group(list(range(0, me.size, 2)))
    x = torch.ones(2, device=me.device)
    if me.rank % 2 == 0:
        dist.all_reduce(x, group=evens)
        assert x.tolist() == [(me.size + 1) // 2] * 2
        dist.destroy_process_group(evens)


def check_objects_and_barrier(me):
    objects = [None] * me.size
    dist.all_gather_object(objects, {"rank": me.rank})
    assert objects == [{"rank": rank} for rank in range(me.size)]
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    host = torch.ones(2)
    dist.all_reduce(host)
    assert host.tolist() == [me.size] * 2


def check_wait_does_not_block_the_host(me):
    """Rank 1 starts its collective only after rank 0 has called wait() and enqueued a kernel behind it."""
    x = torch.ones(1000, device=me.device)
    dist.barrier()
    if me.rank == 0:
        work = dist.all_reduce(x, async_op=True)
        assert not work.is_completed()
        work.wait()
        doubled = x * 2
        torch.distributed.distributed_c10d._get_default_store().set("ocl/test/enqueued", "1")
        assert doubled[0].item() == 2 * me.size
        until = time.monotonic() + 10
        while not work.is_completed() and time.monotonic() < until:  # A thread of the host sees the end.
            time.sleep(0.01)
        assert work.is_completed()
    else:
        torch.distributed.distributed_c10d._get_default_store().wait(["ocl/test/enqueued"])
        dist.all_reduce(x)


def check_futures(me):
    order, futures = [], []
    for step in range(6):
        x = torch.full((200_000 if step % 2 else 10,), float(step), device=me.device)
        future = dist.all_reduce(x, async_op=True).get_future()
        futures.append(future.then(lambda f, step=step: (order.append(step), f.value()[0] + 1)[1]))
    for step, future in enumerate(futures):
        result = future.wait()
        assert result[0].item() == step * me.size + 1 == result[-1].item()
    assert order == sorted(order), order


def check_results_follow_the_stream(me):
    """A stream is still computing the collective's input when the collective starts; another stream reads the
    result."""
    side = torch.Stream(me.device)
    for _ in range(20):
        with side:
            x = torch.zeros(100_000, device=me.device)
            for _ in range(10):
                x += 1
            dist.all_reduce(x)
            y = x * 2
        torch.accelerator.current_stream().wait_stream(side)
        assert (y == 20 * me.size).all().item()


def check_uneven_all_gather(me):
    for dtype in (torch.float32, torch.bool):
        host = values(me, 5 + 3 * me.rank, dtype)
        parts = [torch.zeros(5 + 3 * rank, dtype=dtype, device=me.device) for rank in range(me.size)]
        dist.all_gather(parts, host.to(me.device))
        for rank, part in enumerate(parts):
            same(part, values(me, 5 + 3 * rank, dtype, rank))
    if me.size > 1:
        parts = [torch.zeros(1 + (rank == me.rank), device=me.device) for rank in range(me.size)]
        with pytest.raises((ValueError, RuntimeError), match="must have the size of its input, 3 elements"):
            dist.all_gather(parts, torch.zeros(3, device=me.device))
