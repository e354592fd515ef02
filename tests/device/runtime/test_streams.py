# tests/device/runtime/test_streams.py: memory used by several streams, streams that do not wait for one another, events, two devices.
"""A `Gate` holds a stream back, so that an error which would otherwise happen rarely happens each time.

Each test orders two streams only where one reads what the other wrote, as a correct program must.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from torch_ocl_compile import _C

pytestmark = pytest.mark.sampled(every=1)  # Runtimes differ here, so all cases run on every device.

SIZE = 4096


@contextmanager
def held(stream: torch.Stream) -> Iterator[Any]:
    """Within the block, work that is enqueued on the stream waits; it starts at the end of the block."""
    gate = _C.testing.Gate(stream.device_index, stream.stream_id)
    try:
        yield gate
    finally:
        gate.open()


def done_within(stream: torch.Stream, seconds: float = 60.0) -> bool:
    """Returns whether the stream's work ends within `seconds`."""
    event = torch.Event("ocl")
    event.record(stream)
    deadline = time.monotonic() + seconds
    while not event.query():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


@pytest.fixture
def streams(ocl_device: str) -> Iterator[tuple[torch.Stream, torch.Stream]]:
    """Returns the default stream and a side stream."""
    with torch.ocl.device(ocl_device):
        torch.ocl.synchronize()
        yield torch.ocl.default_stream(), torch.Stream(ocl_device)
        torch.ocl.synchronize()


def numbers(size: int, start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + size, dtype=torch.float32)


# Memory is not given to another stream before its last use has ended


def test_arena_of_a_plan_on_a_held_stream(streams, ocl_device):
    """Another stream allocates and writes memory before the plan runs. It must not get the memory of the plan's
    intermediate results."""
    default, side = streams
    chain = torch.compile(lambda x: (x.cumsum(0) - x.mean()).cumsum(0) * 2, backend="ocl")
    x = numbers(SIZE).to(ocl_device)
    expected = chain(x).cpu()
    torch.ocl.synchronize()
    with held(side):
        with torch.ocl.stream(side):
            y = chain(x)
        # These plans and tensors have the size of the arena, so the allocator would reuse its block for them.
        for value in range(8):
            chain(torch.full((SIZE,), float(value), device=ocl_device))
            torch.full((3 * SIZE,), -1.0, device=ocl_device)
        default.synchronize()
    side.synchronize()
    assert torch.equal(y.cpu(), expected)


def test_numbers_uploaded_for_a_held_stream(streams, ocl_device):
    """An eager op that runs late still multiplies by the number of its own call, not by that of a later call."""
    default, side = streams
    x = numbers(SIZE).to(ocl_device)
    # After a few calls with different numbers, the number is an argument of the plan, and is uploaded.
    for factor in (1.5, 2.5, 3.5, 4.5, 5.5):
        x.mul(factor)
    torch.ocl.synchronize()
    with held(side):
        with torch.ocl.stream(side):
            y = x.mul(7.25)
        for factor in range(20):
            x.mul(float(factor) + 0.125)
        default.synchronize()
    side.synchronize()
    assert torch.equal(y.cpu(), numbers(SIZE) * 7.25)


def test_random_numbers_on_a_held_stream(streams, ocl_device):
    """The numbers that a seed gives do not depend on the stream, nor on what other streams draw."""
    default, side = streams
    torch.manual_seed(5)
    expected = torch.rand(SIZE, device=ocl_device).cpu()
    torch.manual_seed(5)
    torch.ocl.synchronize()
    with held(side):
        with torch.ocl.stream(side):
            y = torch.rand(SIZE, device=ocl_device)
        for _ in range(20):
            torch.rand(SIZE, device=ocl_device)
        default.synchronize()
    side.synchronize()
    assert torch.equal(y.cpu(), expected)


