# torch_ocl_compile/option.py: what an option is: its type, its allowed values, and how a text is read.
"""`config.py` has the options."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch_ocl_compile.errors import ConfigError

Value = bool | int | float | str

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


@dataclass(frozen=True)
class Option:
    """One option.

    - `scope`: "start" (fixed at the start of the process), "process" (`set` changes it at any time), or "compile"
      (also a key of torch.compile's options).
    - `choices`: all allowed values. With `many`, a comma-separated list of them.
    - `least`: the smallest allowed number.
    - `allowed`: what a text may be, for the docs.
    - `fault`: a function that returns what is wrong with a value, or "".
    """

    name: str
    kind: type
    default: Value
    help: str
    scope: str = "process"
    choices: tuple[Value, ...] = ()
    many: bool = False
    least: float | None = None
    allowed: str = ""
    fault: Callable[[str], str] | None = None

    @property
    def variable(self) -> str:
        return "TORCH_OCL_" + self.name.upper()

    def parse(self, value: object, source: str) -> Value:
        """Converts `value` to this option's type. ConfigError that names `source` if it is wrong."""
        parsed = _parse(self.kind, value)
        if parsed is None:
            raise ConfigError(f"{source}: {value!r} is not {_KIND_WORDS[self.kind]}.\n  do: {self.help}")
        parts: list[Value] = [parsed]
        if self.many:
            parts = [part.strip() for part in str(parsed).split(",") if part.strip()]
            parsed = ",".join(map(str, parts))
        wrong = [part for part in parts if self.choices and part not in self.choices]
        if wrong:
            raise ConfigError(f"{source}: {wrong[0]!r} is not one of {', '.join(map(repr, self.choices))}.")
        if self.fault is not None and (reason := self.fault(str(parsed))):
            raise ConfigError(f"{source}: {reason}.")
        if self.least is not None and not float(parsed) >= self.least:
            raise ConfigError(f"{source}: {value!r} is less than {self.least:g}.\n  do: {self.help}")
        return parsed

    def values(self) -> str:
        """Returns the allowed values as a text, for the docs."""
        if self.choices:
            return ("one or more of: " if self.many else "") + ", ".join(f"`{c}`" for c in self.choices)
        if self.kind is bool:
            return "`0`, `1`"
        if self.kind is str:
            return self.allowed
        return _KIND_WORDS[self.kind] + ("" if self.least is None else f" from {self.least:g}")


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Returns the error for a name that is not one of `known`. It suggests the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    return ConfigError(f"{kind} {name!r} is unknown; {hint} {', '.join(names)}.")


_KIND_WORDS = {bool: "a switch (0 or 1)", int: "an integer", float: "a number", str: "a text"}


def _parse(kind: type, value: object) -> Value | None:
    if kind is bool:
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None
    if kind is str:
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value) if kind is float or isinstance(value, float) else int(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if kind is int:
        return int(number) if number == int(number) else None
    return number
