# tests/device/distributed/test_nccl.py: process groups that use NCCL, with stand-ins for NCCL and CUDA (stand_ins/).
"""Two processes, each with a CPU device that looks like an NVIDIA GPU (cuda_stand_in.py). The tests show that we make
the right calls of NCCL, in the right order and with the right memory."""

from __future__ import annotations

import pytest

from tests.device.distributed.distributed_world import run_world
from tests.device.distributed.test_cuda_exchange import ONE_RANK, ONE_RANK_NCCL
from tests.device.distributed.test_distributed import TRAINING, checks_of
from tests.device.runtime import cuda_stand_in

SWEEP = pytest.mark.needs("sweep")
LIBRARIES = {**cuda_stand_in.LIBRARIES, "libnccl.so.2": "nccl.c"}
FALL_BACK = "check_gloo_is_used"


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    folder = cuda_stand_in.build(tmp_path_factory.mktemp("stand_ins"), LIBRARIES)
    without_nccl = tmp_path_factory.mktemp("without_nccl")
    cuda_stand_in.build(without_nccl)
    return folder, without_nccl


@pytest.fixture(scope="module")
def start(stand_ins, selected_devices, tmp_path_factory):
    def start(module, checks, of_rank=lambda rank: {}, size=2):
        messages = tmp_path_factory.mktemp("world")

        def variables(rank):
            own = cuda_stand_in.environment(stand_ins[0], OCL_STAND_IN_GPU=str(rank), TORCH_OCL_NCCL="1")
            return {**own, "OCL_STAND_IN_FOLDER": str(messages), **of_rank(rank)}

        outcome = run_world(module, ["ocl:0"] * size, messages, checks, of_rank=variables)
        return outcome, [(messages / f"log{rank}").read_text() for rank in range(size)]

    return start


@pytest.fixture(scope="module")
def collectives(start):
    return start("distributed_collectives", None)[0]


@pytest.mark.parametrize("check", checks_of("distributed_collectives"))
def test_collectives(collectives, check):
    assert collectives[check] == "", collectives[check]


NCCL = checks_of("distributed_nccl", without="gloo")


@pytest.fixture(scope="module")
def nccl(start):
    return start("distributed_nccl", NCCL)[0]


@pytest.mark.parametrize("check", NCCL)
def test_nccl(nccl, check):
    assert nccl[check] == "", nccl[check]


GRADIENTS = checks_of("distributed_gradients")


@pytest.fixture(scope="module")
def gradients(start):
    return start("distributed_gradients", GRADIENTS)[0]


@pytest.mark.parametrize("check", GRADIENTS)
def test_gradients_of_ddp(gradients, check):
    assert gradients[check] == "", gradients[check]


@pytest.mark.parametrize(
    "checks", [["check_fsdp2_of_a_gpt", "check_compiled_ddp"], pytest.param(TRAINING, marks=SWEEP)], ids=["some", "all"]
)
def test_training(start, checks):
    """Runs the checks of DistributedDataParallel, FSDP2, DTensor, pipelines and compiled graphs."""
    outcome, _ = start("distributed_training", checks)
    assert not any(outcome.values()), outcome


def test_one_rank(start):
    """Runs with the stand-in the checks that test_cuda_exchange.py runs with NCCL itself."""
    for module, checks in (("distributed_collectives", ONE_RANK), ("distributed_nccl", ONE_RANK_NCCL)):
        outcome, _ = start(module, checks, size=1)
        assert not any(outcome.values()), outcome


def on(rank, **variables):
    return lambda other: variables if other == rank else {}


CASES = {
    "missing": "rank 1: NCCL cannot be opened",
    "version differs": "rank 0 has NCCL 2.20.3, and rank 1 has 2.21.5",
    "too old": "rank 1: NCCL 2.13.0 is too old; 2.14 is the oldest that works",
    "same GPU": "rank 0 and rank 1 use the same GPU",
    "connecting fails": "rank 1: ncclCommInitRankConfig failed: internal error",
    "no driver": "rank 1: CUDA cannot be used",
    "not wanted": "rank 1 does not ask for it",
}
PLAIN = ("missing", "same GPU", "connecting fails")


@pytest.mark.parametrize("case", [pytest.param(case, marks=[] if case in PLAIN else SWEEP) for case in CASES])
def test_all_ranks_use_gloo_if_one_cannot_use_nccl(start, stand_ins, case):
    of_rank = {
        "missing": on(1, LD_LIBRARY_PATH=str(stand_ins[1])),
        "version differs": on(0, OCL_STAND_IN_NCCL_VERSION="22003"),
        "too old": on(1, OCL_STAND_IN_NCCL_VERSION="21300"),
        "same GPU": lambda rank: {"OCL_STAND_IN_GPU": "0"},
        "connecting fails": on(1, OCL_STAND_IN_INIT_FAILS="1"),
        "no driver": on(1, OCL_STAND_IN_NO_GPU="1"),
        "not wanted": on(1, TORCH_OCL_NCCL="0"),
    }[case]
    outcome, logs = start("distributed_nccl", [FALL_BACK], of_rank)
    assert outcome[FALL_BACK] == "", outcome[FALL_BACK]
    lines = [line for log in logs for line in log.splitlines() if "NCCL" in line]
    assert len(lines) == 1 and "the process group 0 uses gloo and not NCCL" in lines[0] and CASES[case] in lines[0], (
        logs
    )


@pytest.mark.parametrize("chosen", [{"TORCH_OCL_NCCL": "0"}, {"TORCH_OCL_NCCL": "auto", "OCL_STAND_IN_NO_GPU": "1"}])
def test_gloo_is_used_without_a_word(start, chosen):
    outcome, logs = start("distributed_nccl", [FALL_BACK], lambda rank: chosen)
    assert outcome[FALL_BACK] == "" and not any("NCCL" in log for log in logs), (outcome, logs)


def test_auto_uses_nccl_and_one_line_says_so(start):
    check = "check_group_uses_nccl"
    chosen = {"TORCH_OCL_NCCL": "auto", "TORCH_DISTRIBUTED_DEBUG": "INFO"}
    outcome, logs = start("distributed_nccl", [check], lambda rank: chosen)
    assert outcome[check] == "", outcome[check]
    lines = [line for log in logs for line in log.splitlines() if "NCCL" in line]
    assert len(lines) == 1 and "process group 0 has 2 ranks and uses NCCL 2.21.5 for ocl tensors" in lines[0], logs
