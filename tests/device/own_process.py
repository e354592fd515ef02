# tests/device/own_process.py: runs a test's program in a separate process.
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests import fork_server

# A part of the warning that csrc/torch/refusals.cpp prints at a fallback.
FELL_BACK = "runs on the CPU, with copies both ways"
ROOT = Path(__file__).resolve().parents[2]


def build_worker() -> str:
    """Returns the path of the program that compiles kernels. It is beside the extension."""
    from torch_ocl_compile import _C

    return str(Path(_C.__file__).parent / "ocl_build_worker")


def run_python(program: str, fresh: bool = False, **env: str) -> tuple[int, str, str]:
    """Runs `program` after `import torch_ocl_compile`. Returns (exit status, stdout, stderr).

    `fresh`: in a new interpreter, which has not imported torch and has its own hash seed; otherwise in a fork
    (fork_server.py).
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    arguments, env = (
        ["-c", "import torch_ocl_compile\n" + textwrap.dedent(program)],
        {**os.environ, "PYTHONPATH": path, **env},
    )
    if fresh:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, env=env)
    else:
        done = fork_server.run(arguments, env)
    return done.returncode, done.stdout, done.stderr
