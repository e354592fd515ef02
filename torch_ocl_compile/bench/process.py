# torch_ocl_compile/bench/process.py: starts one side of a comparison as a process that answers commands.
"""A side is eager, inductor or ocl. Each has a process of its own, because torch has one accelerator per process: after
`ocl` is registered, CUDA tensors have no backward. Separate processes also keep caches, thread pools and peak memory
apart. A process that waits for a command uses no core."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_ocl_compile.errors import ToolError

SIDES = ("eager", "inductor", "ocl")


class SideProcess:
    """Runs `program`, a file of this folder. `ask("round")` sends a command and returns the answer.

    `settings` are passed to the program as JSON; they include "side". If `caches` is given, the process keeps its
    caches in that folder.
    """

    def __init__(
        self, program: str, settings: Mapping[str, Any], *, caches: str | None = None, verbose: bool = False
    ) -> None:
        self.side = settings["side"]
        environment = dict(os.environ)
        if self.side != "ocl":
            environment["TORCH_OCL_AUTOLOAD"] = "never"
        if caches is not None:
            environment |= {
                "TORCH_OCL_CACHE_DIR": f"{caches}/ocl",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                "POCL_CACHE_DIR": f"{caches}/pocl",
                "CUDA_CACHE_PATH": f"{caches}/nv",
            }
        # Start it by its path: `-m` would import torch_ocl_compile, which registers the device on every side.
        command = [sys.executable, str(Path(__file__).with_name(program)), json.dumps(dict(settings))]
        self.log = None if verbose else tempfile.TemporaryFile("w+")  # noqa: SIM115  (a pipe nobody reads would fill up)
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
        raise ToolError(
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
