# tests/worker_process.py: a child process that answers lines. If it crashes or hangs, one answer is missing.
from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

from tests import fork_server

ROOT = Path(__file__).resolve().parents[1]


class WorkerProcess:
    """`python -m MODULE FD ARGUMENTS...`, started when it is first needed.

    The process reads lines from its standard input, and answers each with a line on the file descriptor FD. `log` is
    the file for its standard error; None discards it.
    """

    def __init__(self, module: str, arguments: Sequence[str], log: Path | None = None) -> None:
        self.module, self.arguments, self.log = module, list(arguments), log
        self.process: fork_server.Program | None = None

    def start(self) -> fork_server.Program:
        self.answers, theirs = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_OCL_WARN_FALLBACK": "0", "PYTHONFAULTHANDLER": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
        command = ["-m", self.module, str(theirs), *self.arguments]
        lines, to_lines = os.pipe()
        with open(self.log or os.devnull, "wb") as errors:
            self.process = fork_server.start(
                command, environment, ROOT, stdin=lines, stderr=errors.fileno(), pass_fds=[theirs]
            )
        os.close(lines)
        os.close(theirs)
        self.lines = to_lines
        return self.process

    def exchange(self, line: bytes, limit_s: float) -> bytes | None:
        """Returns the answer to a line; b"" if the process has ended, None if there was no answer within `limit_s`."""
        if self.process is None:
            self.start()
        try:
            self._write(line + b"\n")
            return self._read(limit_s)
        except BrokenPipeError:
            return b""

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.lines, data) :]

    def _read(self, limit_s: float) -> bytes | None:
        data = b""
        until = time.monotonic() + limit_s
        while not data.endswith(b"\n"):
            if not select.select([self.answers], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                return b""
            data += piece
        return data

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        os.close(self.answers)
        os.close(self.lines)
        self.process = None
