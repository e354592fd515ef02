# tests/device/runtime/test_compiler_crash.py: a driver's compiler that crashes costs speed, not the program.
"""tests/device/runtime/crashing_worker.py crashes on chosen kernels. tests/cpp/test_build_pool.cpp tests the same in the core."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.device.own_process import FELL_BACK, ROOT, build_worker, run_python

pytestmark = [pytest.mark.sampled(every=4), pytest.mark.needs("cpu")]

PROGRAM = """
import functools, json, os, torch
from torch_ocl_compile import _C
from torch_ocl_compile.errors import CompilerCrashError
_C.exec.configure_builds = functools.partial(_C.exec.configure_builds, worker=os.environ["TEST_WORKER"])
device = os.environ["TEST_DEVICE"]

def function(x, w):
    return (x.sin() * x.exp()).cumsum(1) + (x @ w).tanh(), x.sigmoid()

def largest_error(function, *given):
    ours = function(*(x.to(device) for x in given))
    return max((a.cpu().double() - b).abs().max().item() for a, b in zip(ours, function.plain(*(x.double() for x in given))))

torch.manual_seed(0)
x, w = torch.randn(33, 40), torch.randn(40, 40)
compiled = torch.compile(function, backend="ocl", options=OPTIONS)
compiled.plain = function
try:
    error, raised = largest_error(compiled, x, w), ""
except torch._dynamo.exc.BackendCompilerFailed as failure:
    assert type(failure.inner_exception) is CompilerCrashError
    error, raised = 0.0, str(failure)
with torch.ocl.record() as launches:
    raised or compiled(x.to(device), w.to(device))
counters = _C.exec.build_counters()
print(json.dumps({"error": error, "raised": raised, "launches": len(launches), "counts": torch.ocl.fallback_counts(),
                  "unkept": counters["unkept"], "by_workers": counters["by_workers"]}))
"""
UNOPTIMISED = "is compiled without optimisation"
ALONE = "gets a kernel of its own without vectors"
EAGER = "runs eagerly: the driver's compiler ends on its kernel"
OPTIMISED = "^(?!.*-cl-opt-disable)"


@pytest.fixture
def run(ocl_device: str, tmp_path: Path) -> Any:
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\nexec {sys.executable} -S {ROOT / 'tests/device/runtime/crashing_worker.py'}\n")
    worker.chmod(0o700)

    def run(crash: str, options: str = "{}", cache: str = "cache") -> tuple[dict[str, Any], str]:
        status, out, err = run_python(
            PROGRAM.replace("OPTIONS", options),
            TEST_DEVICE=ocl_device, TEST_WORKER=str(worker), CRASH=crash, TORCH_OCL_CACHE_DIR=str(tmp_path / cache),
            TORCH_OCL_BUILD_WORKERS="1", TEST_REAL_WORKER=build_worker(),
        )  # fmt: skip
        assert status == 0, err[-3000:]
        found = json.loads(out.splitlines()[-1])
        if found["unkept"]:
            pytest.skip("this runtime compiles at the first launch, in the process of the user")
        assert found["error"] < 1e-4
        return found, err

    return run


def test_without_a_crash(run: Any) -> None:
    found, err = run("no kernel has this text")
    assert not found["counts"] and UNOPTIMISED not in err and ALONE not in err
    assert found["by_workers"], "the stand-in worker compiles nothing"


def test_the_second_try_has_no_optimisation(run: Any) -> None:
    plain, _ = run("no kernel has this text", cache="plain")
    found, err = run(OPTIMISED + r".*= sin\(")
    assert found["launches"] == plain["launches"] and not found["counts"]
    assert err.count(UNOPTIMISED) == 1 and "signal 11" in err and "aten.cumsum" in err, err
    # The next process finds the kernel in the cache.
    _, err = run(OPTIMISED + r".*= sin\(")
    assert UNOPTIMISED not in err, err


def test_the_third_try_has_a_kernel_for_each_op(run: Any) -> None:
    plain, _ = run("no kernel has this text", cache="plain")
    for _ in range(2):  # The second process knows from the cache that the compiler crashes.
        found, err = run(r"= sin\(.*= op_own_exp_f32\(")
        assert found["launches"] > plain["launches"] and not found["counts"]
        assert err.count(ALONE) == 1 and UNOPTIMISED not in err, err


def test_the_third_try_has_no_vectors(run: Any) -> None:
    found, err = run(r"= op_\w*sigmoid\w*x\d+\(v")
    assert not found["counts"] and ALONE in err, err


def test_at_last_the_op_runs_on_the_cpu(run: Any) -> None:
    for _ in range(2):
        found, err = run(r"sin\(")
        assert [op for op in found["counts"] if "sin" in op] == list(found["counts"]), found
        assert err.count(EAGER) == 1 and err.count(FELL_BACK) == 1, err


def test_a_hand_written_kernel_that_crashes(run: Any) -> None:
    """The product is computed by a generated kernel."""
    found, err = run("gemm")
    assert not found["counts"] and "does without this kind of kernel" in err, err


def test_a_forbidden_fallback_is_an_error(run: Any) -> None:
    found, _ = run(r"sin\(", options="{'fallback': 'error'}")
    assert "does not build" in found["raised"] and "signal 11" in found["raised"], found
