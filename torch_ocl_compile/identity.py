# torch_ocl_compile/identity.py: identifies the code that this process runs, for keys of stored plans.
"""A process may use a stored plan if it would make the same one, that is, with the same sources, extension and torch.
Version numbers are not enough in a checkout where somebody works."""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from torch_ocl_compile import _C

_PACKAGE = Path(__file__).parent
_HOMES = (f"{_PACKAGE}/", f"{Path(torch.__file__).parent}/")
# When the package was loaded, because `import torch` imports this file.
_LOADED = time.time()


def sources_changed() -> bool:
    """True if a source file was written after this process began to import. The loaded code may then differ from the
    file. Each compilation of an op asks, so this makes no Path objects."""
    return any(
        os.stat(os.path.join(folder, name)).st_mtime > _LOADED
        for folder, _, names in os.walk(_PACKAGE)
        for name in names
        if name.endswith(".py")
    )


@functools.cache
def of_code() -> str:
    """Returns a text that is equal in processes that run the same code. "" if that is unknown. It is computed once,
    because loaded code does not change.
    """
    sources = _sources()
    extension = _C.build_id()
    if not sources or not extension or sources_changed():
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_PACKAGE)} {len(content)}\n".encode())
        digest.update(content)
    return f"{digest.hexdigest()} {extension} {torch.__version__} {torch.version.git_version}"


@functools.cache
def of_device(index: int) -> str:
    """Returns name, driver and capabilities of a device."""
    return f"{sorted(_C.device_properties(index).items())}\n{_C.describe_device(index)}"


def entry_prefix(index: int) -> str:
    """Returns the prefix of the keys of graphs and plans of eager ops in the cache. It stands for a device with its
    driver and for this code. "" if none can be stored.
    """
    code = of_code()
    return _C.exec.store_prefix(index) + hashlib.blake2b(code.encode(), digest_size=8).hexdigest() + "-" if code else ""


def covers(function: Callable[..., Any]) -> bool:
    """True if `of_code` covers a function: its code belongs to this package or to torch."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return isinstance(function, OpOverload) or (code is not None and code.co_filename.startswith(_HOMES))


def _sources() -> list[Path]:
    return sorted(_PACKAGE.rglob("*.py"))
