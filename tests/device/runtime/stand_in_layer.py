# tests/device/runtime/stand_in_layer.py: builds a layer of the OpenCL loader (stand_ins/) with which a device plays another one.
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stand_ins"


def build(name: str, folder: Path) -> Path:
    """Returns the library of stand_ins/<name>.c. OPENCL_LAYERS takes it. Skips the test if it cannot be built."""
    if shutil.which("cc") is None or not Path("/usr/include/CL/cl_layer.h").exists():
        pytest.skip("needs a C compiler and CL/cl_layer.h (apt install opencl-headers)")
    library = folder / f"lib{name}.so"
    source = str(SOURCES / f"{name}.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", source, "-o", str(library)], check=True)
    return library
