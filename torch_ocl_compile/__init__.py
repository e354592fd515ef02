# torch_ocl_compile/__init__.py: registers the device `ocl` with torch, once; nothing else.
"""torch.compile(model, backend="ocl") on any OpenCL device.

`import torch` alone registers the device, through the entry point "torch.backends", unless torch has CUDA devices;
`import torch_ocl_compile` always does. No OpenCL runtime is loaded before a device is used.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_ocl_compile.report import explain as explain

__version__ = "0.1.0"


def _autoload() -> None:
    """Called at the end of `import torch`, perhaps while this file still runs: so it stands above the import.

    What fails here is a warning: torch must work without us. Where torch has CUDA devices it is left as it is, see
    `wanted` in device/registration.py.
    """
    try:
        from torch_ocl_compile.device import registration

        if registration.wanted():
            registration.register()
        elif not getattr(__spec__, "_initializing", False):
            del sys.modules[__name__]  # so that `import torch_ocl_compile` runs this file again, and registers
    except Exception as error:
        warnings.warn(f"the device 'ocl' is not available: {error}", stacklevel=2)


def __getattr__(name: str) -> Any:
    """What users call by these names, imported when it is asked for."""
    if name == "explain":
        from torch_ocl_compile.report import explain

        return explain
    if name == "distributed":
        from torch_ocl_compile.device import distributed

        return distributed
    raise AttributeError(f"module 'torch_ocl_compile' has no attribute {name!r}")


import torch  # noqa: E402, F401

# A running `import torch` will call _autoload; otherwise this is the direct import, and errors are the caller's.
if not getattr(sys.modules["torch"].__spec__, "_initializing", False):
    from torch_ocl_compile.device import registration

    registration.register()
