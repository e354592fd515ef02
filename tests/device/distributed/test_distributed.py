# tests/device/distributed/test_distributed.py: the process group `ocl` with two and four processes, on each runtime and mixed.
import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.distributed import distributed_world
from tests.device.distributed.distributed_world import ROOT, run_world


def checks_of(module, without=""):
    """Returns the names of a module's checks, from its text: only the ranks import the module."""
    tree = ast.parse((Path(distributed_world.__file__).parent / f"{module}.py").read_text())
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("check_")]
    return [name for name in names if not (without and without in name)]


WORLDS = {
    "two": (["ocl:0"] * 2, {}),
    # Tensors are copied through pinned memory, as on a GPU. On a CPU device this is normally not needed.
    "two-copied": (["ocl:0"] * 2, {"OCL_TESTS_COPY_HOST_MEMORY": "1"}),
    "four-mixed": (["ocl:0", "ocl:1", "ocl:0", "ocl:1"], {}),
}


SWEEP = pytest.mark.needs("sweep")


@pytest.fixture(
    scope="module", params=["two", pytest.param("two-copied", marks=SWEEP), pytest.param("four-mixed", marks=SWEEP)]
)
def outcome(request, tmp_path_factory):
    import torch

    devices, env = WORLDS[request.param]
    if torch.ocl.device_count() < len(set(devices)):
        pytest.skip("needs two OpenCL devices: pip install torch-ocl-compile[cpu], and PoCL")
    return run_world("distributed_collectives", devices, tmp_path_factory.mktemp(request.param), **env)


@pytest.mark.parametrize("check", checks_of("distributed_collectives"))
def test_collectives(outcome, check):
    assert outcome[check] == "", outcome[check]


# A sum that is multiplied first, and a call between different ranks, need more than one rank's copies.
ALONE = ["check_all_reduce", "check_moves", "check_reduce_scatter", "check_gather_and_scatter", "check_views_and_empty"]
ALONE += ["check_uneven_all_to_all", "check_coalesced", "check_objects_and_barrier", "check_futures"]
ALONE += ["check_results_follow_the_stream", "check_reductions_that_gloo_lacks"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    found = {}
    for module, checks in (("distributed_collectives", ALONE), ("distributed_alone", None)):
        found |= run_world(module, ["ocl:0"], tmp_path_factory.mktemp(module), checks)
    return found


@pytest.mark.parametrize("check", [*ALONE, *checks_of("distributed_alone")])
def test_one_rank(alone, check):
    assert alone[check] == "", alone[check]


TRAINING = checks_of("distributed_training", without="checkpoint")


@pytest.fixture(
    scope="module",
    params=[pytest.param(["ocl:0"] * 2, id="two"), pytest.param(["ocl:0", "ocl:1"], id="mixed", marks=SWEEP)],
)
def training(request, tmp_path_factory):
    import torch

    if torch.ocl.device_count() < len(set(request.param)):
        pytest.skip("needs two OpenCL devices: pip install torch-ocl-compile[cpu], and PoCL")
    return run_world("distributed_training", request.param, tmp_path_factory.mktemp("training"), TRAINING)


@pytest.mark.parametrize("check", TRAINING)
def test_training(training, check):
    assert training[check] == "", training[check]


@SWEEP
def test_checkpoint_of_four_ranks_on_two_and_one(tmp_path):
    """A checkpoint that four ranks save is loaded by two ranks, by one rank, and on the CPU."""
    saved = run_world("distributed_training", ["ocl:0"] * 4, tmp_path / "saved", ["check_checkpoint_is_saved"])
    assert not any(saved.values()), saved
    for size in (2, 1):
        checks = ["check_checkpoint_is_loaded", "check_checkpoint_is_loaded_on_the_cpu"][: 2 if size == 1 else 1]
        loaded = run_world("distributed_training", ["ocl:0"] * size, tmp_path / f"on{size}", checks)
        assert not any(loaded.values()), loaded


@SWEEP
def test_some_of_torchs_own_tests():
    """`make torch_distributed` runs all of them."""
    command = [sys.executable, "-m", "tests.torch_distributed", "--sample", "9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
