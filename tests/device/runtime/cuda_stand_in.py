# tests/device/runtime/cuda_stand_in.py: builds the libraries of stand_ins/, which make a CPU device look like an NVIDIA GPU
# with CUDA.
"""In a program with the variables of environment(), CPU devices import memory that the stand-in for libcuda
allocates. A "CUDA tensor" of this process is a CPU tensor on the same memory, which cuda_tensor() makes from a DLPack
capsule."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.device.own_process import run_python

SOURCES = Path(__file__).parent / "stand_ins"
LIBRARIES = {"libcuda.so.1": "cuda.c", "libopencl_layer.so": "opencl_layer.c"}


def build(folder: Path, libraries: dict[str, str] = LIBRARIES) -> Path:
    """Compiles the stand-ins into `folder`, and returns the folder. Skips the test without a compiler or headers, and
    with a torch that has CUDA, which would load the stand-in as its driver."""
    if torch.backends.cuda.is_built():
        pytest.skip("this torch has CUDA, and would use the stand-in for its driver")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not Path("/usr/include/CL/cl_layer.h").exists():
        pytest.skip("needs a C compiler and CL/cl_layer.h: apt-get install gcc opencl-headers")
    for name, source in libraries.items():
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-Wno-unused", str(SOURCES / source), "-o", str(folder / name)],
            check=True,
        )
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Returns environment variables with which a new process loads the stand-ins in `folder` instead of the drivers."""
    return {"LD_LIBRARY_PATH": str(folder), "OPENCL_LAYERS": str(folder / "libopencl_layer.so"), **more}


def run(folder: Path, program: str, **env: str) -> str:
    """Runs a program with the stand-ins in `folder`, and returns what it printed. Skips the test if the OpenCL loader has no layers:
    the program then prints "no layers", or we log that no device has a UUID of CUDA."""
    status, out, err = run_python(program, **environment(folder, **env))
    if "no UUID" in err or "no layers" in out:
        pytest.skip("the OpenCL loader has no layers")
    assert status == 0, out + err
    return out


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
    )


def parts(capsule):
    """Returns (address, device type, device number) of a DLPack capsule."""
    tensor = _content(capsule)
    return tensor.data, tensor.device_type, tensor.device_id


def cuda_tensor(capsule):
    """Returns a CPU tensor on the memory of a DLPack capsule with device type kDLCUDA. It stands for a CUDA tensor."""
    tensor = _content(capsule)
    assert (tensor.device_type, tensor.device_id) == (2, 0)
    tensor.device_type = 1
    return torch.utils.dlpack.from_dlpack(capsule)


def _content(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Tensor.from_address(get(capsule, b"dltensor"))
