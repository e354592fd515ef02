# tests/device/runtime/test_build_faults.py: faults while kernels are built and stored do not change the results of a program.
"""Workers that crash, hang or are killed are tested in tests/cpp/test_build_pool.cpp, damaged entries of the cache in
test_stored_graph_faults.py and test_second_process.py."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.device.own_process import run_python

pytestmark = pytest.mark.sampled()

# `graph(k)` compiles a graph of many kernels, forward and backward, and an eager op, and checks their results. FAULT is
# replaced by code that causes a fault and calls graph() again.
PROGRAM = """
import json, os, resource, shutil, sys, threading, torch
from torch_ocl_compile import _C
from torch_ocl_compile.compile import debug

device, folder = os.environ["TEST_DEVICE"], os.environ["TORCH_OCL_CACHE_DIR"]

def graph(k):
    x = torch.linspace(-1, 1, 6 * (k + 4)).reshape(6, k + 4)
    y = x.to(device).requires_grad_()
    function = lambda x: sum(x.roll(i, 1).cumsum(1).softmax(i % 2).sum() * (x.sin() @ x.t()).relu().mean() for i in range(k))
    exact = x.double().requires_grad_()
    expected = function(exact)
    expected.backward()
    found = torch.compile(function, backend="ocl", dynamic=False)(y)
    found.backward()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(y.grad.cpu().double(), exact.grad, rtol=1e-4, atol=1e-5)
    assert torch.equal((y.detach() - k).cpu(), x - k)

graph(1)
before = _C.exec.build_counters()
FAULT
counters = _C.exec.build_counters()
print(json.dumps({"compiled": debug.compiled_graphs(), "loaded": debug.loaded_graphs(), "problem": _C.exec.cache_stats()["problem"],
                  "built": counters["built"] - before["built"], "by_workers": counters["by_workers"] - before["by_workers"],
                  "unkept": counters["unkept"], "all": counters["built"] - counters["unkept"], "eager": _C.eager_counters()["compiled"]}))
"""
PLAIN = "graph(3)"
NO_DESCRIPTORS = """
_C.exec.configure_builds(5, 1000)  # other settings end the idle workers
limit = len(os.listdir("/proc/self/fd")) + 40
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    # The compiler of this process may need one, and so does the file of the places; a worker takes two.
    os.close(taken.pop())
    os.close(taken.pop())
graph(3)
for descriptor in taken:
    os.close(descriptor)
"""
FORKS = """
failed = []
def work():
    try:
        graph(3)
    except BaseException as error:
        failed.append(error)
thread = threading.Thread(target=work)
thread.start()
children = []
while thread.is_alive():
    child = os.fork()
    if child == 0:
        os._exit(0)
    children.append(child)
    thread.join(0.2)
assert not failed, failed
assert len(children) > 2 and all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def run(device: str, folder: Path, fault: str = PLAIN, workers: int = 2, fresh: bool = False) -> dict[str, Any]:
    """Runs PROGRAM with this fault. Returns its build counters."""
    status, out, err = run_python(
        PROGRAM.replace("FAULT", fault), fresh,
        TEST_DEVICE=device, TORCH_OCL_CACHE_DIR=str(folder), TORCH_OCL_BUILD_WORKERS=str(workers), OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert status == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def test_no_free_file_descriptors(ocl_device: str, tmp_path: Path) -> None:
    """Without free file descriptors no worker can be started, so this process compiles the kernels itself."""
    found = run(ocl_device, tmp_path, NO_DESCRIPTORS)
    assert found["built"] > 3 and found["by_workers"] == 0
    second = run(ocl_device, tmp_path, fresh=True)
    assert second["all"] == 0


def test_forks_while_workers_build(ocl_device: str, tmp_path: Path) -> None:
    """Children that are forked while workers build inherit the workers' sockets. They must end normally."""
    found = run(ocl_device, tmp_path, FORKS)
    assert found["built"] > 3
    if not found["unkept"]:
        assert found["by_workers"] > 0
    assert run(ocl_device, tmp_path)["compiled"] == 0


@pytest.mark.needs("cpu")
@pytest.mark.parametrize("workers", [-1, 0])
def test_a_few_kernels_are_compiled_outside_of_this_process(ocl_device: str, tmp_path: Path, workers: int) -> None:
    """So a crash of the driver's compiler does not end this process, unless its user wants no workers."""
    found = run(ocl_device, tmp_path, "graph(2)", workers)
    assert found["built"] > 0 and found["by_workers"] == (0 if found["unkept"] or workers == 0 else found["built"])


# Faults that make the cache unwritable, after the first graph is stored and before the second one is.
HINDRANCES = {
    "no room": """
_C.exec.cache_store("other", "large", "a" * 3_000_000)
size = os.path.getsize(os.path.join(folder, "cache.sqlite-wal"))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
""",
    "locked": """
import sqlite3
other = sqlite3.connect(os.path.join(folder, "cache.sqlite"), isolation_level=None)
other.execute("BEGIN IMMEDIATE")
""",
    "gone": "shutil.rmtree(folder)\n",
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[] if how == "no room" else pytest.mark.needs("sweep")) for how in HINDRANCES]
)
def test_a_cache_that_takes_no_more(ocl_device: str, tmp_path: Path, how: str) -> None:
    """Graphs, kernels and plans of eager ops that cannot be stored are used in this process, and compiled again in the next one."""
    folder = tmp_path / "cache"
    found = run(ocl_device, folder, HINDRANCES[how] + PLAIN)
    assert found["problem"] or how == "gone", "nothing failed"
    assert found["compiled"] == 4
    second = run(ocl_device, folder)
    assert second["problem"] == "" and second["compiled"] > 0 and second["eager"] > 0
    third = run(ocl_device, folder)
    assert third["all"] == third["compiled"] == third["eager"] == 0 and third["loaded"] == 4


def test_many_processes_at_once(ocl_device: str, tmp_path: Path) -> None:
    """Several processes share one empty cache. TEST_PROCESSES=200 starts more of them.

    Together they build each kernel once: a process waits for the kernels that another one is building. A runtime that
    keeps no binaries builds in each process. A process that starts afterwards builds none."""
    processes = int(os.environ.get("TEST_PROCESSES", "4"))
    with ThreadPoolExecutor(processes) as pool:
        found = list(pool.map(lambda _: run(ocl_device, tmp_path, "graph(1)"), range(processes)))
    assert all(ended["problem"] == "" for ended in found)
    alone = run(ocl_device, tmp_path / "alone", "graph(1)")
    assert sum(ended["all"] for ended in found) == alone["all"]
    after = run(ocl_device, tmp_path, "graph(1)")
    assert after["all"] == after["compiled"] == after["eager"] == 0
