# torch_ocl_compile/package/__init__.py: a model in one file, which runs on any OpenCL device without PyTorch and Python.
"""`save` exports a model with torch.export and writes its graphs and weights to a file. `load` opens the file; so do the C
functions of ocl_run.h, and `import ocl_run`, which needs neither torch nor this package's compiler."""

from __future__ import annotations

from ocl_run import Model as Model
from ocl_run import load as load
from torch_ocl_compile.package.save import Method as Method
from torch_ocl_compile.package.save import save as save
from torch_ocl_compile.package.training import TrainingStep as TrainingStep
from torch_ocl_compile.package.training import adam as adam
from torch_ocl_compile.package.training import sgd as sgd

__all__ = ["Method", "Model", "TrainingStep", "adam", "load", "save", "sgd"]
