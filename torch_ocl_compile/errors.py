# torch_ocl_compile/errors.py: every exception that a user can meet. Each class says whose fault the error is.
"""The C++ core throws an error with a kind (csrc/support/error.h). In Python it becomes the class of that kind.

A message says what happened, where, and what to do.
"""

from __future__ import annotations

import torch

__all__ = [
    "BuildError",
    "CompilerCrashError",
    "ConfigError",
    "DeviceError",
    "FallbackError",
    "InternalError",
    "KernelBoundsError",
    "KernelResultError",
    "OclError",
    "OutOfMemoryError",
    "ToolError",
    "UnsupportedError",
]


class OclError(RuntimeError):
    """Base of all errors of torch_ocl_compile except out of memory."""


class ConfigError(OclError, ValueError):
    """The caller's fault: a wrong option, device index, or tensor location. The message says what to change."""


class UnsupportedError(OclError, NotImplementedError):
    """The caller's fault: a dtype or an op that the device or the compiler does not support. The message says how to
    avoid it."""


class FallbackError(UnsupportedError):
    """The caller's fault: an op without kernels, while the option fallback=error forbids running it on the CPU. The
    message names the op, and `reason` says why it has no kernels."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class NotLowered(UnsupportedError):
    """A graph, or a piece of one, cannot become a plan. The backend runs it eagerly, so a user does not meet this error."""


class CutNeeded(NotLowered):
    """A graph cannot become one plan. `reasons`: the nodes of the FX graph at which it must be cut. The backend cuts it there."""

    def __init__(self, message: str, reasons: dict[torch.fx.Node, str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class DeviceError(OclError):
    """The fault of the device or driver: an OpenCL call failed. The message names the call, the device and the kernel."""


class BuildError(DeviceError):
    """The driver's fault: a kernel did not build. The message names the kernel, the device, and the folder with source
    and log."""


class CompilerCrashError(BuildError):
    """The driver's fault: its compiler ended, with its process, on a kernel, also without optimisation and on simpler
    kernels. The ops then run on the CPU, so a user meets this error only with the option fallback=error, or with a kernel
    of their own. `ops`: the (op, source line) of what the kernels compute."""

    def __init__(self, message: str, ops: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.ops = list(ops or ())


class ToolError(OclError):
    """A command failed: a script that it ran raised an error, or a file is not what it expects. The message names the
    script or file."""


class InternalError(OclError):
    """Our fault: a promise between two parts of this package was broken. Please report it with the saved graph."""


class KernelResultError(InternalError):
    """Our fault or the driver's: with the option check, a kernel computed something else than the interpreter. The message
    names the kernel, the lines of the model, the first wrong element, and the folder with a script that shows it."""


class KernelBoundsError(InternalError):
    """Our fault or the driver's: with the option debug, a kernel stored outside of its buffers. The message names the kernel,
    the lines of the model, the buffer and the offset."""


# The class is torch's own, so `except torch.OutOfMemoryError` works as on other devices.
OutOfMemoryError = torch.OutOfMemoryError
