# tests/no_device/measuring/test_sides.py: the sides of a benchmark: settings, cores, memory, and the parts of peak memory.
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import memory_peak, process, results
from benchmarks.harness.models import NetworkSettings
from benchmarks.harness.sides import ADAM, DEFAULT_SIDES, HEAP, SIDES
from torch_ocl_compile.errors import ToolError

BENCH = Path(process.__file__).parent
# Runs the side "inductor" as in a benchmark, and counts the inputs of graphs that Inductor turns into constants.
FROZEN = """
import json, sys, torch
from torch._inductor import freezing
import side
counts = []
freeze = freezing.freeze
def counting(dynamo_gm, graph, inputs):
    frozen, preserved = freeze(dynamo_gm, graph, inputs)
    counts.append(len(inputs) - len(preserved))
    return frozen, preserved
freezing.freeze = counting
it = side.Side(side.Settings("inductor", "mlp", sys.argv[1]))
before = [p.detach().clone() for p in it.model.parameters()]
it.timed()
changed = [not torch.equal(a, b) for a, b in zip(before, it.model.parameters())]
print(json.dumps({"counts": counts, "changed": changed, "error": it.facts()["error"]}))
"""


def run_frozen(mode: str) -> dict:
    environment = os.environ | {"PYTHONPATH": str(BENCH), "TORCH_OCL_AUTOLOAD": "never"}
    done = subprocess.run([sys.executable, "-c", FROZEN, mode], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.needs("sweep")  # Inductor compiles C++ for 20 s.
def test_inductor_freezes_the_weights_of_inference():
    found = run_frozen("inference")
    assert sum(found["counts"]) == 8, "the mlp has four weights and four biases"
    assert found["error"] < 1e-5


@pytest.mark.needs("sweep")
def test_inductor_freezes_nothing_in_training():
    """The compiled optimizer runs without gradients. Freezing would make its gradients constants."""
    found = run_frozen("training")
    assert found["counts"] == [] and len(found["changed"]) == 8 and all(found["changed"])


def test_the_table():
    assert set(DEFAULT_SIDES) <= set(SIDES)
    assert SIDES["ocl"].environment == {"TORCH_OCL_TUNED": "0"} and SIDES["ocl-tuned"].environment == {
        "TORCH_OCL_TUNED": "1"
    }
    for kind in SIDES.values():
        assert set(kind.optimizers) <= set(ADAM) and kind.formats and kind.op_formats


def test_a_side_keeps_its_heap_and_its_cores():
    """HEAP makes glibc keep freed memory. Without it, a step of this network has about 7,000 page faults."""
    settings = NetworkSettings(["eager"], batch=8, threads=1, calls=2)
    with settings.process("eager", "gpt", "inference") as side:
        for _ in range(3):
            side.ask("round")
        facts = side.ask("facts")
    assert facts["page_faults"] < 2000
    assert facts["settings"]["threads"] == 1 and len(facts["settings"]["cores"]) == 1 and facts["busy_cores"] < 1.2
    text = results.settings_text(facts["settings"])
    assert (
        text
        == f"eager, 1 threads on cores {facts['settings']['cores'][0]}, a heap that keeps its memory, TORCH_OCL_AUTOLOAD=never"
    )


def test_a_training_step_measures_formats_and_optimizers():
    settings = NetworkSettings(["eager"], batch=1, threads=1, calls=1)
    with settings.process("eager", "lenet", "training") as side:
        way = side.ask("choose")
        measured = side.ask("facts")["ways_ms"]
    assert set(measured) == {f"{f} {o}" for f in ("contiguous", "channels_last") for o in ("foreach", "fused")}
    assert " ".join(way.values()) == min(measured, key=measured.get)
    with settings.process("eager", "lenet", "training", way={"format": "channels_last", "optimizer": "fused"}) as side:
        assert side.ask("choose") == {"format": "channels_last", "optimizer": "fused"}
        assert side.ask("facts")["ways_ms"] == {}


def test_cores_before_hardware_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 8, 9})
    monkeypatch.setattr(process, "_sibling_number", lambda core: int(core in (1, 3)))
    assert process.cores_for(3) == [0, 2, 8]
    assert process.cores_for(5) == [0, 1, 2, 8, 9]
    with pytest.raises(ToolError, match="7 threads need as many cores, but this process may use 6"):
        process.cores_for(7)


