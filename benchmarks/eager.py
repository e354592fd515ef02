# benchmarks/eager.py: the time of ops called eagerly, as a training loop calls them around a compiled model, beside torch's.
"""python -m benchmarks.eager --elements 1048576 --save eager.json

Sides: eager (torch on CUDA, or on the CPU) and ocl. Each has a process (eager_side.py), and they take turns.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import eager_side, turns
from benchmarks.harness.process import SideProcess

Sides = dict[str, SideProcess]


def measure(name: str, way: str, dtype: str, elements: int, rounds: int, sides: Sides) -> list[turns.Row]:
    def ask(side: SideProcess, *command: str) -> Any:
        return side.ask(json.dumps(command))

    for side in sides.values():
        ask(side, "prepare", name, way, dtype)
    times = turns.in_turns({title: functools.partial(ask, side, "time") for title, side in sides.items()}, rounds)
    case = {"function": name, "way": way, "dtype": dtype, "elements": elements, "error": 0.0}
    return [
        case | {"side": title, "ms": min(times[title]) * 1e3, "settings": ask(side, "settings")}
        for title, side in sides.items()
    ]


def main() -> None:
    parser = turns.parser_of_sides(__doc__, ["eager", "ocl"], seconds=0.05)
    parser.add_argument("--elements", type=int, default=2**26)
    parser.add_argument("--dtypes", type=turns.words, default=["float32", "bfloat16"])
    parser.add_argument("--match", default="", help="a regular expression; only the ops whose names contain it")
    given = parser.parse_args()
    ways: list[tuple[str, list[str], Iterable[str]]] = [
        ("forward", given.dtypes, eager_side.FORWARD),
        ("trained", given.dtypes, eager_side.TRAINED),
        ("optimizer", ["float32"], eager_side.OPTIMIZERS),
    ]
    program = str(Path(eager_side.__file__).resolve())
    with contextlib.ExitStack() as stack:
        options = vars(given) | {"save": None}
        sides = {side: stack.enter_context(SideProcess(program, options | {"side": side})) for side in given.sides}
        cases = {
            f"{name} {way} {dtype}": functools.partial(measure, name, way, dtype, given.elements, given.rounds, sides)
            for way, dtypes, names in ways
            for name in names
            for dtype in dtypes
            if re.search(given.match, name)
        }
        turns.run("eager", cases, given)


if __name__ == "__main__":
    main()
