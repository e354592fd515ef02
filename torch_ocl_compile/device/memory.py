# torch_ocl_compile/device/memory.py: torch.ocl.memory: statistics, limits, snapshots. Names and meanings are as in torch.cuda.memory.
"""Sizes are in bytes. Functions with a leading underscore have the names that PyTorch's guides use:
`_record_memory_history`, `_snapshot` and `_dump_snapshot` make the file that https://pytorch.org/memory_viz shows."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.device.current import DeviceLike, _index
from torch_ocl_compile.errors import ConfigError

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


# Current and peak memory


def memory_allocated(device: DeviceLike = None) -> int:
    """Returns the bytes that tensors hold now."""
    return _C.memory_stats(_index(device))["allocated"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Returns the most bytes that tensors held at once, since the start or reset_peak_memory_stats."""
    return _C.memory_stats(_index(device))["allocated_peak"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Returns the bytes that are allocated from the device now, including cached memory."""
    return _C.memory_stats(_index(device))["reserved"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Returns the most bytes that were allocated from the device at once, since the start or reset_peak_memory_stats."""
    return _C.memory_stats(_index(device))["reserved_peak"]


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Returns (free, total) memory in bytes. Memory of other processes is not free, if the device or its driver tells."""
    index = _index(device)
    return _C.free_memory(index), _C.device_properties(index)["total_memory"]


# Statistics


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Returns the allocator's statistics, with the names of torch.cuda.memory_stats."""
    return dict(torch.accelerator.memory_stats(_index(device)))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Returns memory_stats as nested dictionaries: ["allocated_bytes"]["all"]["peak"]."""
    return _nested(memory_stats(device))


def host_memory_stats() -> dict[str, int]:
    """Returns statistics of pinned host memory."""
    groups = _C.host_memory_stats().items()
    return {f"{name}.{part}": value for name, stat in groups for part, value in stat.items()}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Returns host_memory_stats as nested dictionaries."""
    return dict(_C.host_memory_stats())


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Makes the peaks start again from the current values."""
    _C.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Resets what memory_stats counts as allocated and freed in total."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_peak_host_memory_stats() -> None:
    """Makes the peaks of host_memory_stats start again from the current values."""
    _C.reset_host_memory_stats(True)


def reset_accumulated_host_memory_stats() -> None:
    """Resets what host_memory_stats counts as allocated and freed in total."""
    _C.reset_host_memory_stats(False)


def _nested(flat: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return result


# Limits


def empty_cache() -> None:
    """Frees cached memory of all devices that no tensor uses. Waits for their work."""
    if _C.devices_ready():
        for index in range(_C.device_count()):
            _C.empty_cache(index)


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits the memory that this process may allocate on the device, as a share of the device's memory. A larger
    allocation raises OutOfMemoryError. ConfigError if `fraction` is not between 0 and 1."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise ConfigError(
            f"set_per_process_memory_fraction: {fraction!r} is not a share of the device's memory.\n"
            "  do: give a number from 0 to 1"
        )
    _C.set_memory_fraction(_index(device), float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Returns the share that set_per_process_memory_fraction has set. It is 1 at the start."""
    return _C.memory_fraction(_index(device))


# What memory is used for


def memory_snapshot() -> list[dict[str, Any]]:
    """Returns every segment of all devices with its blocks, as torch.cuda.memory_snapshot() does.

    The innermost frame of a block names the compiled graph for which it was allocated. The other frames are the Python
    lines that allocated it. They are recorded for blocks that were allocated after _record_memory_history().
    """
    segments: list[dict[str, Any]] = _C.memory_snapshot()["segments"]
    return segments


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Returns segments and recorded events of all devices, in the form that torch.cuda._memory_viz takes."""
    return {**_C.memory_snapshot(), "allocator_settings": {}, "external_annotations": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes _snapshot() to a file for https://pytorch.org/memory_viz."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
) -> None:
    """Starts recording the Python lines that allocate memory, on all devices.

    - `enabled`: "all" also records every allocation and free, and keeps the latest `max_entries` of them. "state"
      does not record them. None ends the recording.
    - `context`: None records no lines.
    - `stacks`: accepted for programs written for CUDA. Only Python lines are recorded.
    """
    if enabled not in (None, "state", "all"):
        raise ConfigError(f"_record_memory_history: enabled={enabled!r} is not one of None, 'state', 'all'.")
    if clear_history:
        _C.clear_memory_history()
    sites = enabled is not None and context is not None
    _C.record_memory_history(sites, max_entries if enabled == "all" else 0)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Returns the statistics of memory_stats as a readable table."""
    index = _index(device)
    stats = memory_stats(index)
    pools = (
        [("all", "")] if abbreviated else [("all", ""), ("large_pool", "large blocks"), ("small_pool", "small blocks")]
    )
    lines = [f" ocl:{index}, {_C.device_properties(index)['name']}"]
    lines.append(
        f" out of memory: {stats['num_ooms']}   cached memory given back to serve a request: {stats['num_alloc_retries']}"
    )
    head = f" {'':26} | {'now':>11} | {'peak':>11} | {'allocated':>11} | {'freed':>11} "
    groups = [[head]]
    for name, meaning, text in _SUMMARY:
        rows = []
        for pool, pool_meaning in pools:
            values = [text(stats[f"{name}.{pool}.{column}"]) for column in ("current", "peak", "allocated", "freed")]
            title = f"   {pool_meaning}" if pool_meaning else meaning
            rows.append(f" {title:26} | " + " | ".join(f"{value:>11}" for value in values) + " ")
        groups.append(rows)
    width = max(len(head), *(len(line) for line in lines))
    return "\n".join(_framed([lines, *groups], width)) + "\n"


def _framed(groups: list[list[str]], width: int) -> Iterator[str]:
    for group in groups:
        yield "|" + "-" * width + "|"
        for line in group:
            yield "|" + line.ljust(width) + "|"
    yield "|" + "-" * width + "|"


def _size(number: int) -> str:
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{number} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


_SUMMARY = (
    ("allocated_bytes", "held by tensors", _size),
    ("requested_bytes", "asked for, without padding", _size),
    ("active_bytes", "held or awaiting a stream", _size),
    ("reserved_bytes", "taken from the device", _size),
    ("inactive_split_bytes", "free, beside held blocks", _size),
    ("allocation", "blocks held by tensors", str),
    ("active", "blocks held or awaiting", str),
    ("segment", "segments of the device", str),
    ("inactive_split", "free blocks beside held", str),
)