def test_siblings_of_a_core(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_TOPOLOGY", f"{tmp_path}/{{}}")
    (tmp_path / "5").write_text("1,5\n")
    (tmp_path / "3").write_text("2-3\n")
    assert [process._sibling_number(core) for core in (5, 3, 7)] == [1, 1, 0]


def test_a_process_starts_on_its_cores():
    before = os.sched_getaffinity(0)
    core = max(before)
    with process.on_cores([core]):
        found = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], capture_output=True, text=True
        )
    assert found.stdout.strip() == str({core}) and os.sched_getaffinity(0) == before


def test_settings_of_sides():
    settings = {"backend": "inductor", "mode": "max-autotune", "freezing": True, "cudnn_benchmark": True, "threads": 4,
                "cores": list(range(64)), "environment": {**HEAP, "MALLOC_ARENA_MAX": "2", "A": "b"},
                "format": "channels_last", "optimizer": "", "compute_units": None}  # fmt: skip
    rows = [{"side": "inductor", "mode": mode, "settings": settings, "busy_cores": busy, "page_faults": 0.0}
            for mode, busy in (("inference", 1.0), ("training", 2.0))]  # fmt: skip
    (found,) = results.sides_of([*rows, {"side": "eager", "mode": "inference"}])
    assert found["settings"].startswith(
        "torch.compile(backend='inductor', mode='max-autotune'), freezing, cudnn.benchmark, 4 threads on 64 cores, MALLOC_MMAP_MAX_=0"
    )
    assert found["modes"] == ["inference", "training"] and found["busy_cores"] == 2.0
    assert [results.way_of(row) for row in (rows[0], {"side": "eager"})] == ["channels_last", "-"]


def frames(purpose: str) -> list[dict]:
    return [{"name": purpose, "filename": "torch_ocl_compile", "line": 0}]


def test_parts_of_a_peak():
    """The peak counts the blocks that exist at one moment. Two blocks that had the same address at different times are
    told apart."""
    snapshot = {"segments": [
        {"device": 1, "blocks": [{"address": 1, "size": 99, "state": "active_allocated", "frames": []}]},
        {"device": 0, "blocks": [{"address": 1, "size": 10, "state": "active_allocated", "frames": []},
                                 {"address": 2, "size": 5, "state": "active_allocated", "frames": []},
                                 {"address": 3, "size": 50, "state": "inactive", "frames": []}]}]}  # fmt: skip
    old = memory_peak.blocks_before(snapshot, 0, "size")
    alloc = [{"action": "alloc", "addr": 3, "size": 20, "frames": frames("results of forward_0")},
             {"action": "alloc", "addr": 4, "size": 30, "frames": frames("intermediate results of forward_0")}]  # fmt: skip
    free = [{"action": "free_requested", "addr": 4, "size": 30}, {"action": "free_completed", "addr": 4, "size": 30},
            {"action": "free_requested", "addr": 3, "size": 20}]  # fmt: skip
    line = [{"name": "f", "filename": "/a/torch/x.py", "line": 1}, {"name": "g", "filename": "/a/model.py", "line": 2}]
    later = [{"action": "alloc", "addr": 4, "size": 40, "frames": line}]
    at_peak, at_end = memory_peak.replay(old, [*alloc, *free, *later])
    assert sum(block.bytes for block in at_peak) == 65 and set(at_end) == {1, 2, 4}
    owners = {id(at_end[1]): ("weights", "w"), id(at_end[4]): ("gradients", "w.grad")}
    parts, holders = memory_peak.parts_of(at_peak, owners)
    assert parts == {"arena": 30, "saved tensors": 20, "weights": 10, "held between steps": 5}
    assert holders[0] == {"part": "arena", "name": "intermediate results of forward_0", "bytes": 30, "blocks": 1}
    at_peak, _ = memory_peak.replay(old, later)
    assert memory_peak.parts_of(at_peak, {})[1][0] == {
        "part": "activations",
        "name": "model.py:2 g",
        "bytes": 40,
        "blocks": 1,
    }
