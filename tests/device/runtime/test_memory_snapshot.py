# tests/device/runtime/test_memory_snapshot.py: torch.ocl.memory: counters, limits, snapshots for PyTorch's viewer, out-of-memory errors.
import pickle

import pytest
import torch
from torch.cuda import _memory_viz as viz

from tests.device.own_process import run_python
from torch_ocl_compile.errors import ConfigError

KIB, MIB = 2**10, 2**20


@pytest.fixture
def history(ocl_device):
    """Records allocations during the test, and drops the record afterwards."""
    torch.ocl.memory._record_memory_history(max_entries=10_000, clear_history=True)
    yield
    torch.ocl.memory._record_memory_history(None, clear_history=True)


def blocks_of(device, snapshot=None):
    segments = torch.ocl.memory_snapshot() if snapshot is None else snapshot["segments"]
    index = torch.device(device).index
    return [block for s in segments if s["device"] == index for block in s["blocks"]]


def block_of(tensor):
    """Returns the block that holds a tensor."""
    (block,) = [b for b in blocks_of(tensor.device) if b["address"] == tensor.untyped_storage().data_ptr()]
    return block


def test_a_snapshot_has_every_block(ocl_device):
    torch.ocl.empty_cache()
    held = [torch.empty(n, dtype=torch.uint8, device=ocl_device) for n in (1, 1000, 3 * MIB)]
    for tensor in held:
        block = block_of(tensor)
        assert block["state"] == "active_allocated" and block["requested_size"] == tensor.numel() < block["size"]
    address = held[1].untyped_storage().data_ptr()
    index = torch.device(ocl_device).index
    del held[1], tensor
    free = [b for b in blocks_of(ocl_device) if b["address"] <= address < b["address"] + b["size"]]
    assert [b["state"] for b in free] == ["inactive"]
    segments = [s for s in torch.ocl.memory_snapshot() if s["device"] == index]
    assert sum(s["total_size"] for s in segments) == torch.ocl.memory_reserved(index)
    assert sum(s["allocated_size"] for s in segments) == torch.ocl.memory_allocated(index)
    for segment in segments:
        ends = [segment["address"]]
        for block in segment["blocks"]:
            assert block["address"] == ends[-1], "blocks tile their segment"
            ends.append(block["address"] + block["size"])
        assert ends[-1] - ends[0] == segment["total_size"]


def test_a_block_that_a_stream_still_uses_awaits(ocl_device):
    tensor, stream = torch.empty(1000, device=ocl_device), torch.Stream(ocl_device)
    address = tensor.untyped_storage().data_ptr()
    with torch.ocl.stream(stream):
        for _ in range(200):
            tensor.add_(1)
    tensor.record_stream(stream)
    del tensor
    states = {b["address"]: b["state"] for b in blocks_of(ocl_device)}
    assert states.get(address, "inactive") in ("active_awaiting_free", "inactive")
    torch.ocl.synchronize(ocl_device)
    torch.empty(1, device=ocl_device)  # An allocation first frees blocks that waited for work that is done.
    assert "active_awaiting_free" not in {b["state"] for b in blocks_of(ocl_device)}


def test_frames_say_where_and_for_what(ocl_device, history):
    tensor = torch.empty(1000, device=ocl_device)
    assert any(
        f["filename"] == __file__ and f["name"] == "test_frames_say_where_and_for_what"
        for f in block_of(tensor)["frames"]
    )
    compiled = torch.compile(lambda x: x.sin() + 1, backend="ocl")
    result = compiled(tensor)
    first, *others = block_of(result)["frames"]
    assert first["name"].startswith("results of inference_") and first["filename"] == "torch_ocl_compile"
    assert any(f["filename"] == __file__ for f in others)
    assert all(f["filename"] != "torch_ocl_compile" for f in others), "a purpose is there once"
    events = torch.ocl.memory._snapshot()["device_traces"][tensor.device.index]
    address = result.untyped_storage().data_ptr()
    *_, event = [e for e in events if e["action"] == "alloc" and e["addr"] == address]
    assert event["frames"] == [first, *others]
    torch.ocl.memory._record_memory_history(None)
    later = torch.empty(1000, device=ocl_device)
    assert block_of(later)["frames"] == [], "nothing is recorded any more"


def test_events_are_in_order_and_bounded(ocl_device):
    index = torch.device(ocl_device).index

    def allocations():
        events = torch.ocl.memory._snapshot()["device_traces"][index]
        return [(e["action"], e["size"]) for e in events if e["action"] != "snapshot"]

    torch.ocl.memory._record_memory_history(max_entries=6, context=None, clear_history=True)
    try:
        tensor = torch.empty(1000, dtype=torch.uint8, device=ocl_device)
        size = block_of(tensor)["size"]
        del tensor
        found = [event for event in allocations() if event[0] != "segment_alloc"]
        assert found == [("alloc", size), ("free_requested", size), ("free_completed", size)]
        for _ in range(20):
            torch.empty(2000, dtype=torch.uint8, device=ocl_device)
        events = torch.ocl.memory._snapshot()["device_traces"][index]
        assert len(events) == 6 and events[-1]["action"] == "snapshot"
        times = [e["time_us"] for e in events]
        assert times == sorted(times)
        torch.ocl.memory._record_memory_history(max_entries=9)
        for _ in range(5):
            torch.empty(2000, dtype=torch.uint8, device=ocl_device)
        times = [e["time_us"] for e in torch.ocl.memory._snapshot()["device_traces"][index]]
        assert len(times) == 9 and times == sorted(times)
    finally:
        torch.ocl.memory._record_memory_history(None, clear_history=True)
    assert allocations() == []


