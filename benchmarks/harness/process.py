# benchmarks/harness/process.py: starts one side of a comparison as a process that answers commands.
"""Each side has a process of its own, because torch has one accelerator per process: after `ocl` is registered, CUDA
tensors have no backward. Separate processes also keep caches, thread pools and peak memory apart. A process that waits
for a command uses no core.

A side on a CPU gets as many cores as it may have threads, because OpenCL runtimes do not ask PyTorch how many threads they
may use. Intel's runtime takes the cores of its process as its compute units. PoCL takes all cores of the machine, so it is
told their number, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.sides import HEAP, POCL_THREADS, SIDES, is_ours
from torch_ocl_compile import _C
from torch_ocl_compile.errors import ToolError

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def runs_on_cpu(side: str, ocl_device: str) -> bool:
    if is_ours(side):
        return bool(_C.device_properties(torch.device(ocl_device).index or 0)["is_cpu"])
    return not torch.cuda.is_available()


def cores_for(threads: int) -> list[int]:
    """The cores for a side with this number of threads. Of two hardware threads that share a core, the second one is
    taken only when all cores are in use. ToolError if there are too few."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise ToolError(f"{threads} threads need as many cores, but this process may use {len(allowed)}.")
    return sorted(sorted(allowed, key=lambda core: (_sibling_number(core), core))[:threads])


def _sibling_number(core: int) -> int:
    """0 for the first hardware thread of a core, 1 for the second."""
    try:
        text = Path(_TOPOLOGY.format(core)).read_text().strip()
    except OSError:  # The system does not tell.
        return 0
    siblings: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        siblings += range(int(first), int(last or first) + 1)
    return siblings.index(core)


@contextlib.contextmanager
def on_cores(cores: list[int] | None) -> Iterator[None]:
    """Processes that are started in the block run on these cores only. None: on all that this process may use."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class SideStopped(ToolError):
    """The process of a side has ended, for example because the device has too little memory."""


class SideProcess:
    """Runs `program`, a file of this folder, or a path. `ask("round")` sends a command and returns the answer.

    `settings` are passed to the program as JSON. They include "side", "threads" and "ocl_device". If `caches` is given,
    the process keeps its caches in that folder. `python`: the interpreter, with the environment variables `variables`.
    """

    def __init__(
        self, program: str, settings: Mapping[str, Any], *, caches: str | None = None, verbose: bool = False,
        python: str = sys.executable, variables: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.side = settings["side"]
        environment = dict(os.environ) | HEAP | dict(SIDES[self.side].environment) | dict(variables or {})
        if caches is not None:
            environment |= {
                "TORCH_OCL_CACHE_DIR": f"{caches}/ocl",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                "POCL_CACHE_DIR": f"{caches}/pocl",
                "CUDA_CACHE_PATH": f"{caches}/nv",
            }
        self.cores = None
        if runs_on_cpu(self.side, settings["ocl_device"]):
            self.cores = cores_for(settings["threads"])
            environment |= dict.fromkeys(POCL_THREADS, str(settings["threads"]))
        # By its path, because the folder of the caller need not be this checkout's.
        command = [python, str(Path(__file__).parent / program), json.dumps(dict(settings))]
        self.log = None if verbose else tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe nobody reads would fill up)
        with on_cores(self.cores):
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
            )

    def ask(self, command: str) -> Any:
        self.send(command)
        return self.answer()

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        # answer() reports why.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if answer:
            return json.loads(answer)
        status = self.process.wait()
        said = ""
        if self.log is not None:
            self.log.seek(0)
            said = ([line for line in self.log.read().splitlines() if line.strip()] or [""])[-1].strip()
        raise SideStopped(
            f"the side {self.side} stopped with status {status}: {said or 'it said nothing'}\n  do: --verbose shows all it says"
        )

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
