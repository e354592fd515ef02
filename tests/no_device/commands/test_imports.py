# tests/no_device/commands/test_imports.py: `import torch_ocl_compile` and the help of the commands import no compiler.
"""The compiler of torch takes over a second to import. Device, backend and rules for fake tensors are registered without
it: by entry points, or when torch imports the module that they extend (device/registration.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_ocl_compile.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
# Packages of this project that only compiling needs.
COMPILER = {"lowering", "compile", "eager", "reference", "user_kernel"}
# Modules that the package needs beyond torch, Python's own modules and itself.
LIBRARIES = {"platformdirs", "click", "rich", "ocl_run"}
HELP = f"""
from torch_ocl_compile.cli import main
for command in {["", *COMMANDS]!r}:
    assert main([*filter(None, [command]), "--help"]) == 0
"""


def modules_after(program: str, autoload: bool = False) -> set[str]:
    """Returns the names of the modules that a process has imported."""
    environment = os.environ | {"TORCH_OCL_AUTOLOAD": "always", "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
    lines = [program, "import sys", "print(*sys.modules, file=sys.stderr)"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=ROOT,
                         env=environment, check=True)  # fmt: skip
    return set(run.stderr.split())


@pytest.fixture(scope="module")
def modules_of_torch() -> set[str]:
    found = modules_after("import torch")
    assert "torch" in found and "torch_ocl_compile" not in found
    return found


@pytest.mark.parametrize(
    "program, autoload",
    [("import torch", True), ("import torch_ocl_compile", False), (HELP, True)],
    ids=["autoload", "import", "help"],
)
def test_no_compiler_is_imported(program, autoload, modules_of_torch):
    new = modules_after(program, autoload) - modules_of_torch
    assert "torch_ocl_compile.device.registration" in new
    parts = {name.split(".")[1] for name in new if name.startswith("torch_ocl_compile.")}
    assert not parts & COMPILER, parts & COMPILER
    assert {name for name in new if name.startswith("torch.")} == {"torch.ocl"}
    tops = {name.split(".")[0] for name in new} - {"torch", "torch_ocl_compile"}
    assert tops - set(sys.stdlib_module_names) <= LIBRARIES
