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
    from torch_ocl_compile.user_kernel.kernel import kernel as kernel

__version__ = "0.1.0"


def _autoload() -> None:
    """Registers the device. torch calls this at the end of `import torch`, perhaps while this file still runs. So it is
    defined above the import of torch.

    An error becomes a warning, because torch must work without this package. If torch has CUDA devices, nothing is
    registered, see `wanted` in device/registration.py.
    """
    try:
        from torch_ocl_compile.device import registration

        if registration.wanted():
            return registration.register()
    except Exception as error:
        warnings.warn(f"the device 'ocl' is not available: {error}", stacklevel=2)
    if not getattr(__spec__, "_initializing", False):
        # Then `import torch_ocl_compile` runs this file again, and registers, or raises the error.
        del sys.modules[__name__]


def __getattr__(name: str) -> Any:
    """Imports functions of the public interface when they are first used."""
    if name == "explain":
        from torch_ocl_compile.report import explain

        return explain
    if name == "kernel":
        from torch_ocl_compile.user_kernel.kernel import kernel

        return kernel
    if name == "distributed":
        from torch_ocl_compile.device import distributed

        return distributed
    if f"{__name__}.{name}" in sys.modules:  # It was imported before this file ran again, see _autoload.
        return sys.modules[f"{__name__}.{name}"]
    raise AttributeError(f"module 'torch_ocl_compile' has no attribute {name!r}")


import torch  # noqa: E402, F401

# While `import torch` runs, it will call _autoload. Otherwise this is a direct import, and the caller gets errors.
if not getattr(sys.modules["torch"].__spec__, "_initializing", False):
    from torch_ocl_compile.device import registration

    registration.register()
