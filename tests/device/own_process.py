# tests/device/own_process.py: runs a test's program in a separate process.
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# Part of the warning that csrc/torch/fallback.cpp gives.
FELL_BACK = "runs on the CPU, with copies both ways"
ROOT = Path(__file__).resolve().parents[2]


def run_python(program: str, **env: str) -> tuple[int, str, str]:
    """Runs `program` after `import torch_ocl_compile`. Returns (exit status, stdout, stderr)."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import torch_ocl_compile\n" + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path, **env},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
