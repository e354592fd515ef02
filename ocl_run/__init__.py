# ocl_run/__init__.py: runs packages on any OpenCL device, from Python, without torch and without a compiler.
"""A package is written by `torch_ocl_compile.package.save`. Arguments are numpy arrays, torch tensors or integers; results are
numpy arrays, or torch tensors if an argument was one.

    model = ocl_run.load("model.ocl")
    probabilities = model(images)
"""

from __future__ import annotations

from ocl_run.library import devices as devices
from ocl_run.model import Model as Model
from ocl_run.model import PackageError as PackageError
from ocl_run.model import load as load

__all__ = ["Model", "PackageError", "devices", "load"]
