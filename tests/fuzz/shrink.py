# tests/fuzz/shrink.py: makes a failing program smaller while it still fails in the same way.
"""Programs are lists, so they shrink by leaving things out: results, lines, calls, settings, arguments, layouts, sizes.

PyTorch decides whether a candidate is a valid program: the worker answers "skipped" if it is not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.program import EAGER, Program, assigned, cleaned, names_in

Fails = Callable[[Program], bool]
SHAPE = re.compile(
    r"(make|special|limits|distinct)\(device, \(([^()]*(?:\([^()]*\)[^()]*)*)\), (torch\.\w+), ([^()]*)\)"
)


def shrink(program: Program, fails: Fails, seconds: float = 90.0) -> Program:
    """Returns the smallest program found within `seconds` for which `fails` is true. `program` itself is assumed to
    fail."""
    until = time.monotonic() + seconds
    tried = {program}
    found = True
    while found:
        found = False
        for smaller in candidates(program):
            if time.monotonic() > until:
                return program
            if smaller in tried or (not smaller.outputs and not smaller.statements):
                continue
            tried.add(smaller)
            if fails(smaller):
                program, found = smaller, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Yields smaller programs, the largest steps first."""
    yield from _fewer_lines(program)
    yield from _fewer_outputs(program)
    yield from _simpler_settings(program)
    yield from _shorter_ways(program)
    yield from _simpler_inputs(program)
    yield from _smaller_sizes(program)


def without(program: Program, dropped: set[int]) -> Program:
    """Returns the program without some lines, the lines that depend on them, and arguments that nothing mentions."""
    lines, missing = [], set()
    for i, line in enumerate(program.statements):
        if i in dropped or missing & set(names_in(line)):
            missing |= set(assigned(line))
        else:
            missing -= set(assigned(line))
            lines.append(line)
    outputs = tuple(o for o in program.outputs if o not in missing)
    return cleaned(replace(program, statements=tuple(lines), outputs=outputs))


def _fewer_lines(program: Program) -> Iterator[Program]:
    count = len(program.statements)
    size = count
    while size >= 1:
        for start in range(0, count, size):
            chunk = set(range(start, min(start + size, count)))
            if program.raises and count - 1 in chunk:
                continue
            yield without(program, chunk)
        size //= 2


def _fewer_outputs(program: Program) -> Iterator[Program]:
    for i in range(len(program.outputs)):
        if len(program.outputs) > 2:
            yield cleaned(replace(program, outputs=(program.outputs[i],)))
    for i in range(len(program.outputs)):
        yield cleaned(replace(program, outputs=program.outputs[:i] + program.outputs[i + 1 :]))


def _simpler_settings(program: Program) -> Iterator[Program]:
    settings = program.settings
    if len(settings.calls) > 1:
        for i in range(len(settings.calls)):
            yield program.with_settings(calls=(settings.calls[i],))
        for i in range(len(settings.calls)):
            yield program.with_settings(calls=settings.calls[:i] + settings.calls[i + 1 :])
    if settings.gradient:
        plain = tuple((name, text.replace(".requires_grad_()", "")) for name, text in program.inputs)
        yield replace(program.with_settings(gradient=False), inputs=plain)
    if settings.verify:
        yield program.with_settings(verify=False)
    if settings.dynamic:
        yield program.with_settings(dynamic="")
    if settings.autocast:
        yield program.with_settings(autocast="")
    if settings.mode == EAGER and settings.dynamic:
        yield program.with_settings(dynamic="")
    if len(set(settings.calls)) == 1:
        number = str(settings.calls[0])
        texts = tuple((name, re.sub(r"\bn\b", number, text)) for name, text in program.inputs)
        yield replace(program, inputs=texts)
    if len(settings.calls) == 1:
        yield replace(program, inputs=tuple((name, text.replace(" + 9 * k", "")) for name, text in program.inputs))


def _shorter_ways(program: Program) -> Iterator[Program]:
    """Yields programs in which the result of a line is replaced by one of its operands."""
    for i, line in enumerate(program.statements):
        gives = assigned(line)
        if len(gives) != 1:
            continue
        for operand in dict.fromkeys(n for n in names_in(line) if n != gives[0] and n[0] != "t"):
            pattern = re.compile(rf"\b{gives[0]}\b")
            rest = tuple(pattern.sub(operand, s) for s in program.statements[i + 1 :])
            outputs = tuple(pattern.sub(operand, o) for o in program.outputs)
            if any(operand in assigned(s) for s in rest):
                continue
            yield cleaned(replace(program, statements=program.statements[:i] + rest, outputs=outputs))


def _simpler_inputs(program: Program) -> Iterator[Program]:
    for i, (name, text) in enumerate(program.inputs):
        made = SHAPE.search(text)
        if not made:
            continue

        def changed(new: str, i: int = i, name: str = name) -> Program:
            return replace(program, inputs=(*program.inputs[:i], (name, new), *program.inputs[i + 1 :]))

        if text[made.end() :] not in ("", ".requires_grad_()"):
            yield changed(_contiguous(program, i))
        if made[1] in ("special", "limits"):
            yield changed(text.replace(f"{made[1]}(", "make("))
        if ".requires_grad_()" in text:
            yield changed(text.replace(".requires_grad_()", ""))
        if made[3] not in ("torch.float32", "torch.int64"):
            yield changed(text.replace(made[3], "torch.float32"))


def _contiguous(program: Program, i: int) -> str:
    """Returns argument i with its shape, as a contiguous tensor of new values."""
    from tests.fuzz.execute import arguments

    name, text = program.inputs[i]
    calls = program.settings.calls
    found = [tuple(arguments(program, "cpu", n, k)[name].shape) for k, n in enumerate(calls)]
    sizes = []
    for column in zip(*found, strict=True):
        same = len(set(column)) == 1
        shift = {size - n for size, n in zip(column, calls, strict=True)}
        sizes.append(
            str(column[0]) if same else "n" if shift == {0} else f"n + {shift.pop()}" if len(shift) == 1 else "2 * n"
        )
    made = SHAPE.search(text)
    assert made
    grad = ".requires_grad_()" if ".requires_grad_()" in text else ""
    return f"{made[1]}(device, ({''.join(f'{s}, ' for s in sizes).strip()}), {made[3]}, {made[4]}){grad}"


def _smaller_sizes(program: Program) -> Iterator[Program]:
    """Yields programs with one size made smaller in all shapes and lines, then in single shapes."""
    shapes = [made[2] for _, text in program.inputs for made in SHAPE.finditer(text)]
    numbers = sorted({int(d) for s in shapes for d in re.findall(r"\d+", s)}, reverse=True)
    for number in numbers:
        for less in (1, 2, 3, number // 2):
            if less >= number:
                continue
            pattern = re.compile(rf"\b{number}\b")

            def smaller(text: str, pattern: Any = pattern, less: int = less) -> str:
                return SHAPE.sub(lambda m: m[0].replace(m[2], pattern.sub(str(less), m[2])), text)

            inputs = tuple((name, smaller(text)) for name, text in program.inputs)
            yield replace(program, inputs=inputs)
            yield replace(
                program, inputs=inputs, statements=tuple(pattern.sub(str(less), s) for s in program.statements)
            )
            for i, (name, text) in enumerate(program.inputs):
                yield replace(program, inputs=(*program.inputs[:i], (name, smaller(text)), *program.inputs[i + 1 :]))
