# tests/fuzz/program.py: a random program as data: inputs, statements, outputs, and how it is run.
"""Statements and inputs are lines of Python over names: a0, a1, ... are arguments, v0, v1, ... are variables, and t0,
t1, ... are variables whose values PyTorch does not promise (such as the vectors of an SVD). `n` is a size that
changes from call to call, `k` is the number of the call, and `device` is the device of all tensors."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

NAME = re.compile(r"\b([avt])(\d+)\b")
COMPILE, EAGER = "compile", "eager"
# Lines that may write into a tensor, and words of arguments whose value or shape differs from call to call.
WRITES = re.compile(r"_\(|out=|inplace=|training=True|max_norm=|^\w+(\[.*\]|\.data) = |^\w+ [-+*/|&^%]+= ")
VARYING = re.compile(r"\b[nk]\b")
# The kind of a failure that torch without this project shows as well.
TORCH = "as torch without us"
# Parts that not every program has, and words that show them.
PARTS = {
    "complex": ("complex", "polar(", "fft"),
    "float8": ("float8",),
    "jagged": ("nested",),
    "flex": ("flex_attention(",),
    "higher": ("torch.func", "vmap(", "checkpoint(", "cond(", "while_loop(", "scan("),
}


@dataclass(frozen=True)
class Settings:
    """The settings that programs must share to be compiled together."""

    mode: str = COMPILE
    # The value of n in each call.
    calls: tuple[int, ...] = (4,)
    # "mark": sizes that change are marked as dynamic; "all": dynamic=True; "": torch finds out by itself.
    dynamic: str = ""
    gradient: bool = False
    # "bfloat16", "float16" or "" for none.
    autocast: str = ""
    verify: bool = False
    # What is equal in all calls is a module's weights, from which a compiler may compute something once.
    weights: bool = False


@dataclass(frozen=True)
class Program:
    settings: Settings
    # (name, text of the expression)
    inputs: tuple[tuple[str, str], ...]
    statements: tuple[str, ...]
    outputs: tuple[str, ...]
    # True if PyTorch refuses the last statement.
    raises: bool = False

    def source(self) -> str:
        names = ", ".join(name for name, _ in self.inputs)
        lines = [f"def f({names}):", *(f"    {s}" for s in self.statements)]
        return "\n".join([*lines, f"    return ({''.join(f'{o}, ' for o in self.outputs).strip()})"])

    def parts(self) -> list[str]:
        """Returns which of the less usual parts the program has."""
        text = "\n".join([*(text for _, text in self.inputs), *self.statements])
        found = [part for part, words in PARTS.items() if any(word in text for word in words)]
        return [*found, *(["weights"] if self.weights() else [])]

    def weights(self) -> list[str]:
        """Returns the arguments that are the same tensors in all calls: nothing writes to them, or is a view of them."""
        if not self.settings.weights or any(WRITES.search(line) for line in self.statements):
            return []
        viewed = {name for _, text in self.inputs for name in names_in(text)}
        fixed = [name for name, text in self.inputs if not names_in(text) and not VARYING.search(text)]
        return [name for name in fixed if name != "device" and name not in viewed]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Program:
        settings = Settings(**{**data["settings"], "calls": tuple(data["settings"]["calls"])})
        return Program(
            settings,
            tuple((name, text) for name, text in data["inputs"]),
            tuple(data["statements"]),
            tuple(data["outputs"]),
            bool(data["raises"]),
        )

    def with_settings(self, **changes: Any) -> Program:
        return replace(self, settings=replace(self.settings, **changes))


def names_in(text: str) -> list[str]:
    """Returns the arguments and variables that a line mentions."""
    return ["".join(found) for found in NAME.findall(text)]


def assigned(statement: str) -> list[str]:
    """Returns the names that a line assigns."""
    left, equals, _ = statement.partition(" = ")
    return names_in(left) if equals and re.fullmatch(r"[avt\d, ]+", left) else []


def cleaned(program: Program) -> Program:
    """Returns the program without arguments that nothing mentions."""
    mentioned = {n for line in program.statements for n in names_in(line)} | set(program.outputs)
    inputs: list[tuple[str, str]] = []
    for name, text in reversed(program.inputs):
        used = any("device" in line for line in program.statements) if name == "device" else name in mentioned
        if used:
            inputs.insert(0, (name, text))
            mentioned.update(names_in(text))
    return replace(program, inputs=tuple(inputs))


def renumbered(program: Program, first_input: int, first_variable: int) -> Program:
    """Returns the program with other numbers in its names."""

    def line(text: str) -> str:
        return NAME.sub(lambda m: m[1] + str(int(m[2]) + (first_input if m[1] == "a" else first_variable)), text)

    return replace(
        program,
        inputs=tuple((line(name), line(text)) for name, text in program.inputs),
        statements=tuple(line(s) for s in program.statements),
        outputs=tuple(line(o) for o in program.outputs),
    )


def numbers_used(program: Program, letter: str) -> int:
    """Returns one more than the largest number of the names that begin with `letter`."""
    lines = [*(name for name, _ in program.inputs), *program.statements]
    return max(
        (int(number) + 1 for text in lines for kind, number in NAME.findall(text) if (kind == "a") == (letter == "a")),
        default=0,
    )


def merge(programs: list[Program]) -> Program:
    """Returns one program that does what all of them do, one after the other."""
    whole = programs[0]
    for program in programs[1:]:
        assert program.settings == whole.settings and not program.raises and not whole.raises
        other = renumbered(program, numbers_used(whole, "a"), numbers_used(whole, "v"))
        present = {name for name, _ in whole.inputs}
        whole = replace(
            whole,
            inputs=whole.inputs + tuple(i for i in other.inputs if i[0] not in present),
            statements=whole.statements + other.statements,
            outputs=whole.outputs + other.outputs,
        )
    return whole
