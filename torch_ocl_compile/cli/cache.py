# torch_ocl_compile/cli/cache.py: `torch-ocl cache`: stats, verify, prune, clear, export, import.
from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch

from torch_ocl_compile import _C, cache_file, config
from torch_ocl_compile.cli.parts import (
    FILE,
    Command,
    Group,
    device_option,
    json_option,
    print_json,
    print_table,
    say,
    writable,
)
from torch_ocl_compile.errors import ToolError

TABLES = {
    "kernels": "built kernels",
    "graphs": "compiled graphs",
    "eager": "plans of eager ops",
    "tuning": "measured choices",
}
DAY_MS = 24 * 3600 * 1000


@click.group("cache", cls=Group)
def command() -> None:
    """Look after the cache: built kernels, compiled graphs, plans of eager ops and measured choices, in one file."""


def _stats() -> dict[str, Any]:
    """Returns statistics of the cache. ToolError if the cache is off."""
    config.configure_core()
    stats = _C.exec.cache_stats()
    if not stats.get("enabled"):
        problem = stats.get("problem")
        raise ToolError(
            f"the cache is off: {stats['path']} {problem}"
            if problem
            else "the cache is off: TORCH_OCL_CACHE_SIZE_MB is 0"
        )
    return {
        "path": stats["path"],
        "entries": stats["entries"],
        "bytes": stats["bytes"],
        "most_bytes": int(config.get("cache_size_mb")) * 2**20,
        "problem": stats["problem"],
        "tables": {name: {"entries": entries, "bytes": size} for name, entries, size in _C.exec.cache_tables()},
    }


def _show(stats: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(stats)
        return
    say(stats["path"])
    rows = [(TABLES.get(name, name), row["entries"], _mib(row["bytes"])) for name, row in stats["tables"].items()]
    rows.append(("all", stats["entries"], f"{_mib(stats['bytes'])} of {_mib(stats['most_bytes'])}"))
    print_table(["what", ">entries", ">MiB"], rows)
    if stats["problem"]:
        say(f"problem: the file {stats['problem']}")


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"


@command.command(
    "stats", cls=Command, examples=["torch-ocl cache stats", "TORCH_OCL_CACHE_DIR=/tmp/c torch-ocl cache stats --json"]
)
@json_option
def stats(as_json: bool) -> int:
    """Show where the cache is and what it holds. Ends with status 1 if it is off."""
    _show(_stats(), as_json)
    return 0


@command.command("verify", cls=Command, examples=["torch-ocl cache verify"])
@json_option
def verify(as_json: bool) -> int:
    """Read every entry, and delete damaged ones. They are built again when they are needed.

    Ends with status 1 if there was a damaged entry."""
    before = _stats()
    return _cleaned(before, _C.exec.cache_verify(), "damaged", as_json)


@command.command(
    "prune", cls=Command, examples=["torch-ocl cache prune --unused-for 30", "torch-ocl cache prune --size 200"]
)
@click.option("--size", type=click.IntRange(min=0), metavar="MIB",
              help="Delete the least recently used entries until the rest has at most this size.")  # fmt: skip
@click.option(
    "--unused-for", type=click.FloatRange(min=0), metavar="DAYS", help="Delete entries that were not used for so long."
)
@json_option
def prune(size: int | None, unused_for: float | None, as_json: bool) -> int:
    """Delete old entries."""
    if size is None and unused_for is None:
        raise click.UsageError("Nothing to do: give --size or --unused-for.")
    before = _stats()
    unused_ms = -1 if unused_for is None else int(unused_for * DAY_MS)
    _cleaned(before, _C.exec.cache_prune(-1 if size is None else size * 2**20, unused_ms), "old", as_json)
    return 0


def _cleaned(before: dict[str, Any], done: dict[str, Any], kind: str, as_json: bool) -> int:
    """Reports what verify or prune did. Returns the exit status of verify."""
    if done["problem"] != before["problem"]:
        raise ToolError(f"{before['path']} {done['problem']}")
    if as_json:
        print_json({"path": before["path"], "kept": done["kept"], "deleted": done["deleted"]})
    else:
        say(f"{done['deleted']} {kind} entries deleted, {done['kept']} are left")
    return 1 if done["deleted"] else 0


@command.command("clear", cls=Command, examples=["torch-ocl cache clear"])
@json_option
def clear(as_json: bool) -> int:
    """Delete everything, measurements included."""
    _stats()
    _C.exec.cache_clear()
    _show(_stats(), as_json)
    return 0


@command.command("export", cls=Command, examples=["torch-ocl cache export h200.zip --device ocl:0"])
@device_option("Whose entries to write.")
@click.argument("file", type=FILE, callback=writable)
def export_file(device: str, file: Path) -> int:
    """Write one device's kernels, compiled graphs, plans of eager ops and measured choices to FILE, for machines with the same
    device and driver."""
    _stats()
    counts = cache_file.export_cache(torch.device(device).index or 0, file)
    say(f"{counts} in {file}")
    return 0


@command.command("import", cls=Command, examples=["torch-ocl cache import h200.zip --device ocl:0"])
@device_option("Which device the file is for.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_file(device: str, file: Path) -> int:
    """Put the kernels, compiled graphs, plans of eager ops and measured choices of FILE into the cache.

    A file of another device, driver or version is refused, with status 1. Graphs and plans are left out if they come from
    another torch or another build of torch_ocl_compile. FILE holds native code: import only what comes from somebody whom
    you would let run programs."""
    _stats()
    counts = cache_file.import_cache(torch.device(device).index or 0, file)
    say(f"{counts} from {file}")
    if counts.problem:
        say(counts.problem)
    return 0
