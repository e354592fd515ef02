# tests/device/tools/test_compile_times.py: progress and times of a compilation: a line while kernels are built, and seconds
# of each phase.
from __future__ import annotations

import logging
import os
import pty
from pathlib import Path

import pytest
import torch

from tests import fork_server
from tests.device.own_process import ROOT, build_worker
from tests.device.stored.stored_graphs import messages, own_cache  # noqa: F401  (a fixture)
from torch_ocl_compile.compile.debug import records

# A program with one kernel. Its build worker, a script, sleeps for three seconds before it starts.
SLOW = """
import functools, os, torch, torch_ocl_compile
from torch_ocl_compile import _C
_C.exec.configure_builds = functools.partial(_C.exec.configure_builds, worker=os.environ["TEST_WORKER"])
x = torch.arange(4.0).to(os.environ["TEST_DEVICE"])
assert torch.compile(lambda x: x.sin() + 1, backend="ocl")(x).isfinite().all()
"""
ERASE = "\r\x1b[K"


def run_on_terminal(device: str, folder: Path, terminal: bool = True, **env: str) -> str:
    """Returns what the program writes to stderr, which is a terminal or a pipe."""
    worker = folder / "worker"
    worker.write_text(f"#!/bin/sh\nsleep 3\nexec {build_worker()}\n")
    worker.chmod(0o700)
    given = {"TEST_DEVICE": device, "TEST_WORKER": str(worker), "TORCH_OCL_CACHE_DIR": str(folder / "cache"),
             "TORCH_OCL_BUILD_WORKERS": "1", "PYTHONPATH": str(ROOT), "TERM": "xterm"}  # fmt: skip
    parent, child = pty.openpty() if terminal else os.pipe()
    program = fork_server.start(["-c", SLOW], {**os.environ, **given, **env}, stderr=child)
    os.close(child)
    written = b""
    try:
        while piece := os.read(parent, 4096):
            written += piece
    except OSError:  # Linux reports EIO when the program has closed its side of the terminal.
        pass
    os.close(parent)
    assert program.wait(60) == 0, written
    return written.decode()


def own_lines(written: str) -> list[str]:
    return [line for line in written.split(ERASE) if "kernels built" in line]


@pytest.mark.sampled()
def test_a_line_while_kernels_are_built(ocl_device: str, tmp_path: Path) -> None:
    """The line appears after two seconds of building, and is erased at the end."""
    written = run_on_terminal(ocl_device, tmp_path)
    first, *later = [f"torch_ocl_compile: {k} of 1 kernels built, in 1 process" for k in (0, 1)]
    # A slow machine may draw the line once more between the end of the build and the end of the compilation.
    assert own_lines(written) in ([first], [first, *later])
    assert written.endswith(ERASE)


@pytest.mark.parametrize("how", ["pipe", "option", "dumb terminal"])
@pytest.mark.sampled(first=3)
def test_no_line(ocl_device: str, tmp_path: Path, how: str) -> None:
    env = {"pipe": {}, "option": {"TORCH_OCL_PROGRESS": "0"}, "dumb terminal": {"TERM": "dumb"}}[how]
    written = run_on_terminal(ocl_device, tmp_path, terminal=how != "pipe", **env)
    assert not own_lines(written) and ERASE not in written


def test_seconds_of_each_graph(ocl_device: str) -> None:
    """The seconds are in the log, in compile_times() and in Dynamo's metrics, for compiled and for loaded graphs."""
    weight = torch.randn(9, 7).to(ocl_device).requires_grad_()

    def step() -> None:
        torch._dynamo.reset()
        torch.compile(lambda w: (w.exp() @ w.t()).sum(), backend="ocl")(weight).backward()

    for loaded in (False, True):
        with messages(logging.INFO) as lines:
            step()
        forward, backward = torch.ocl.compile_times()[-2:]  # The list keeps the last graphs only.
        assert [forward.graph, backward.graph] == [record.label for record in records()[-2:]]
        for times in (forward, backward):
            assert times.loaded == loaded
            assert (times.lowering > 0) != loaded and times.building > 0 and times.tuning == 0
            assert times.scheduling > 0 or loaded  # The schedule of a loaded graph may be kept.
            assert times.total == sum(times.phases().values())
            (line,) = [line for line in lines if line.startswith(times.graph + ",")]
            assert f"{'loaded' if loaded else 'compiled'} in {times.total:.2f} s: " in line
            assert f"building {times.building:.2f}" in line and ("lowering" in line) != loaded
        assert (forward.tracing > 0) != loaded and (forward.loading > 0) == loaded
        for phase in ("loading" if loaded else "lowering", "building"):
            seconds = [getattr(times, phase) for times in (forward, backward)]
            assert torch._dynamo.utils.compilation_time_metrics[f"ocl.{phase}"] == seconds
        assert "ocl.building" in torch._dynamo.utils.compile_times()
