# tests/device/cuda_stand_in.py: builds the libraries of stand_ins/, and gives a process a device that seems to be an NVIDIA GPU.
"""A new interpreter with environment(...) sees CPU devices that import memory of the stand-in for libcuda. A "CUDA tensor" of
such a process is a CPU tensor over the memory: cuda_tensor() takes it out of a DLPack capsule."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

SOURCES = Path(__file__).parent / "stand_ins"
LIBRARIES = {"libcuda.so.1": "cuda.c", "libopencl_layer.so": "opencl_layer.c"}


def build(folder: Path, libraries: dict[str, str] = LIBRARIES) -> Path:
    """Compiles the stand-ins into `folder`. Returns it. Skips the test if there is no compiler or no header, or if torch would
    take the stand-in for its CUDA driver."""
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
    """Returns the environment variables that put the stand-ins of `folder` in front of a process's libraries."""
    return {"LD_LIBRARY_PATH": str(folder), "OPENCL_LAYERS": str(folder / "libopencl_layer.so"), **more}


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
    """Returns a CPU tensor over the memory of a capsule of kDLCUDA. It stands for a CUDA tensor."""
    tensor = _content(capsule)
    assert (tensor.device_type, tensor.device_id) == (2, 0)
    tensor.device_type = 1
    return torch.utils.dlpack.from_dlpack(capsule)


def _content(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _Tensor.from_address(get(capsule, b"dltensor"))
