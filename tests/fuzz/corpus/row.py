# tests/fuzz/corpus/row.py: what a named program of the corpus is.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.program import Program, Settings


@dataclass(frozen=True)
class Named:
    """A program that was wrong once. `why`: the fault, in a line."""

    name: str
    why: str
    program: Program


def named(
    name: str, why: str, arguments: Sequence[str], lines: Sequence[str], results: Sequence[str] = (), **settings: Any
) -> Named:
    """Arguments are called a0, a1, ...; `device` is one where a line mentions it."""
    inputs = [(f"a{i}", text) for i, text in enumerate(arguments)]
    if any("device" in line for line in lines):
        inputs.append(("device", "device"))
    return Named(name, why, Program(Settings(**settings), tuple(inputs), tuple(lines), tuple(results)))


def f32(*shape: Any, seed: int = 1) -> str:
    """The text of an argument of this shape; "n" and the like are sizes that follow n."""
    return f"make(device, ({''.join(f'{s}, ' for s in shape)}), torch.float32, {seed} + 9 * k)"
