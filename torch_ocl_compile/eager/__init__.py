# torch_ocl_compile/eager/__init__.py: runs ops outside of compiled functions, by compiling each op on its own.
"""Importing this package does not import the compiler. Ops whose plans are in the cache do not need it."""

from torch_ocl_compile import _C


def reasons() -> dict[str, str]:
    """Returns the latest reason for each op that ran on the CPU since torch.ocl.reset_fallback_counts()."""
    return _C.eager_reasons()
