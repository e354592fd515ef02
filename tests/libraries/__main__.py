# tests/libraries/__main__.py: runs the programs of this folder, and writes their table into docs/libraries.md.
"""python -m tests.libraries run [NAME ...] [--device ocl:0]    runs programs, each in a process of its own, into results.json
python -m tests.libraries table                              writes the table
python -m tests.libraries one NAME [--device ocl:0]          runs one program here, and prints its row as JSON

`make libraries` installs what the programs import, then does both (docs/libraries.md)."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RESULTS = FOLDER / "results.json"
PAGE = ROOT / "docs" / "libraries.md"
BEGIN, END = "<!-- python -m tests.libraries table -->\n", "<!-- end -->\n"
LIMIT_S = 900


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__main__", "harness"))


def one(name: str, device: str) -> dict[str, Any]:
    import contextlib

    import torch_ocl_compile  # noqa: F401
    from tests.libraries.harness import row_of
    from torch_ocl_compile.bench.networks import import_torchvision

    with contextlib.suppress(Exception, SystemExit):  # Beside a torch for the CPU, torchvision needs a hand.
        import_torchvision()
    return row_of(importlib.import_module(f"tests.libraries.{name}"), device)


def run(chosen: list[str], device: str) -> bool:
    """Runs programs and writes their rows. Returns whether all are right."""
    import torch

    from torch_ocl_compile.bench.origin import commit
    from torch_ocl_compile.bench.results import text_of

    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() and chosen else []
    rows = {row["name"]: row for row in kept}
    given = {"when": time.strftime("%Y-%m-%d"), "commit": commit(), "torch": torch.__version__}
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for name in chosen or names():
        command = [sys.executable, "-m", "tests.libraries", "one", name, "--device", device]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
            row = json.loads(lines[-1][4:]) if lines else {"right": False, "why": last_line(done.stderr)}
        except subprocess.TimeoutExpired:
            row = {"right": False, "why": f"did not end within {LIMIT_S} s"}
        rows[name] = {"name": name, **row, **given}
        print(name, {key: rows[name].get(key) for key in ("right", "error", "fallbacks", "breaks", "why")}, flush=True)
        ordered = [rows[key] for key in sorted(rows)]
        RESULTS.write_text(text_of({"rows": ordered}), encoding="utf-8")
    return all(row["right"] for row in rows.values())


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"


def block(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the page."""
    lines = [
        "| library | version | what ran | values | ops on the CPU | graph breaks | date |",
        "|---|---|---|---|---|--:|---|",
    ]
    for row in rows:
        values = (
            f"right, {row['error']:.0e}" if row["right"] else "wrong: " + row.get("why", f"{row.get('error', 0):.0e}")
        )
        ops = ", ".join(f"`{op}`" for op in row.get("fallbacks", [])) or "none"
        cells = [row.get("library", row["name"]), row.get("version", "-"), row.get("what", "-"), values, ops,
                 str(row.get("breaks", "-")), row["when"]]  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    versions = ", ".join(sorted({row["torch"] for row in rows}))
    return "\n".join([*lines, "", f"With torch {versions}."]) + "\n"


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
    given = parser.parse_args()
    if given.command == "one":
        print("ROW " + json.dumps(one(given.names[0], given.device)), flush=True)
    elif given.command == "table":
        text = PAGE.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        assert begin and end, f"{PAGE.name} needs the lines {BEGIN!r} and {END!r}"
        PAGE.write_text(before + begin + block(rows_of_file()) + end + after, encoding="utf-8")
    else:
        return 0 if run(given.names, given.device) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
