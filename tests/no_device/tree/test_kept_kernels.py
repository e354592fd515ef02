# tests/no_device/tree/test_kept_kernels.py: a test run keeps kernels for the next one, and nothing else.
import sqlite3
import stat
import time

from tests import kept_kernels


def write(file, rows):
    """Writes a cache with rows of (table, key, time of last use in ms)."""
    with sqlite3.connect(file) as cache:
        cache.execute("CREATE TABLE entries(id INTEGER PRIMARY KEY, tab TEXT, key TEXT, used INTEGER)")
        cache.executemany("INSERT INTO entries(tab, key, used) VALUES(?, ?, ?)", rows)
    cache.close()


def keys(file):
    cache = sqlite3.connect(file)
    found = [key for (key,) in cache.execute("SELECT key FROM entries ORDER BY key")]
    cache.close()
    return found


def test_only_kernels_in_use_are_kept(tmp_path):
    run, kept, later = tmp_path / "run", tmp_path / "kept", tmp_path / "later"
    run.mkdir()
    later.mkdir()
    now = int(time.time() * 1000)
    rows = [("kernels", "new", now), ("kernels", "old", now - 2 * kept_kernels.LONGEST_MS)]
    write(run / "cache.sqlite", [*rows, ("graphs", "graph", now), ("eager", "plan", now), ("tuning", "choice", now)])
    kept_kernels.store(run, kept)
    assert [file.name for file in kept.iterdir()] == ["cache.sqlite"]
    kept_kernels.load(later, kept)
    assert keys(later / "cache.sqlite") == ["new"]
    assert stat.S_IMODE((later / "cache.sqlite").stat().st_mode) == 0o600


def test_a_damaged_cache_is_not_kept(tmp_path):
    run, kept = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    kept.mkdir()
    write(kept / "cache.sqlite", [("kernels", "before", int(time.time() * 1000))])
    (run / "cache.sqlite").write_bytes(b"no database" * 1000)
    kept_kernels.store(run, kept)
    assert keys(kept / "cache.sqlite") == ["before"]
    (kept / "cache.sqlite").write_bytes(b"no database" * 1000)
    kept_kernels.load(run, kept)
    assert not (run / "cache.sqlite").exists()


def test_without_a_kept_file_a_run_starts_empty(tmp_path):
    kept_kernels.load(tmp_path, tmp_path / "nothing")
    kept_kernels.store(tmp_path, tmp_path / "kept")
    assert not list(tmp_path.iterdir())
