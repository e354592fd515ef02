# tests/device/distributed/distributed_nccl.py: checks of when process groups use NCCL, and how, with the stand-in for NCCL
# (stand_ins/nccl.c).
import ctypes
import os
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp


def calls(action):
    """Returns the calls to NCCL that `action` makes, as "name(number of the type,number of the operation)"."""
    before = len(log())
    action()
    torch.ocl.synchronize()
    return log()[before:].split()


def log():
    """Returns all calls to NCCL so far."""
    text = ctypes.c_char.in_dll(ctypes.CDLL("libnccl.so.2"), "stand_in_log")
    return ctypes.string_at(ctypes.addressof(text)).decode()


@contextmanager
def setting(**variables):
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def ones(me, count=4, dtype=torch.float32):
    return torch.ones(count, dtype=dtype, device=me.device)


def check_group_uses_nccl(me):
    assert me.uses_nccl


def check_calls_of_nccl(me):
    assert me.uses_nccl
    x, many = ones(me), [ones(me) for _ in range(me.size)]
    whole = ones(me, 4 * me.size)
    factor = dist._make_nccl_premul_sum(0.5)
    for action, expected in (
        (lambda: dist.all_reduce(x), ["all_reduce(7,0)"]),
        (lambda: dist.all_reduce(x, ReduceOp.AVG), ["all_reduce(7,4)"]),
        (lambda: dist.all_reduce(x.bfloat16(), ReduceOp.MAX), ["all_reduce(9,2)"]),
        (lambda: dist.all_reduce(x.bool()), ["all_reduce(1,2)"]),
        (lambda: dist.all_reduce(x.to(torch.complex64)), ["all_reduce(7,0)"]),
        (lambda: dist.all_reduce(x, factor), ["all_reduce(7,100)"]),
        (lambda: dist.broadcast(x, 1), ["broadcast(1,0)"]),
        (lambda: dist.reduce(x, 1, ReduceOp.MIN), ["reduce(7,3)"]),
        (lambda: dist.all_gather(many, x), ["all_gather(1,0)"]),
        (lambda: dist.all_gather_into_tensor(whole, x), ["all_gather(1,0)"]),
        (lambda: dist.reduce_scatter(x, many), ["reduce_scatter(7,0)"]),
        (lambda: dist.reduce_scatter_tensor(x, whole, ReduceOp.PRODUCT), ["reduce_scatter(7,1)"]),
        (lambda: dist.all_to_all(many, [ones(me) for _ in many]), ["send(1,0)", "receive(1,0)"] * me.size),
        (lambda: dist.group.WORLD._get_backend(me.device).barrier().wait(), ["all_reduce(1,0)"]),
        # Operations and types that NCCL lacks are done by gloo.
        (lambda: dist.all_reduce(x.int(), ReduceOp.BXOR), []),
        (lambda: dist.all_reduce(x.short()), []),
        (lambda: dist.gather(x, many if me.rank == 0 else None), []),
    ):
        assert calls(action) == expected, expected


def check_premultiplied_sums(me):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = torch.full((5,), float(me.rank + 1), dtype=dtype, device=me.device)
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        assert x.tolist() == [0.5 * sum(range(1, me.size + 1))] * 5
    part = torch.empty(2, device=me.device)
    dist.reduce_scatter_tensor(part, ones(me, 2 * me.size), dist._make_nccl_premul_sum(3.0))
    assert part.tolist() == [3 * me.size] * 2


def check_shared_tensors_are_used_in_place(me):
    with torch.ocl.shared_with_cuda():
        x = torch.full((1000,), float(me.rank + 1), device=me.device)
    ordinary = x.clone()

    def copies(tensor):
        before = torch.ocl.memory_stats()["allocation.all.allocated"]
        dist.all_reduce(tensor)
        torch.ocl.synchronize()
        return torch.ocl.memory_stats()["allocation.all.allocated"] - before

    # Memory that was allocated after the group was made is shared, too.
    assert copies(x) == 0 and copies(ordinary) == 0
    assert x.tolist() == ordinary.tolist() == [sum(range(1, me.size + 1))] * 1000
    dist.broadcast(x[10:20], 0)
    with torch.ocl.shared_with_cuda():
        whole = torch.zeros(me.size, 1000, device=me.device)
    x.fill_(me.rank)
    dist.all_gather(list(whole), x)
    assert whole.mean(1).tolist() == list(range(me.size))
    apart = [torch.zeros(1000, device=me.device) for _ in range(me.size)]
    before = torch.ocl.memory_stats()["allocation.all.allocated"]
    dist.all_gather(apart[::-1], x)
    torch.ocl.synchronize()
    assert torch.ocl.memory_stats()["allocation.all.allocated"] - before == (1 if me.size > 1 else 0)
    assert [part.mean().item() for part in apart[::-1]] == list(range(me.size))


def check_the_host_does_not_wait(me):
    with setting(OCL_STAND_IN_DELAY_US="1500000"):
        dist.barrier()
        x = ones(me)
        begin = time.monotonic()
        works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
        for work in works:
            work.wait()
        y = x + 1
        assert time.monotonic() - begin < 1.4
        assert y.tolist() == [me.size**2 + 1] * 4  # Both collectives run in order, before the addition.
        assert time.monotonic() - begin > 2.8


