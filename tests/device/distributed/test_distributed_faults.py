# tests/device/distributed/test_distributed_faults.py: ranks that die, hang or raise, wrong calls, and groups that end early.
"""Each test starts several processes of one program, HEAD followed by the text of the test. `rank` selects the faulty
one."""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import fork_server

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
import datetime, os, sys, time
import torch, torch.distributed as dist
import torch_ocl_compile
dist.set_debug_level_from_env()  # as the import of torch.distributed does; a fork has imported it before
rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
timeout = datetime.timedelta(seconds=8)
dist.init_process_group(init_method="file://" + store, rank=rank, world_size=size, timeout=timeout)
x = torch.ones(1000, device="ocl:0")
dist.all_reduce(x)
assert x[0].item() == size
"""


def run(program, size, folder, **env):
    """Returns (exit status, output) of each rank."""
    script = folder / "program.py"
    script.write_text(HEAD + textwrap.dedent(program))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    processes, logs = [], [folder / f"log{rank}" for rank in range(size)]
    for rank, name in enumerate(logs):
        arguments = [str(script), str(rank), str(size), str(folder / "store")]
        with open(name, "w") as log:
            out = log.fileno()
            processes.append(
                fork_server.start(arguments, {**os.environ, "PYTHONPATH": path, **env}, stdout=out, stderr=out)
            )
    try:
        statuses = [process.wait(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return list(zip(statuses, (log.read_text() for log in logs), strict=True))


SURVIVE = """
try:
    dist.all_reduce(x)
    x[0].item()
    print("no error")
except RuntimeError as error:
    print("CAUGHT", error)
try:
    dist.all_reduce(x)
    print("no second error")
except RuntimeError as error:
    print("REFUSED", error)
y = torch.ones(10, device="ocl:0") * 3  # the process works
print("usable", y.sum().item())
dist.destroy_process_group()
"""

FAULTS = {
    "dies": "os._exit(3)",
    "raises in backward": "raise ValueError('in backward')",
    "hangs": "time.sleep(16); os._exit(0)",
}


@pytest.mark.sampled(first=3)
@pytest.mark.parametrize("fault", FAULTS)
def test_survivors_learn_which_rank_is_missing(fault, tmp_path):
    program = f"if rank == 2:\n    {FAULTS[fault]}\n" + SURVIVE
    began = time.monotonic()
    results = run(program, 3, tmp_path)
    assert time.monotonic() - began < 80
    for status, output in results[:2]:
        assert status == 0, output
        assert "CAUGHT all_reduce (collective 2 of group 0) failed on rank" in output
        assert "no sign of rank 2" in output
        assert "REFUSED the process group 0 cannot be used any more" in output
        assert "usable 30.0" in output


def test_error_of_a_result_that_the_stream_waits_for(tmp_path):
    """wait() returns before the timeout. After it, reading the result raises an error, and so do later waits."""
    program = """
    if rank == 1:
        time.sleep(16)
        os._exit(0)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    y = x + 1
    for attempt in (lambda: y[0].item(), work.wait, work.get_future().wait):
        try:
            attempt()
            print("no error")
        except RuntimeError as error:
            print("CAUGHT", "no sign of rank 1" in str(error))
    print(y[0].item(), torch.ones(2, device="ocl:0").sum().item())
    """
    (status, output), _ = run(program, 2, tmp_path)
    assert status == 0 and output.count("CAUGHT True") == 3, output
    assert "2.0" in output


MISTAKES = {
    "shape": "dist.all_reduce(torch.ones(4 + rank, device='ocl:0'))",
    "type": "dist.all_reduce(torch.ones(4, device='ocl:0', dtype=torch.float32 if rank else torch.int32))",
    "order": "(dist.all_reduce if rank else lambda t: dist.broadcast(t, 0))(torch.ones(4, device='ocl:0'))",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mismatch_is_named_in_detail_mode(mistake, tmp_path):
    program = f"""
    try:
        {MISTAKES[mistake]}
        torch.ocl.synchronize()
        print("no error")
    except RuntimeError as error:
        print("CAUGHT", "mismatch" in str(error), error)
    """
    for status, output in run(program, 2, tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL"):
        assert "CAUGHT True" in output, (status, output)


def test_wrong_device_and_forked_process(tmp_path):
    program = """
    alone = dist.new_group(backend="ocl")
    try:
        dist.all_reduce(torch.ones(2), group=alone)
    except RuntimeError as error:
        print("NO CPU", "cpu" in str(error))
    if torch.ocl.device_count() > 1:
        try:
            dist.all_gather_into_tensor(torch.empty(2 * size, device="ocl:0"), torch.ones(2, device="ocl:1"))
        except RuntimeError as error:
            assert "on ocl:1 and ocl:0" in str(error), error
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(x)
        except Exception as error:
            print("FORK", "fork" in str(error), flush=True)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    dist.all_reduce(x)
    assert x[0].item() == size * size
    dist.destroy_process_group()
    print("parent works")
    """
    for status, output in run(program, 2, tmp_path):
        assert status == 0 and "NO CPU True" in output and "FORK True" in output and "parent works" in output, output


def test_group_that_is_destroyed_with_work_outstanding(tmp_path):
    """destroy_process_group() finishes outstanding work. A process that ends without it drops its work."""
    program = """
    y = torch.full((2_000_000,), 2.0, device="ocl:0")
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    dist.destroy_process_group()
    assert y[-1].item() == 2 * size, y[-1].item()
    dist.init_process_group(init_method="file://" + store + "2", rank=rank, world_size=size, timeout=timeout)
    dist.all_reduce(y)
    assert y[0].item() == 2 * size * size
    if rank == 0:
        left = dist.all_reduce(y, async_op=True)  # nobody answers
    print("ends")
    """
    for status, output in run(program, 2, tmp_path):
        assert status == 0 and "ends" in output, output


def test_monitored_barrier_names_the_ranks_that_do_not_arrive(tmp_path):
    """The rank whose timeout ends first fails the barrier for all ranks, also for those that arrive later. The group
    can still be used."""
    program = """
    for _ in range(4):
        dist.monitored_barrier()
    if rank > 1:
        time.sleep(4)
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=2), wait_all_ranks=True)
        print("no error")
    except RuntimeError as error:
        print("CAUGHT", type(error).__name__, error)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    pair = dist.new_group([1, 3], backend="ocl")
    if rank == 3:
        time.sleep(3)
    if rank in (1, 3):
        try:
            dist.monitored_barrier(pair, datetime.timedelta(seconds=1))
        except RuntimeError as error:
            print("PAIR", error)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    dist.all_reduce(x)
    print("works", x[0].item())
    """
    results = run(program, 4, tmp_path)
    for rank, (status, output) in enumerate(results):
        assert status == 0 and "works 16.0" in output, output
        assert f"CAUGHT DistBackendError monitored_barrier (number 5 of group 0) failed on rank {rank}" in output
        assert "waited 2000 ms, and there was no sign of rank 2, rank 3: it ended" in output
    for rank in (1, 3):
        assert "rank 0 (global 1) waited 1000 ms, and there was no sign of rank 1 (global 3)" in results[rank][1]


def test_monitored_barrier_ends_if_the_store_does_not_answer(tmp_path):
    """Rank 0 keeps the lock of the store's file. Once it has let go, the group can be used."""
    program = """
    import fcntl
    if rank == 0:
        with open(store) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(9)
    else:
        time.sleep(1)
        begin = time.monotonic()
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
        except RuntimeError as error:
            print(f"CAUGHT after {time.monotonic() - begin:.0f} s", error)
    dist.all_reduce(x)
    print("works", x[0].item())
    """
    (_, first), (status, output) = run(program, 2, tmp_path)
    assert status == 0 and "works 4.0" in output and "works 4.0" in first, output
    assert "CAUGHT after 6 s monitored_barrier (number 1 of group 0) failed on rank 1: the store has not" in output


