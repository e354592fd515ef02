# torch_ocl_compile/tools/report_text.py: the text of a device report, and what must not be in it.
from __future__ import annotations

import getpass
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# An absolute path with at least two parts. "//" and "https://" are none.
_PATH = re.compile(r"(?<![\w./:~-])(?:/[^\s/:;,'\"()<>|]+)+/?")


def scrubbed(value: Any) -> Any:
    """Returns JSON without private data: of paths only the last part is left, and numbers that JSON lacks are null."""
    if isinstance(value, Mapping):
        return {key: scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _without_paths(value) if isinstance(value, str) else value


def _without_paths(text: str) -> str:
    return _PATH.sub(_last_part, text.replace(str(Path.home()), "~") if Path.home() != Path("/") else text)


def _last_part(found: re.Match[str]) -> str:
    path = found[0].rstrip("/")
    last = path.rpartition("/")[2]
    if path.count("/") < 2:  # "/dev" or a fraction such as "3 /4".
        return found[0]
    return f".../{'...' if last == _user() else last}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # No entry for this user.
        return ""


def lines(report: Mapping[str, Any]) -> list[str]:
    """Returns the report for people."""
    versions = report["versions"]
    options = ", ".join(f"{name}={value}" for name, value in report["options"].items())
    result = [
        f"Device report of torch_ocl_compile, format {report['format']}, made {report['made']}",
        "Attach this file as it is. It names no user and no machine, and no paths but their last parts.",
        "",
        f"torch_ocl_compile {versions['torch_ocl_compile']} (build {versions['build'][:12]}), torch {versions['torch']}, "
        f"Python {versions['python']}, {versions['system']}, {versions['libc']}",
        f"options: {options or 'none is set'}",
        *(f"problem: {problem}" for problem in report["problems"]),
    ]
    if not report["devices"]:
        result.append("NO DEVICE WAS FOUND")
    for found in report["devices"]:
        result += ["", *_device_lines(found)]
    return result


def _device_lines(found: Mapping[str, Any]) -> list[str]:
    it, opencl, peaks = found.get("properties"), found.get("opencl", {}), found.get("peaks")
    result = [f"==== {found['device']}: {it['name'] if it else 'unknown'} ===="]
    if it:
        result += [
            f"platform {it['platform_name']}, {opencl.get('device_version')}, driver {it['driver']}",
            f"{it['multi_processor_count']} compute units at {opencl.get('device_max_clock_frequency')} MHz, "
            f"{it['total_memory'] / 2**30:.1f} GiB, largest buffer {it['max_alloc_bytes'] / 2**30:.1f} GiB, "
            f"local memory {it['local_bytes'] // 1024} KiB, groups of up to {it['max_group_size']}",
            f"tensor cores: warp {_yes(it['has_mma'])}, warpgroup {_yes(it['has_wgmma'])}; fp64 {_yes(it['has_fp64'])}; "
            f"unified memory {_yes(it['unified_memory'])}",
        ]
    if peaks:
        result.append(
            f"measured peaks: {_number(peaks['gbytes_per_second'])} GB/s, {_number(peaks['gflops'])} GFLOP/s in fp32"
        )
    result.append(
        f"{'healthy' if found['healthy'] else 'NOT HEALTHY'}, examined in {found['seconds']:.0f} s"
        + (
            f"; no time was left for {len(found['not_run'])} steps: {', '.join(found['not_run'])}"
            if found["not_run"]
            else ""
        )
    )
    result += [f"  fault in {fault}" for fault in found["faults"]]
    result += _table(["check", "state", "error", "ms", "first s"],
                     [(r["name"], _state(r, "healthy"), _error(r), _number(r.get("step_ms")), _number(r.get("first_seconds")))
                      for r in found["checks"]])  # fmt: skip
    timings = [*found["timings"], *([{**found["network"], "name": "resnet18"}] if found["network"] else [])]
    result += _table(["operation", "state", "error", "ms", "on the device", "GB/s", "GFLOP/s", "first s"],
                     [(r["name"], _state(r, "right"), _error(r), _number(r.get("ms")), _number(r.get("device_ms")),
                       _number(r.get("gbytes_per_second")), _number(r.get("gflops")), _number(r.get("first_seconds")))
                      for r in timings])  # fmt: skip
    result += _table(["slowest kernels of resnet18", "calls", "ms", "share", "GB/s", "of peak", "GFLOP/s", "of peak"],
                     [(r["title"][:90], str(r["calls"]), _number(r["ms"]), _percent(r["share"]),
                       _number(r["gbytes_per_second"]), _percent(r["bandwidth_share"]), _number(r["gflops"]),
                       _percent(r["flops_share"]))
                      for r in (found["network"] or {}).get("kernels", [])])  # fmt: skip
    result += _table(["check of a hand-written kernel", "state", "s"],
                     [(r["name"], _state(r, "right"), _number(r["seconds"])) for r in found["kernels"]])  # fmt: skip
    return result


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _state(row: Mapping[str, Any], key: str) -> str:
    return "FAILED" if row.get("problem") else "right" if row.get(key) else "WRONG"


def _error(row: Mapping[str, Any]) -> str:
    error = row.get("error")
    return "-" if error is None else f"{error:.0e}"


def _number(value: float | None) -> str:
    return "-" if not value else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table whose first column is aligned to the left. Nothing without rows."""
    if not rows:
        return []
    table = [head, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    return [""] + [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    ]
