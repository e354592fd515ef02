# tests/libraries/__main__.py: runs the programs of this folder, and writes their table into docs/libraries.md.
"""python -m tests.libraries run [PART ...] [--device ocl:0] [--jobs 2]   runs programs whose names contain a PART, into results.json
python -m tests.libraries table                                        writes the table
python -m tests.libraries one NAME [--device ocl:0]                    runs one program here, and prints its row as JSON

`make clients` installs what the programs import, then does both (docs/libraries.md)."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests import fork_server

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RESULTS = FOLDER / "results.json"
LOGS = ROOT / "build" / "libraries_logs"
PAGE = ROOT / "docs" / "libraries.md"
BEGIN, END = "<!-- python -m tests.libraries table -->\n", "<!-- end -->\n"
LIMIT_S = 600
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "YOLO_OFFLINE": "1",
           "YOLO_CONFIG_DIR": str(LOGS), "YOLO_AUTOINSTALL": "false"}  # fmt: skip


def programs() -> dict[str, Any]:
    """The programs of all files here, by name."""
    for path in sorted(FOLDER.glob("use_*.py")):
        importlib.import_module(f"tests.libraries.{path.stem}")
    from tests.libraries.harness import PROGRAMS

    return PROGRAMS


def one(name: str, device: str) -> dict[str, Any]:
    import torch_ocl_compile  # noqa: F401
    from benchmarks.harness.networks import import_torchvision
    from tests.libraries.harness import row_of

    with contextlib.suppress(Exception, SystemExit):  # Beside a torch for the CPU, torchvision needs a hand.
        import_torchvision()
    return row_of(programs()[name], device)


def row_in_process(name: str, device: str) -> dict[str, Any]:
    """The row of a program that runs in a process of its own, a fork of one that has imported torch. What it prints goes to a file."""
    log = LOGS / (name.replace("/", "_") + ".txt")
    command = ["-m", "tests.libraries", "one", name, "--device", device]
    begun = time.time()
    try:
        done = fork_server.run(command, os.environ | OFFLINE, ROOT, LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"right": False, "why": f"did not end within {LIMIT_S} s"}
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    row: dict[str, Any] = json.loads(lines[-1][4:]) if lines else {"right": False, "why": last_line(done.stderr)}
    return row | {"process_s": round(time.time() - begun)}


def run(parts: list[str], device: str, jobs: int) -> bool:
    """Runs programs and writes their rows. Returns whether all are right."""
    import torch

    from benchmarks.harness.origin import commit
    from benchmarks.harness.results import text_of

    chosen = [name for name in programs() if not parts or any(part in name for part in parts)]
    kept = rows_of_file() if RESULTS.exists() and parts else []
    rows = {row["name"]: row for row in kept if row["name"] in programs()}
    given = {"when": time.strftime("%Y-%m-%d"), "commit": commit(), "torch": torch.__version__}
    LOGS.mkdir(parents=True, exist_ok=True)
    fork_server.FURTHER_IMPORTS.append("tests.libraries.imported")
    with ThreadPoolExecutor(jobs) as pool:
        for name, row in zip(chosen, pool.map(lambda name: row_in_process(name, device), chosen), strict=True):
            rows[name] = {"name": name, **row, **given}
            print(name, summary(row), flush=True)
            RESULTS.write_text(text_of({"rows": [rows[key] for key in sorted(rows)]}), encoding="utf-8")
    return all(rows[name]["right"] for name in chosen)


def summary(row: dict[str, Any]) -> str:
    sides = [f"{side} {values_of(row[side])}" for side in ("eager", "compiled") if side in row]
    ops = ops_of(row)
    words = [
        row.get("why", ""),
        *sides,
        f"{row.get('process_s')} s",
        *([f"on the CPU: {', '.join(ops)}"] if ops else []),
    ]
    return "; ".join(word for word in words if word)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"


def values_of(side: dict[str, Any]) -> str:
    from tests.libraries.harness import TOLERANCE

    if side["right"] and side["error"] >= TOLERANCE:
        return f"as near to fp64 as the CPU, {side['error']:.0e}"
    if side["right"]:
        return f"right, {side['error']:.0e}"
    return "wrong: " + (side.get("why") or f"{side['error']:.0e}")


def ops_of(row: dict[str, Any]) -> list[str]:
    return sorted({op for side in ("eager", "compiled") for op in row.get(side, {}).get("fallbacks", [])})


def cells_of(row: dict[str, Any]) -> list[str]:
    made = row.get("compiled", {})
    values = [values_of(row[side]) if side in row else row.get("why", "-") for side in ("eager", "compiled")]
    if row.get("aot_eager", "right") != "right":
        values[1] += f"; `aot_eager` on the CPU: {row['aot_eager']}"
    ops = [f"`{op}`" for op in ops_of(row)] + [f"in graphs: `{op}`" for op in made.get("in_graphs", [])]
    counts = [str(made.get(key, "-")) for key in ("breaks", "graphs", "recompiled", "seconds")]
    title = f"{row['name'].partition('/')[0]} {row.get('version', '')}: {row.get('what', row['name'])}"
    return [
        title,
        *values,
        ", ".join(ops) or "none",
        *counts,
        f"`{row['wrote']}`" if row.get("wrote") else "",
        row["when"],
    ]


def block(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the page."""
    head = "library, version: what ran | op by op | compiled | ops on the CPU | graph breaks | graphs | recompiled | s"
    lines = [f"| {head} | also written | date |", "|---|---|---|---|--:|--:|--:|--:|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in cells_of(row)) + " |" for row in rows]
    versions = ", ".join(sorted({row["torch"] for row in rows}))
    right = sum(row["right"] for row in rows)
    return "\n".join([*lines, "", f"{right} of {len(rows)} programs are right, with torch {versions}."]) + "\n"


def on_page(text: str) -> str:
    return text.partition(BEGIN)[2].partition(END)[0]


def rows_of_file() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.libraries", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "table", "one"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_intermixed_args()
    if given.command == "one":
        print("ROW " + json.dumps(one(given.names[0], given.device)), flush=True)
    elif given.command == "table":
        text = PAGE.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        assert begin and end, f"{PAGE.name} needs the lines {BEGIN!r} and {END!r}"
        PAGE.write_text(before + begin + block(rows_of_file()) + end + after, encoding="utf-8")
    else:
        return 0 if run(given.names, given.device, given.jobs) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