@pytest.mark.parametrize("held_first", [True, False], ids=["side held", "default held"])
def test_plan_without_outputs(streams, ocl_device, held_first):
    """A plan that only writes to its inputs waits for its own stream only."""
    default, side = streams
    slow, quick = (side, default) if held_first else (default, side)

    @torch.compile(backend="ocl")
    def update(x, y):
        x.add_(y.cumsum(0).cumsum(0))

    x, y = numbers(SIZE).to(ocl_device), torch.ones(SIZE).to(ocl_device)
    others = [torch.zeros(SIZE, device=ocl_device) for _ in range(4)]
    update(others[0], y)
    others[0].zero_()
    torch.ocl.synchronize()
    with held(slow):
        with torch.ocl.stream(slow):
            update(x, y)
        with torch.ocl.stream(quick):
            for other in others:
                update(other, others[0])
            assert done_within(quick)
    slow.synchronize()
    assert torch.equal(x.cpu(), numbers(SIZE) + torch.ones(SIZE).cumsum(0).cumsum(0))


def test_tensor_freed_while_another_stream_reads_it(streams, ocl_device):
    """The allocator records the read on the other stream without a call of record_stream."""
    default, side = streams
    x = numbers(SIZE).to(ocl_device)
    out = torch.empty(SIZE, device=ocl_device)
    torch.ocl.synchronize()
    with held(side):
        with torch.ocl.stream(side):
            out.copy_(x)
        del x
        junk = [torch.full((SIZE,), -1.0, device=ocl_device) for _ in range(30)]
        default.synchronize()
    side.synchronize()
    del junk
    assert torch.equal(out.cpu(), numbers(SIZE))


def test_tensor_of_a_side_stream_freed_while_the_default_stream_reads_it(streams, ocl_device):
    default, side = streams
    with torch.ocl.stream(side):
        x = numbers(SIZE).to(ocl_device)
        out = torch.empty(SIZE, device=ocl_device)
    torch.ocl.synchronize()
    with held(default):
        out.copy_(x)
        del x
        with torch.ocl.stream(side):
            junk = [torch.full((SIZE,), -1.0, device=ocl_device) for _ in range(30)]
            side.synchronize()
    default.synchronize()
    del junk
    assert torch.equal(out.cpu(), numbers(SIZE))


def test_record_stream(streams, ocl_device):
    """The allocator waits for streams named by record_stream, even if no op used the tensor there."""
    _, side = streams
    x = torch.zeros(SIZE, device=ocl_device)
    address = x.data_ptr()
    torch.ocl.synchronize()
    with held(side):
        x.record_stream(side)
        del x
        assert all(torch.zeros(SIZE, device=ocl_device).data_ptr() != address for _ in range(30))
    side.synchronize()
    again = [torch.zeros(SIZE, device=ocl_device) for _ in range(2000)]
    assert address in {t.data_ptr() for t in again}


def test_kept_weights_written_by_a_held_stream(streams, ocl_device):
    """While a stream still writes new weights, a call packs the old ones. The packed weights must not be kept for the
    new version of the weights."""
    default, side = streams
    model = nn.Linear(96, 130).to(ocl_device)
    x = torch.randn(300, 96, device=ocl_device)
    compiled = torch.compile(model, backend="ocl")
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
        new = torch.randn(130, 96)
        fresh = new.to(ocl_device)
        torch.ocl.synchronize()
        with held(side):
            with torch.ocl.stream(side):
                model.weight.copy_(fresh)
            # The result may use old or new weights, because nothing orders the streams.
            compiled(x)
        torch.ocl.synchronize()
        expected = nn.functional.linear(x.cpu().double(), new.double(), model.bias.cpu().double())
        for stream in (default, side):
            with torch.ocl.stream(stream):
                torch.testing.assert_close(compiled(x).cpu().double(), expected, rtol=1e-4, atol=1e-4)


