# scripts/rooms.py: prints the lines of each room, and fails where a room has more than scripts/rooms.txt allows.
"""python scripts/rooms.py [--write]      (the end of `make lint`)

A room is a folder or file of the table; the rest of a folder that has rooms is a room, too. --write lowers the numbers of rooms
that have become smaller."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "scripts" / "rooms.txt"
OTHERS = ("tests", "benchmarks")
PRODUCT = ("csrc", "kernels", "torch_ocl_compile", "ocl_run", "cmake", "scripts")
SUFFIXES = {".c", ".cl", ".cmake", ".cpp", ".def", ".h", ".in", ".py", ".sh", ".html", ".css", ".js", ".txt"}
SLACK = 50  # A number of the table is a multiple of it, so that not every commit changes the table.


def lines_of_rooms(rooms: list[str], root: Path = ROOT) -> dict[str, int]:
    """Counts each file for the longest room that it is in."""
    lines = dict.fromkeys(rooms, 0)
    for folder in (*PRODUCT, *OTHERS):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            room = max((r for r in rooms if name == r or name.startswith(r + "/")), key=len)
            lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def too_large(allowed: dict[str, int], lines: dict[str, int]) -> list[str]:
    return [
        f"{room} has {lines[room]:,} lines, {lines[room] - most} more than scripts/rooms.txt allows. Remove lines, or raise its number "
        f"and give the reason in the commit's message."
        for room, most in allowed.items() if lines[room] > most
    ]  # fmt: skip


def main(arguments: list[str]) -> int:
    text = TABLE.read_text(encoding="utf-8").splitlines()
    head = [line for line in text if line.startswith("#")]
    allowed = {room: int(most) for room, most in (line.split() for line in text if not line.startswith("#"))}
    lines = lines_of_rooms(list(allowed))
    for room, most in allowed.items():
        print(f"{room:40} {lines[room]:7,} of {most:7,}")
    others = {name: sum(n for room, n in lines.items() if room.split("/")[0] == name) for name in OTHERS}
    counted = {"product": sum(lines.values()) - sum(others.values())} | others
    print(", ".join(f"{name} {n:,} lines" for name, n in counted.items()))
    if arguments == ["--write"]:
        fewer = {room: min(most, -(-lines[room] // SLACK) * SLACK) for room, most in allowed.items()}
        TABLE.write_text(
            "\n".join([*head, *(f"{room:40} {most}" for room, most in fewer.items())]) + "\n", encoding="utf-8"
        )
    faults = too_large(allowed, lines)
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