def check_streams(me):
    side = torch.Stream(me.device)
    for _ in range(20):
        with torch.ocl.stream(side):
            x = torch.zeros(10_000, device=me.device)
            for _ in range(20):
                x += 1
            dist.all_reduce(x)
            x += 1
            assert x[0].item() == 20 * me.size + 1 and x[-1].item() == 20 * me.size + 1


def check_wrong_calls(me):
    x = ones(me)
    with pytest.raises(ValueError, match="NCCL must know the source"):
        dist.recv(x)
    if torch.ocl.device_count() > 1:
        other = torch.ones(2, device=f"ocl:{(me.device.index + 1) % torch.ocl.device_count()}")
        with pytest.raises(ValueError, match="this group uses NCCL on ocl:0"):
            dist.all_reduce(other)


def check_group_that_fails(me):
    """Rank 1 never calls the collective. On the other ranks it fails after its timeout, and the group is closed."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    if me.rank == 1:
        dist.distributed_c10d._get_default_store().wait(["ocl/test/failed"])
        return
    made = []

    def fails():
        try:
            dist.all_reduce(ones(me), group=group)
            torch.ocl.synchronize()
        except RuntimeError as error:
            made.append(str(error))

    assert calls(fails) == ["all_reduce(7,0)", "abort", "close"]
    assert "took longer than the timeout of 2000 ms" in made[0] and "no sign of rank 1" in made[0], made
    with pytest.raises(dist.DistBackendError, match="cannot be used any more"):
        dist.all_reduce(ones(me), group=group)
    dist.distributed_c10d._get_default_store().set("ocl/test/failed", "yes")


def check_group_that_is_aborted(me):
    group = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    if me.rank == 1:
        store.wait(["ocl/test/aborted"])
        return
    with torch.ocl.shared_with_cuda():
        x = ones(me)
    work = dist.all_reduce(x, group=group, async_op=True)

    def abort():
        group._get_backend(me.device).abort()
        with pytest.raises(dist.DistBackendError, match="the process group was aborted"):
            work.wait(timedelta(seconds=10))

    assert calls(abort)[-2:] == ["abort", "close"]
    assert x.tolist() == [1] * 4
    store.set("ocl/test/aborted", "yes")


def check_error_of_nccl(me):
    group = dist.new_group()
    failure = pytest.raises(RuntimeError, match=r"internal error|another rank failed")
    with setting(OCL_STAND_IN_ASYNC_ERROR="1", OCL_STAND_IN_DELAY_US="200000"), failure:
        dist.all_reduce(ones(me), group=group)
        torch.ocl.synchronize()


def check_late_waiters_learn_of_a_failure(me):
    """The stream waits by a future, as DistributedDataParallel does, when the collective is under way already."""
    group = dist.new_group()
    x = ones(me)
    works = []

    def start():
        works.append(dist.all_reduce(x, group=group, async_op=True))
        deadline = time.monotonic() + 10
        while "all_reduce(7,0)" not in log()[before:]:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    before = len(log())
    with setting(OCL_STAND_IN_DELAY_US="1000000"):
        start()
        works[0].get_future().wait()
        with setting(OCL_STAND_IN_ASYNC_ERROR="1"), pytest.raises(RuntimeError, match=r"all_reduce \(collective 1"):
            torch.ocl.synchronize()


def check_memory_is_given_back_while_collectives_run(me):
    """empty_cache() waits for the device, which waits for two collectives. The second one is completed after the first one's
    memory is free."""
    dist.barrier()
    with setting(OCL_STAND_IN_DELAY_US="300000"):
        xs = [ones(me), ones(me)]
        works = [dist.all_reduce(x, async_op=True) for x in xs]
        for work in works:
            work.wait()
        del work, works
        torch.ocl.empty_cache()
        assert [x.tolist() for x in xs] == [[me.size] * 4] * 2


def check_gloo_is_used(me):
    assert not me.uses_nccl
    x = ones(me)
    dist.all_reduce(x)
    assert x.tolist() == [me.size] * 4


def check_collectives_start_before_the_first_wait(me):
    """Batches are held until something waits for a result, and then start together."""
    xs = [ones(me) for _ in range(3)]

    def start():
        with setting(OCL_STAND_IN_DELAY_US="100000"):
            works = [dist.all_reduce(x, async_op=True) for x in xs]
            values = [work.get_future().wait() for work in works]  # Streams wait here, not the host.
            assert not works[-1].is_completed()
            assert [x.tolist() for x in xs] == [[me.size] * 4] * 3 and len(values) == 3
            assert all(work.is_completed() for work in works)

    assert calls(start) == ["all_reduce(7,0)"] * 3


def check_nothing_waits_and_the_collective_runs(me):
    work = dist.all_reduce(ones(me), async_op=True)
    deadline = time.monotonic() + 10
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def check_collectives_on_two_streams(me):
    """A wait of one stream starts the collectives that another stream's results need."""
    side = torch.Stream(me.device)
    for _ in range(10):
        with torch.ocl.stream(side):
            x = ones(me, 100_000)
            first = dist.all_reduce(x, async_op=True)
        y = ones(me, 100_000)
        second = dist.all_reduce(y, async_op=True)
        second.wait()
        y += 1
        with torch.ocl.stream(side):
            first.wait()
            x += 1
        torch.ocl.current_stream(me.device).wait_stream(side)
        assert (x + y)[-1].item() == 2 * me.size + 2