def test_monitored_barrier_of_other_groups_and_debug_levels(tmp_path):
    """A group with gloo only uses torch's own monitored_barrier."""
    program = """
    dist.monitored_barrier()
    dist.monitored_barrier(dist.new_group(backend="gloo"), datetime.timedelta(seconds=20))
    if rank == 0:
        time.sleep(2)
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
    except RuntimeError as error:
        print("CAUGHT", "no sign of rank 0" in str(error))
    """
    for _, output in run(program, 2, tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL"):
        assert "CAUGHT True" in output, output


def test_a_thread_that_cannot_be_started_fails_the_send(tmp_path):
    program = """
    refuse = torch_ocl_compile._C.distributed.refuse_threads
    refuse(rank == 0)
    try:
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        torch.ocl.synchronize()
        print("no error")
    except RuntimeError as error:
        print("CAUGHT", error)
    dist.destroy_process_group()
    try:
        if rank == 0:
            dist.init_process_group(init_method="file://" + store + "2", rank=0, world_size=1)
    except RuntimeError as error:
        print("GROUP", error)
    refuse(False)
    print("usable", (x * 0 + 3).sum().item())
    """
    (status, output), (other, log) = run(program, 2, tmp_path)
    assert status == 0 and "usable 3000.0" in output, output
    assert "CAUGHT send (collective 2 of group 0) failed on rank 0: the system starts no thread to wait for" in output
    assert "GROUP the system starts no thread for a process group" in output
    assert other == 0 and "usable 3000.0" in log, log  # gloo sent the message without the thread.


def test_no_memory_for_staging_fails_the_collective(tmp_path):
    """all_to_all copies its tensors to host memory in one piece. Rank 0 has not enough host memory."""
    program = """
    import resource
    torch_ocl_compile._C.distributed.set_host_mapping(False)
    sent = torch.empty(96 << 20, dtype=torch.uint8, device="ocl:0")
    got = torch.empty_like(sent)
    torch.ocl.synchronize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if rank == 0:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), limits[1]))
    try:
        dist.all_to_all_single(got, sent)
        torch.ocl.synchronize()
        print("no error")
    except RuntimeError as error:
        caught = error
    resource.setrlimit(resource.RLIMIT_AS, limits)
    print("CAUGHT", caught)
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        print("REFUSED", error)
    dist.destroy_process_group()
    print("usable", (x * 0 + 3).sum().item())
    """
    for rank, (status, output) in enumerate(run(program, 2, tmp_path)):
        assert status == 0 and "usable 3000.0" in output and "REFUSED" in output, output
        assert f"CAUGHT all_to_all_single (collective 2 of group 0) failed on rank {rank}: " in output
        # With CUDA, its allocator says it.
        assert re.search(
            "no host memory left for 134217728 bytes of pinned memory|CUDA error: out of memory", output
        ), output


@pytest.mark.needs("sweep")
def test_example_with_torchrun():
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "examples/ddp.py",
    ]
    done = subprocess.run([*command, "--steps", "31"], capture_output=True, text=True, timeout=170, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 4 and losses[-1] < 0.7 * losses[0], losses
