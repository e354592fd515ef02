# tests/device/tools/test_bench_sides.py: the sides of ocl keep their limits, and the parts of their peak memory add up to it.
import os

import pytest
import torch

from benchmarks.harness import networks
from benchmarks.harness.memory import measure_side
from benchmarks.harness.models import NetworkSettings
from tests import fork_server

pytestmark = pytest.mark.sampled()


def settings_for(ocl_device, threads=1, **given):
    return NetworkSettings(["ocl"], threads=threads, ocl_device=ocl_device, **given)


def facts_of(settings, side="ocl", name="gpt"):
    with settings.process(side, name, "inference") as process:
        assert process.ask("choose") == {"format": "contiguous", "optimizer": ""}
        for _ in range(2):
            process.ask("round")
        return process.ask("facts")


def test_a_side_keeps_its_number_of_threads(ocl_device, sweep):
    """OpenCL runtimes do not ask PyTorch how many threads they may use."""
    if not torch.ocl.get_device_properties(ocl_device).is_cpu:
        pytest.skip("the limit is for CPUs")
    facts = facts_of(settings_for(ocl_device, batch=256, calls=50), name="mlp")
    assert len(facts["settings"]["cores"]) == 1 and facts["settings"]["compute_units"] == 1
    assert facts["busy_cores"] < 1.2
    if sweep and len(os.sched_getaffinity(0)) > 1:
        facts = facts_of(settings_for(ocl_device, 2, batch=256, calls=10), name="mlp")
        assert len(facts["settings"]["cores"]) == facts["settings"]["compute_units"] == 2


@pytest.mark.needs("sweep")
def test_measured_choices_are_off_but_for_the_side_that_has_them(ocl_device):
    for side, tuned in (("ocl", "0"), ("ocl-tuned", "1")):
        facts = facts_of(settings_for(ocl_device, batch=1, calls=1), side, "mlp")
        assert facts["settings"]["environment"]["TORCH_OCL_TUNED"] == tuned and facts["build"]


@pytest.mark.parametrize("mode", [pytest.param("inference", marks=pytest.mark.needs("sweep")), "training"])
def test_a_side_runs_compiled_graphs_alone(ocl_device, mode):
    """The network, the loss and the optimizer are in files of this package, most of which Dynamo must not compile."""
    with settings_for(ocl_device, batch=1).process("ocl", "lenet", mode) as process:
        process.ask("first")
        assert process.ask("facts")["eager_kernels"] == 0


def test_the_loss_and_the_optimizer_of_a_model_alone_are_eager(ocl_device):
    with settings_for(ocl_device, batch=1, model_alone=True).process("ocl", "lenet", "training") as process:
        process.ask("first")
        facts = process.ask("facts")
    assert 0 < facts["eager_kernels"] < facts["launches"]


OPERATIONS = """
import sys, torch
from benchmarks.harness import op_side
worker = op_side.Worker({"side": "ocl", "threads": 1, "tf32": False, "calls": 1, "batch": 8, "groups": ["memory"],
                         "parts": ["softmax", "adam"], "ocl_device": sys.argv[1]})
for index in range(len(worker.cases)):
    worker.prepare(index)
    with torch.ocl.record() as launches:
        worker.run()
    print(len(launches), [launch.graph for launch in launches if launch.graph.startswith("eager_")])
"""


def test_operations_are_compiled(ocl_device):
    """In a process of its own: a side changes settings of PyTorch for its whole process."""
    done = fork_server.run(["-c", OPERATIONS, ocl_device])
    assert done.returncode == 0, done.stderr
    cases = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(cases) >= 2
    assert all(int(launches) > 0 and eager == "[]" for launches, eager in cases), done.stdout


@pytest.mark.needs("sweep")
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_parts_of_a_peak_add_up(ocl_device, mode):
    row = measure_side("ocl", "lenet", mode, settings_for(ocl_device, batch=64))
    parts = row["parts"]
    assert sum(parts.values()) == row["peak_bytes"] <= row["reserved_bytes"]
    assert parts["padding"] == 0, "blocks of ocl are recorded with their padding"
    weights = 4 * sum(p.numel() for p in networks.LeNet().parameters())
    assert weights <= parts["weights"] < 1.1 * weights
    if mode == "inference":
        assert parts["arena"] > 4 * 64 * 6 * 14 * 14 and "gradients" not in parts and "optimizer state" not in parts
        tensors = [t for t in row["tensors"] if t["what"] in ("intermediate", "scratch")]
        assert 0 < sum(t["bytes"] for t in tensors) <= parts["arena"]
    else:
        assert 2 * weights <= parts["optimizer state"] < 2.3 * weights
        assert parts["saved tensors"] > 0 and parts["gradients"] > 0
        names = {holder["name"] for holder in row["holders"]}
        assert {"7.weight", "7.weight, exp_avg"} <= names, "the largest layer is among the largest holders"
