# tests/device/compiled/test_backward_ahead.py: the kernels of a backward graph are built while its forward graph is compiled.
from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.own_process import ROOT, build_worker, run_python
from tests.device.stored.stored_graphs import own_cache  # noqa: F401  (a fixture)
from torch_ocl_compile import _C
from torch_ocl_compile.compile import ahead


class Images(torch.nn.Sequential):
    """Its forward graph chooses the strides of saved tensors."""

    def __init__(self) -> None:
        super().__init__(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(8 * 16, 5),
        )  # fmt: skip


class Tokens(torch.nn.Sequential):
    """It has attention."""

    def __init__(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(8, 2, 32, dropout=0.0, batch_first=True)
        super().__init__(torch.nn.Flatten(1, 2), layer, torch.nn.Tanh(), torch.nn.Linear(8, 3))


@pytest.fixture
def taken(ocl_device: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns a list that gets the started plan of each backward graph that is compiled."""
    started: list[Any] = []
    take = ahead.take_backward
    monkeypatch.setattr(ahead, "take_backward", lambda *args: started.append(take(*args)) or started[-1])
    torch.compile(lambda x: x * 3, backend="ocl")(torch.ones(3, device=ocl_device, requires_grad=True)).sum().backward()
    if started == [None]:
        pytest.skip("the runtime compiles kernels at their first launch, not beside the program")
    started.clear()
    return started


def gradients(model: torch.nn.Module, x: torch.Tensor, **backward: bool) -> list[torch.Tensor]:
    model(x).square().mean().backward(**backward)
    return [p.grad.double().cpu() for p in model.parameters()]


def check_gradients(kind: type[torch.nn.Module], device: str, **backward: bool) -> None:
    """Compares gradients with those of fp64 on the CPU."""
    torch.manual_seed(0)
    net, exact = kind(), kind().double()
    exact.load_state_dict(net.state_dict())
    x = torch.randn(4, 3, 8, 8)
    found = gradients(torch.compile(net.to(device), backend="ocl"), x.to(device), **backward)
    for mine, reference in zip(found, gradients(exact, x.double()), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", [Images, Tokens])
def test_backward_takes_the_plan_that_was_started(
    ocl_device: str, taken: list[Any], kind: type[torch.nn.Module]
) -> None:
    check_gradients(kind, ocl_device)
    assert len(taken) == 1 and taken[0] is not None


def test_a_graph_that_is_kept_is_compiled_anew(ocl_device: str, taken: list[Any]) -> None:
    """The plan that was started may overwrite saved tensors."""
    check_gradients(Images, ocl_device, retain_graph=True)
    assert taken == [None]


def test_a_plan_without_a_backward_is_dropped(ocl_device: str, taken: list[Any]) -> None:
    torch.compile(lambda x: x.sin().exp(), backend="ocl")(torch.ones(3, device=ocl_device, requires_grad=True))
    assert ahead._started
    torch._dynamo.reset()
    gc.collect()
    assert not ahead._started and not taken


def test_workers_start_while_a_graph_is_traced(
    ocl_device: str, taken: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do so only for graphs that the cache does not have."""
    counts: list[int] = []
    monkeypatch.setattr(_C.exec, "start_workers", lambda index, count: counts.append(count))
    for _ in range(2):
        torch._dynamo.reset()
        check_gradients(Tokens, ocl_device)
        assert len(counts) == 1 and counts[0] > 1


PROGRAM = """
import functools, json, os, torch
from torch_ocl_compile import _C
from torch_ocl_compile.compile import ahead
_C.exec.configure_builds = functools.partial(_C.exec.configure_builds, worker=os.environ["TEST_WORKER"])
x = torch.linspace(-2, 2, 100).to(os.environ["TEST_DEVICE"]).requires_grad_()
result = torch.compile(lambda x: x.sin(), backend="ocl")(x)
error = (result.detach().cpu() - x.detach().cpu().sin()).abs().max().item()
started = [plan for plan, _ in ahead._started.values()]
if os.environ["TEST_BACKWARD"]:
    result.sum().backward()
    error = max(error, (x.grad.cpu() - x.detach().cpu().cos()).abs().max().item())
print(json.dumps({"error": error, "started": started != [None]}))
"""


def run(device: str, folder: Path, how: str, backward: str) -> tuple[str, float]:
    """Runs the program with a compiler that fails on the backward graph's kernel. Returns stderr and the seconds."""
    worker = folder / "worker"
    worker.write_text(f"#!/bin/sh\nexec {sys.executable} -S {ROOT / 'tests/device/runtime/crashing_worker.py'}\n")
    worker.chmod(0o700)
    begin = time.monotonic()
    status, out, err = run_python(
        PROGRAM, TEST_DEVICE=device, TEST_WORKER=str(worker), TEST_REAL_WORKER=build_worker(), CRASH=r"= cos\(", HOW=how,
        TEST_BACKWARD=backward, TORCH_OCL_CACHE_DIR=str(folder / "cache"), TORCH_OCL_BUILD_WORKERS="2",
    )  # fmt: skip
    assert status == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    assert found["error"] < 1e-5
    if not found["started"]:
        pytest.skip("the runtime compiles kernels at their first launch, not beside the program")
    return err, time.monotonic() - begin


@pytest.mark.needs("cpu")
@pytest.mark.sampled()
def test_a_process_ends_while_kernels_are_built(ocl_device: str, tmp_path: Path) -> None:
    _, seconds = run(ocl_device, tmp_path, "hang", "")
    assert seconds < 60


@pytest.mark.needs("cpu")
@pytest.mark.sampled()
def test_a_compiler_that_crashes_ahead(ocl_device: str, tmp_path: Path) -> None:
    err, _ = run(ocl_device, tmp_path, "crash", "1")
    assert err.count("runs eagerly: the driver's compiler ends on its kernel") == 1, err