def test_pytorchs_visualiser_reads_it(ocl_device, history, tmp_path):
    tensor = torch.ones(1000, device=ocl_device)
    result = torch.compile(lambda x: x.cos() + 1, backend="ocl")(tensor)
    torch.empty(1, device=ocl_device)  # The tensor is freed at once.
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**40, dtype=torch.uint8, device=ocl_device)
    torch.ocl.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert "total_allocated" in viz.segsum(snapshot)
    lines = viz.trace(snapshot)
    assert "OutOfMemoryError # 1.0TiB requested" in lines and "free completed" in lines
    assert f"{__file__.rsplit('/', 1)[1]}:" in viz.memory(snapshot, format_flamegraph=str)
    assert "active_allocated" in viz.segments(snapshot, format_flamegraph=str)
    assert "torch_ocl_compile:0:" in viz.segments(snapshot, format_flamegraph=str)
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "MemoryViz" in plot(snapshot)
    assert result.device == tensor.device
    assert "only_before" in viz.compare(snapshot["segments"], [], format_flamegraph=str)


def test_a_full_device_names_the_largest_holders(ocl_device):
    index = torch.device(ocl_device).index
    torch.ocl.empty_cache()
    result = torch.compile(lambda x: x * 2 + 1, backend="ocl")(torch.empty(5 * MIB, device=ocl_device))
    with pytest.raises(torch.OutOfMemoryError, match=r"tried to allocate 1024\.00 GiB(.|\n)*memory_snapshot") as error:
        torch.empty(2**40, dtype=torch.uint8, device=ocl_device)
    (holders,) = [line for line in str(error.value).splitlines() if "largest holders:" in line]
    assert "20.00 MiB in 1 block: results of inference_" in holders, holders
    assert result.device.index == index and torch.ones(3, device=ocl_device).tolist() == [1, 1, 1]


def test_the_fraction_limits_this_process(ocl_device):
    index = torch.device(ocl_device).index
    torch.ocl.empty_cache()
    total = torch.ocl.get_device_properties(index).total_memory
    assert torch.ocl.get_per_process_memory_fraction(index) == 1
    share = (torch.ocl.memory_reserved(index) + 100 * MIB) / total
    torch.ocl.set_per_process_memory_fraction(share, index)
    try:
        assert torch.ocl.get_per_process_memory_fraction(index) == share
        kept = torch.empty(70 * MIB, dtype=torch.uint8, device=ocl_device)
        with pytest.raises(torch.OutOfMemoryError, match="set_per_process_memory_fraction allows this process"):
            torch.empty(70 * MIB, dtype=torch.uint8, device=ocl_device)
        del kept
        torch.empty(70 * MIB, dtype=torch.uint8, device=ocl_device)
    finally:
        torch.ocl.set_per_process_memory_fraction(1.0, index)
    torch.empty(170 * MIB, dtype=torch.uint8, device=ocl_device)
    torch.ocl.empty_cache()


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "half", None, True])
def test_no_share_of_the_memory(ocl_device, wrong):
    with pytest.raises(ConfigError, match="number from 0 to 1"):
        torch.ocl.set_per_process_memory_fraction(wrong, ocl_device)


def test_counters_are_reset(ocl_device):
    torch.ocl.reset_accumulated_memory_stats(ocl_device)
    before = torch.ocl.memory_stats(ocl_device)
    torch.empty(1000, dtype=torch.uint8, device=ocl_device)
    after = torch.ocl.memory_stats_as_nested_dict(ocl_device)["allocated_bytes"]["all"]
    assert before["allocated_bytes.all.allocated"] == 0 and after["allocated"] == after["freed"] == 1024
    assert after["current"] == torch.ocl.memory_allocated(ocl_device)
    torch.ocl.reset_accumulated_memory_stats(ocl_device)
    assert torch.ocl.memory_stats(ocl_device)["allocated_bytes.all.freed"] == 0


def test_pinned_memory_is_counted(ocl_device):
    torch.ocl.reset_accumulated_host_memory_stats()
    before = torch.ocl.host_memory_stats()
    pinned = torch.empty(64 * KIB, dtype=torch.uint8).pin_memory()
    now = torch.ocl.host_memory_stats_as_nested_dict()["active_bytes"]
    assert now["current"] - before["active_bytes.current"] == now["allocated"] == pinned.numel()
    del pinned
    torch.ocl.reset_peak_host_memory_stats()
    after = torch.ocl.host_memory_stats()
    assert after["active_bytes.peak"] == after["active_bytes.current"] == before["active_bytes.current"]


def test_the_summary_has_the_counters(ocl_device):
    torch.ocl.empty_cache()
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=ocl_device)
    text, short = torch.ocl.memory_summary(ocl_device), torch.ocl.memory_summary(ocl_device, abbreviated=True)
    assert len({len(line) for line in text.splitlines()}) == 1, "lines are equally long"
    index = tensor.device.index
    assert f"ocl:{index}" in text and "large blocks" in text and "large blocks" not in short
    (held,) = [line for line in short.splitlines() if "held by tensors" in line and "MiB" in line]
    assert f"{torch.ocl.memory_allocated(index) / MIB:.1f} MiB" in held.split("|")[2]


# The test is about the end of the interpreter, so one runtime is enough.
@pytest.mark.sampled()
def test_a_process_ends_while_it_records(ocl_device):
    """The record holds Python code objects. At the end of the interpreter they are destroyed before the last
    tensors."""
    status, out, err = run_python(f"""
        import torch
        torch.ocl.memory._record_memory_history()
        kept = [torch.empty(1000, device="{ocl_device}") for _ in range(10)]
        print(len(torch.ocl.memory_snapshot()) > 0)
    """)
    assert (status, out) == (0, "True\n"), err
