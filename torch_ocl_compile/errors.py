# torch_ocl_compile/errors.py: every exception a user can meet, one class each; by whose fault it is.
"""The core throws an error with a kind (csrc/support/error.h); it arrives in Python as the class of that kind.

A message says what happened, where, and what to do.
"""

from __future__ import annotations

import torch

__all__ = [
    "BuildError",
    "ConfigError",
    "DeviceError",
    "FallbackError",
    "InternalError",
    "OclError",
    "OutOfMemoryError",
    "ToolError",
    "UnsupportedError",
]


class OclError(RuntimeError):
    """Base of all errors of torch_ocl_compile, out of memory excepted."""


class ConfigError(OclError, ValueError):
    """The caller's: an option, a device index, a tensor in the wrong place. Names what to change."""


class UnsupportedError(OclError, NotImplementedError):
    """The caller's: a dtype or an op that the device or the compiler cannot do. Names the way around."""


class FallbackError(UnsupportedError):
    """The caller's: an op without kernels, where the option fallback=error forbids to run it on the CPU. Names the op."""


class DeviceError(OclError):
    """The device's or driver's: an OpenCL call failed. Names the call, the device and the kernel."""


class BuildError(DeviceError):
    """The driver's: a kernel did not build. Names kernel, device and the folder with source and log."""


class ToolError(OclError):
    """A command's: a script that it ran failed, a file is not what the command expects. Names the script or the file."""


class InternalError(OclError):
    """Ours: a promise between two parts was broken. Please report it with the saved graph."""


# torch's own, so that `except torch.OutOfMemoryError` works as on any device.
OutOfMemoryError = torch.OutOfMemoryError