def test_kept_weights_serve_every_stream(streams, ocl_device):
    """A second stream uses the weights that the first stream packs: it waits for them, and does not pack again."""
    default, side = streams
    model = nn.Linear(96, 130).to(ocl_device)
    x = torch.randn(300, 96, device=ocl_device)
    compiled = torch.compile(model, backend="ocl")
    expected = nn.functional.linear(x.cpu().double(), model.weight.cpu().double(), model.bias.cpu().double())
    with torch.no_grad():
        compiled(x)
        # The version changes, so the next call packs again.
        model.weight.mul_(1)
        torch.ocl.synchronize()
        with held(default):
            with torch.ocl.record() as first:
                compiled(x)
            with torch.ocl.stream(side), torch.ocl.record() as second:
                y = compiled(x)
        side.synchronize()
    if not any(launch.kind == "pack" for launch in first):
        pytest.skip("this device's kernels take weights as they are")
    assert not any(launch.kind == "pack" for launch in second)
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-4, atol=1e-4)


# Streams do not wait for one another


@pytest.mark.parametrize("held_first", [True, False], ids=["side held", "default held"])
def test_a_held_stream_holds_no_other(streams, ocl_device, held_first):
    """Allocations, frees, eager ops, plans, uploads and downloads of one stream do not wait for another stream."""
    default, side = streams
    slow, quick = (side, default) if held_first else (default, side)
    plan = torch.compile(lambda x: torch.softmax(x.view(64, 64) @ x.view(64, 64), -1), backend="ocl")
    x = torch.randn(SIZE, device=ocl_device)
    plan(x), x.mul(3.5)
    torch.ocl.synchronize()
    with held(slow):
        with torch.ocl.stream(slow):
            kept = [plan(x).mul(3.5) for _ in range(3)]
            del kept[0]
        with torch.ocl.stream(quick):
            for _ in range(3):
                y = plan(x).mul(3.5)
                del y
                torch.empty(SIZE, device=ocl_device).fill_(1)
                numbers(SIZE).to(ocl_device, non_blocking=True)
            assert done_within(quick)


def test_streams_come_from_a_pool(ocl_device):
    """Dropped streams are used again, so 1500 streams in turn have at most 64 ids."""
    with torch.ocl.device(ocl_device):
        x = torch.zeros(16, device=ocl_device)
        seen = set()
        for _ in range(1500):
            stream = torch.Stream(ocl_device)
            seen.add(stream.stream_id)
            with torch.ocl.stream(stream):
                x.add_(1)
            stream.synchronize()
        assert 2 <= len(seen) <= 64
        assert x[0].item() == 1500


def test_stream_of_a_priority(ocl_device):
    with torch.ocl.device(ocl_device):
        streams = [torch.Stream(ocl_device, priority=p) for p in (-1, 0, 1)]
        assert len({s.stream_id for s in streams}) == 3
        for stream in streams:
            with torch.ocl.stream(stream):
                assert torch.ones(4, device=ocl_device).add(1).cpu().tolist() == [2, 2, 2, 2]


# Events


def test_event_times_are_the_devices(streams, ocl_device):
    """The time between two events includes the time in which the queue waits between them."""
    default, _ = streams
    first, second, third = (torch.Event("ocl", enable_timing=True) for _ in range(3))
    begin = time.monotonic()
    first.record()
    with held(default):
        second.record()
        third.record()
        time.sleep(0.05)
    default.synchronize()
    whole = (time.monotonic() - begin) * 1000
    assert first.elapsed_time(second) >= 45
    assert 0 <= second.elapsed_time(third) <= whole - 45
    assert first.elapsed_time(third) == pytest.approx(first.elapsed_time(second) + second.elapsed_time(third), abs=1e-3)


def test_event_times_hold_the_kernels_between_them(ocl_device):
    with torch.ocl.device(ocl_device):
        x = torch.randn(700, 700, device=ocl_device)
        x @ x
        first, last = torch.Event("ocl", enable_timing=True), torch.Event("ocl", enable_timing=True)
        torch.ocl.synchronize()
        first.record()
        with torch.ocl.record(timing=True) as launches:
            for _ in range(4):
                x @ x
            last.record()
            last.synchronize()
        assert first.elapsed_time(last) * 1000 >= 0.9 * sum(launch.time_us for launch in launches) > 0


