# torch_ocl_compile/tools/trace.py: writes launch records as a Chrome trace (chrome://tracing, https://ui.perfetto.dev).
"""Each device is a process of the trace. Kernels that overlap, because they run on several streams, are in different
rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch_ocl_compile.device.record import LaunchRecord


def chrome_trace(launches: Iterable[LaunchRecord], device_name: Callable[[int], str]) -> dict[str, Any]:
    """Returns the trace as a JSON object. Times are in microseconds from the first launch of each device."""
    events: list[dict[str, Any]] = []
    of_device: dict[int, list[LaunchRecord]] = defaultdict(list)
    for launch in launches:
        of_device[launch.device].append(launch)
    for device, own in sorted(of_device.items()):
        name = f"ocl:{device}, {device_name(device)}"
        events.append({"ph": "M", "name": "process_name", "pid": device, "args": {"name": name}})
        own = sorted(own, key=lambda launch: launch.start_ns)
        first, row_ends = own[0].start_ns, list[int]()
        for launch in own:
            row = next((i for i, end in enumerate(row_ends) if end <= launch.start_ns), len(row_ends))
            row_ends[row : row + 1] = [launch.end_ns]
            events.append(_event(launch, first, row))
        for row in range(len(row_ends)):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": device, "tid": row, "args": {"name": f"kernels {row}"}}
            )
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _event(launch: LaunchRecord, first_ns: int, row: int) -> dict[str, Any]:
    arguments = {"computes": launch.origin, "ops": launch.ops, "bytes": launch.bytes, "flops": launch.flops,
                 "global size": list(launch.global_size), "local size": list(launch.local_size),
                 "waited us": (launch.start_ns - launch.queued_ns) / 1000}  # fmt: skip
    return {"ph": "X", "name": launch.kernel, "cat": launch.kind, "pid": launch.device, "tid": row,
            "ts": (launch.start_ns - first_ns) / 1000, "dur": launch.time_us, "args": arguments}  # fmt: skip


def write_trace(launches: Iterable[LaunchRecord], device_name: Callable[[int], str], path: Path) -> None:
    path.write_text(json.dumps(chrome_trace(launches, device_name)), encoding="utf-8")


def by_kernel(launches: Iterable[LaunchRecord]) -> list[dict[str, Any]]:
    """Returns a row for each kernel: number of calls, microseconds, share of the total time. The slowest is first."""
    groups: dict[tuple[int, str], list[LaunchRecord]] = defaultdict(list)
    for launch in launches:
        groups[launch.device, launch.kernel].append(launch)
    total = sum(launch.time_us for group in groups.values() for launch in group)
    rows = []
    for (device, kernel), group in groups.items():
        time_us = sum(launch.time_us for launch in group)
        rows.append({"device": f"ocl:{device}", "kernel": kernel, "kind": group[0].kind, "calls": len(group),
                     "time_us": time_us, "share": time_us / total if total else 0.0, "computes": group[0].origin})  # fmt: skip
    return sorted(rows, key=lambda row: -row["time_us"])
