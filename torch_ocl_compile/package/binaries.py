# torch_ocl_compile/package/binaries.py: built kernels of a device, for a package.
from __future__ import annotations

import sqlite3
import tempfile
import warnings
from contextlib import closing
from pathlib import Path

import ocl_run
from torch_ocl_compile.package.writer import add_kernels


def add(path: Path, device: str) -> None:
    """Builds the kernels of all methods of a package for a device, and adds their native code to the package. Warns if the
    device's runtime gives no native code away."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.sqlite"
        with ocl_run.load(path, device=device, cache=cache) as model:
            for method in model.methods.values():
                method.prepare()
        with closing(sqlite3.connect(cache)) as db:
            kernels = db.execute("SELECT key, value FROM entries WHERE tab = 'kernels'").fetchall()
    if not kernels:
        warnings.warn(
            f"the runtime of device {device!r} keeps built kernels to itself: the package has none", stacklevel=3
        )
    add_kernels(path, iter(kernels))
