# tests/device/stored/test_warm.py: `torch-ocl warm` fills the cache by running a program whose kernels are not launched.
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server
from tests.device.own_process import ROOT

pytestmark = pytest.mark.sampled()

# A training script, which prints its results and counters. With the argument "steps" it trains for ever: until the loss
# is large. With "fail" it needs a loss above 0.
TRAIN = """
import json, sys, torch
from torch_ocl_compile import _C
from torch_ocl_compile.compile import debug

device, *words = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.GELU(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3)).to(device)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
compiled = torch.compile(model, backend="ocl")
x = torch.randn(4, 7).to(device)
with torch.ocl.record() as launches:
    while True:
        loss = (compiled(x) + 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if "steps" not in words or loss.item() > 1e6:
            break
if "fail" in words:
    assert loss.item() > 0, "a loss of zero"
builds = _C.exec.build_counters()
print(json.dumps({"loss": loss.item(), "x": x.sum().item(), "launches": len(launches), "built": builds["built"] - builds["unkept"],
                  "compiled": debug.compiled_graphs(), "eager": _C.eager_counters()["compiled"]}))
"""
FUNCTIONS = """
import torch
def pair():
    return torch.nn.Linear(6, 3).to("DEVICE"), torch.ones(2, 6, device="DEVICE")
def nothing():
    return 7
"""


@pytest.fixture
def folder(tmp_path: Path, ocl_device: str) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "functions.py").write_text(FUNCTIONS.replace("DEVICE", ocl_device))
    return tmp_path


def run(folder: Path, *command: str, fresh: bool = False, **env: str) -> tuple[int, str, str]:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "TORCH_OCL_CACHE_DIR": str(folder / "cache"),
        **env,
    }
    if fresh:
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300, env=env
        )
    else:
        done = fork_server.run(command, env, folder)
    return done.returncode, done.stdout, done.stderr


def warm(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    return run(folder, "-m", "torch_ocl_compile", "warm", *arguments, **env)


def last(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_program_finds_everything_afterwards(ocl_device: str, folder: Path) -> None:
    """`warm` launches no kernels, so all computed values are zeros. The program itself then compiles nothing."""
    status, out, err = warm(folder, "--json", "train.py", ocl_device)
    assert status == 0, err
    work, seen = json.loads(out), last(err)
    assert seen["launches"] == 0 and seen["loss"] == 0
    assert (
        work["graphs_compiled"] == 2 and work["eager_compiled"] > 3 and work["kernels_built"] > 0 and not work["ended"]
    )
    status, out, err = run(folder, "train.py", ocl_device, fresh=True)
    assert status == 0, err
    found = last(out)
    assert found["launches"] > 0 and found["loss"] > 0
    assert (found["built"], found["compiled"], found["eager"]) == (0, 0, 0)
    again = json.loads(warm(folder, "--json", "train.py", ocl_device)[1])
    assert again["graphs_compiled"] == again["eager_compiled"] == 0 and again["graphs_loaded"] == 2


def test_a_program_that_would_not_end(ocl_device: str, folder: Path) -> None:
    """`warm` ends the program when 10 calls have compiled nothing new."""
    status, out, err = warm(folder, "--idle", "10", "train.py", ocl_device, "steps")
    assert status == 0, err
    assert "graphs: 2 compiled, 0 were in the cache" in out
    assert "the program was ended: 10 calls of compiled graphs brought nothing new" in out
    assert last(run(folder, "train.py", ocl_device)[1])["compiled"] == 0


def test_a_program_that_needs_its_values(ocl_device: str, folder: Path) -> None:
    """A program that fails because all values are zeros ends `warm` with this reason. What it compiled stays in the
    cache."""
    status, _, err = warm(folder, "train.py", ocl_device, "fail")
    assert status == 1 and err.count("\n") == 1
    assert "train.py:21: AssertionError: a loss of zero" in err and "all values were zeros" in err
    assert last(run(folder, "train.py", ocl_device, "fail")[1])["compiled"] == 0


def test_a_model_and_its_inputs(folder: Path) -> None:
    status, out, err = warm(folder, "functions:pair")
    assert status == 0 and "graphs: 2 compiled" in out, err
    assert "graphs: 0 compiled, 2 were in the cache" in warm(folder, "functions:pair")[1]


def test_nothing_to_warm(folder: Path) -> None:
    status, _, err = warm(folder, "functions:nothing")
    assert status == 1 and "compiled nothing for an OpenCL device" in err
    status, _, err = warm(folder, "functions:pair", TORCH_OCL_CACHE_SIZE_MB="0")
    assert status == 1 and "the cache is off" in err
