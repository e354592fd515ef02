# tests/fuzz/generate.py: generates a program: settings, arguments, statements, results. Hypothesis makes the choices.
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.fuzz import (  # noqa: F401
    changing_statements,
    flex_statements,
    higher_statements,
    jagged_statements,
    number_statements,
    statements,
)
from tests.fuzz.maker import Draw
from tests.fuzz.program import COMPILE, EAGER, WRITES, Program, Settings, assigned, cleaned, names_in
from tests.fuzz.reference import Native, execute
from tests.fuzz.row_statements import RowMaker

# The values of n in the calls of a program, one tuple per program.
CALLS = ((4, 7, 1), (3, 6), (5, 2, 0), (8, 1), (2, 16), (6, 3, 4), (1, 4))


def settings_of(draw: Draw) -> Settings:
    """Draws how a program, and those compiled together with it, is run."""
    mode = EAGER if draw.chance(6) else COMPILE
    often = "weights" in statements.MORE
    gradient, changing = draw.chance(5 if often else 30), draw.chance(95 if often else 30)
    calls = draw.pick(CALLS) if changing else draw.pick(((4, 4), (4,)))
    dynamic = draw.pick(("mark", "", "all", "mark")) if changing and mode == COMPILE else ""
    autocast = draw.pick(("bfloat16", "float16")) if draw.chance(6) else ""
    verify, gradient = draw.chance(20), gradient and not autocast
    weights = len(calls) > 1 and mode == COMPILE and not gradient and draw.chance(95 if often else 40)
    return Settings(mode, calls, dynamic, gradient, autocast, verify, weights)


def draw_program(draw: Callable[[Any], Any], settings: Settings, *, alone: bool = True) -> Program:
    """Draws a program.

    `alone`: it is not compiled together with others, and may contain a line that PyTorch refuses. A program whose
    backward PyTorch refuses, for example because a tensor that it needs was overwritten, is drawn again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            made = _draw_program(RowMaker(draw, settings), alone)
            natives = [Native(made, n, k) for k, n in enumerate(settings.calls)]
            if all((native.error is not None) == made.raises and not native.undefined for native in natives):
                return made
    return Program(settings, (("a0", "make(device, (3,), torch.float32, 0)"),), ("v0 = a0 + 1",), ("v0",))


WEIGHTS = [make for weight, make in statements.KINDS for _ in range(weight)]


def _draw_program(g: RowMaker, alone: bool) -> Program:
    for _ in range(g.pick((2, 1, 3, 2, 4))):
        g.argument()
    wanted, tries = g.pick((4, 3, 5, 6, 7, 4, 5, 8, 6, 10, 12)), 0
    while len(g.lines) < wanted and tries < 3 * wanted:
        tries += 1
        choice = g.integer(0, 99)
        if choice >= 60:
            g.row()
            continue
        lines = g.method() if choice >= 52 else g.pick(WEIGHTS)(g)
        if lines:
            g.add(lines)
    if alone and g.chance(12):
        lines = refuse(g)
        if lines:
            return finish(g, g.lines + lines, raises=True)
    return finish(g, g.lines)


def refuse(g: RowMaker) -> list[str]:
    """Returns a line that PyTorch refuses in every call, also for tensors without data.

    A device may compute what PyTorch refuses for its values only.
    """
    lines = statements.refused(g)
    for k in range(len(g.names)):
        for meta in (True, False):
            g.rebuild()
            names = dict(g.names[k])
            if meta:
                tensors = {n: x for n, x in names.items() if isinstance(x, torch.Tensor) and not x.is_nested}
                names.update({n: _on_meta(x) for n, x in tensors.items()})
            try:
                execute(lines[0], names)
            except Exception:
                continue
            g.rebuild()
            return []
    return lines


def _on_meta(x: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    return made.requires_grad_() if x.requires_grad else made


def finish(g: RowMaker, lines: list[str], raises: bool = False) -> Program:
    """Chooses the results: the last variable and some others; views and arguments may be among them."""
    names = [n for n in g.names[0] if n[0] in "av" and n[1:].isdigit() and _is_result(g.names[0][n])]
    read = {n for line in lines for n in names_in(line) if n not in assigned(line)}
    made = [n for n in names if n[0] == "v"]
    outputs = made[-1:] if not g.chance(4) else []
    for name in reversed(names):
        likely = 12 if name not in made else 20 if name in read else 70
        if len(outputs) < 7 and g.chance(likely):
            outputs.append(name)
    if not raises and g.chance(80):
        lines = live(g, lines, outputs)
    inputs = [*g.inputs, ("device", "device")]
    return cleaned(Program(g.settings, tuple(inputs), tuple(lines), tuple(outputs), raises))


def _is_result(x: Any) -> bool:
    return isinstance(x, (int, float)) or (isinstance(x, torch.Tensor) and not x.is_nested)


def live(g: RowMaker, lines: list[str], outputs: list[str]) -> list[str]:
    """Returns the lines that results or writes depend on: tracing other lines takes time and shows little."""
    wanted, kept = set(outputs), []
    for line in reversed(lines):
        gives = assigned(line)
        if not gives or wanted & set(gives) or WRITES.search(line):
            kept.append(line)
            wanted.update(names_in(line))
    return kept[::-1]
