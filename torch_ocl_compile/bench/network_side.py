# torch_ocl_compile/bench/network_side.py: runs one network on one side, in a process of its own.
"""Reads commands from standard input, one word per line, and answers each with a line of JSON. process.py starts this
program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

if __package__:
    from torch_ocl_compile.bench import layer_times, memory_peak
    from torch_ocl_compile.bench.side import Settings, Side
else:
    # This file is started by its path, because an import of torch_ocl_compile would register the device on every side.
    import layer_times  # type: ignore[no-redef]
    import memory_peak  # type: ignore[no-redef]
    from side import Settings, Side  # type: ignore[no-redef]


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