def test_pinned_buffer_keeps_one_event_per_stream(streams, ocl_device):
    """A pinned buffer keeps one event for each stream that copies from it, not one for each copy."""
    _, side = streams
    host = torch.arange(1024, dtype=torch.float32).pin_memory()
    x = torch.empty(1024, device=ocl_device)
    before = _C.testing.pinned_events()
    for _ in range(200):
        x.copy_(host, non_blocking=True)
    with torch.ocl.stream(side):
        x.copy_(host, non_blocking=True)
    assert _C.testing.pinned_events() - before <= 2
    torch.ocl.synchronize()
    assert torch.equal(x.cpu(), host)


def test_memory_does_not_grow_with_streams_events_and_plans(streams, ocl_device):
    """Blocks that waited for other streams are used again, so the reserved memory does not grow."""
    default, side = streams
    x = torch.zeros(1 << 18, device=ocl_device)

    def round_trip() -> None:
        side.wait_stream(default)
        with torch.ocl.stream(side):
            y = x + 1
        default.wait_stream(side)
        z = y * 2
        del y, z

    reserved = []
    for _ in range(20):
        # No more than 20 rounds between synchronisations: memory that the host frees far ahead of the device must wait.
        for _ in range(20):
            round_trip()
        torch.ocl.synchronize()
        reserved.append(torch.ocl.memory_reserved())
    assert max(reserved) <= reserved[1] + (64 << 20)


# Two devices


def test_gradient_across_devices(two_ocl_devices):
    first, second = two_ocl_devices
    x = torch.ones(8, device=first, requires_grad=True)
    (x * 2).to(second).square().sum().backward()
    assert x.grad.tolist() == [8.0] * 8


def test_gradient_across_devices_and_streams(two_ocl_devices):
    first, second = two_ocl_devices
    side = torch.Stream(first)
    x = torch.ones(SIZE, device=first, requires_grad=True)
    side.wait_stream(torch.ocl.default_stream(first))
    with torch.ocl.stream(side):
        y = (x * 3).cumsum(0)
        loss = y.to(second).sum()
    loss.backward()
    torch.ocl.synchronize(first)
    expected = 3.0 * torch.arange(SIZE, 0, -1, dtype=torch.float32)
    assert torch.equal(x.grad.cpu(), expected)


def test_wait_for_an_event_of_another_device(two_ocl_devices):
    first, second = two_ocl_devices
    x = torch.ones(SIZE, device=first)
    event = torch.Event("ocl")
    event.record(torch.ocl.default_stream(first))
    torch.ocl.default_stream(second).wait_event(event)
    torch.ocl.default_stream(second).wait_stream(torch.ocl.default_stream(first))
    assert torch.equal(x.to(second).cpu(), torch.ones(SIZE))


def test_waiting_for_another_device_waits(two_ocl_devices):
    """wait_stream() makes later work of the second device wait for the first device, while the host continues."""
    first, second = (torch.ocl.default_stream(d) for d in two_ocl_devices)
    x = torch.zeros(4, device=two_ocl_devices[1])
    torch.ocl.synchronize(two_ocl_devices[1])
    with held(first):
        second.wait_stream(first)
        x.add_(1)
        event = torch.Event("ocl")
        event.record(second)
        time.sleep(0.05)
        assert not event.query()
    assert x.cpu().tolist() == [1, 1, 1, 1]


def test_event_times_of_two_devices_are_refused(two_ocl_devices):
    events = []
    for device in two_ocl_devices:
        events.append(torch.Event("ocl", enable_timing=True))
        events[-1].record(torch.ocl.default_stream(device))
        events[-1].synchronize()  # torch would refuse events that are not complete before it asks for their clocks.
    with pytest.raises(RuntimeError, match="whose clocks differ"):
        events[0].elapsed_time(events[1])


def test_record_stream_of_another_device_is_refused(two_ocl_devices):
    first, second = two_ocl_devices
    with pytest.raises(ValueError, match="record_stream: the tensor is on ocl:"):
        torch.ones(4, device=first).record_stream(torch.ocl.default_stream(second))
