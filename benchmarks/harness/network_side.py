# benchmarks/harness/network_side.py: runs one network on one side, in a process of its own.
"""Reads commands from standard input, one word per line, and answers each with a line of JSON. process.py starts this
program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Behind what is installed: another build of torch_ocl_compile may be the side.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.harness import layer_times, memory_peak
from benchmarks.harness.side import Settings, Side


def main() -> None:
    # Output of the libraries must not mix with the answers.
    sys.stdout, answers = sys.stderr, sys.stdout
    side = Side(Settings(**json.loads(sys.argv[1])))
    commands: dict[str, Callable[[], Any]] = {
        "first": side.timed,
        "choose": side.choose,
        "round": side.round,
        "facts": side.facts,
        "builds": side.builds,
        "layers": lambda: layer_times.measure(side),
        "memory": lambda: memory_peak.measure(side),
    }
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), file=answers, flush=True)


if __name__ == "__main__":
    main()
