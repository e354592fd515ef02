# torch_ocl_compile/eager/__init__.py: ops outside compiled functions, each compiled on its own.
"""Importing this imports no compiler: ops whose plans are in the cache do not need it."""

from torch_ocl_compile import _C


def reasons() -> dict[str, str]:
    """Why ops could not be compiled, the latest reason of each."""
    return _C.eager_reasons()
