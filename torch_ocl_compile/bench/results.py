# torch_ocl_compile/bench/results.py: result files of `bench models`: reads, writes and merges them, and computes means.
"""A result file has the rows of its networks, and what is needed to trust and repeat them. If several files have the
same case, the last file counts."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from torch_ocl_compile.errors import ToolError

FORMAT = 1
NAN = float("nan")


def case_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["protocol"], row["precision"], row["model"], row["mode"], row["batch"]


def add_best(rows: list[dict[str, Any]]) -> None:
    """Sets `against_best` of each row: the time of the fastest other side divided by the time of this side."""
    for row in rows:
        others = [r["ms"] for r in rows if case_of(r) == case_of(row) and r["side"] != row["side"]]
        row["against_best"] = min(others) / row["ms"] if others else NAN


def geometric_means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each protocol, precision, mode and side, the geometric means over networks of both ratios."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["protocol"], row["precision"], row["mode"], row["side"]), []).append(row)
    means = []
    for (protocol, precision, mode, side), members in groups.items():
        best = [r["against_best"] for r in members]
        means.append(
            {
                "protocol": protocol,
                "precision": precision,
                "mode": mode,
                "side": side,
                "networks": len(members),
                "ratio": statistics.geometric_mean(r["ratio"] for r in members),
                "against_best": NAN if any(b != b for b in best) else statistics.geometric_mean(best),
            }
        )
    return means


def merged(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of all files. If several files have the same case, the last one counts, with all its sides: its sides ran in
    turn, so their times belong together."""
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for content in files:
        own: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in content["networks"]:
            own.setdefault(case_of(row), []).append(row)
        cases |= own
    return [row for rows in cases.values() for row in rows]


def read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ToolError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = repr(content.get("format")) if isinstance(content, dict) else "none"
        raise ToolError(f"{path} is no result of `bench models --save` (format {found}, expected {FORMAT})")
    content["networks"] = [{k: NAN if v is None else v for k, v in row.items()} for row in content["networks"]]
    return content


def plain(value: Any) -> Any:
    """Replaces NaN by None, because JSON has no NaN."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def write(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(plain(content), indent=1, allow_nan=False), encoding="utf-8")


def result(
    networks: list[dict[str, Any]], operations: list[dict[str, Any]], settings: dict[str, Any]
) -> dict[str, Any]:
    """Returns the content of a result file, for write()."""
    return {"format": FORMAT, "when": time.strftime("%Y-%m-%d %H:%M"), "host": platform.platform(),
            "torch": settings.get("torch"), "commit": commit(), "settings": settings, "networks": networks,
            "operations": operations}  # fmt: skip


def commit() -> str | None:
    """The commit that is measured, with "-dirty" for a changed working tree. None outside of a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed.
        return None
    return done.stdout.strip() or None
