# tests/kept_kernels.py: keeps the compiled kernels of a test run for the next one.
"""Building kernels takes most of the time of a test run, and a binary depends only on the kernel's text, the device and
the driver. So a run starts with the kernels of earlier runs in its cache. Graphs, plans, measurements and verdicts
are never kept: each run traces, lowers and checks everything again.

A run works on a copy in a temporary folder, so that simultaneous runs do not share a cache."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

LONGEST_MS = 14 * 24 * 3600 * 1000  # Kernels that no run has used for two weeks are dropped.
FILE = "cache.sqlite"
KEPT = Path(__file__).resolve().parents[1] / "build" / "test_kernels"


def load(folder: Path, kept: Path = KEPT) -> None:
    """Copies the kept kernels, if there are any, into the cache of a run."""
    if (kept / FILE).exists():
        _copy(kept / FILE, folder / FILE)


def store(folder: Path, kept: Path = KEPT) -> None:
    """Replaces the kept kernels by those in a run's cache."""
    if not (folder / FILE).exists():
        return
    kept.mkdir(parents=True, exist_ok=True)
    new = kept / f"{FILE}.{os.getpid()}"
    try:
        if _copy(folder / FILE, new):
            os.replace(new, kept / FILE)
    finally:
        new.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> bool:
    """Copies the kernels of one cache into a new file. Returns False if the source cannot be read."""
    oldest = int(time.time() * 1000) - LONGEST_MS
    os.close(os.open(target, os.O_CREAT | os.O_RDWR, 0o600))  # The cache refuses a file that others can read.
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        try:
            old.backup(new)
            new.execute("DELETE FROM entries WHERE tab != 'kernels' OR used < ?", (oldest,))
            new.commit()
            new.execute("VACUUM")
            return True
        except sqlite3.DatabaseError:
            pass
    target.unlink()
    return False
