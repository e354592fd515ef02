# tests/fuzz/maker.py: builds a program line by line; a line is kept if PyTorch accepts it.
"""The Maker runs each statement on the CPU as it adds it, for every size that the program will be called with.

What PyTorch refuses is dropped, so that drawing needs no rules about validity. All choices are made before anything
is compiled and do not depend on a device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from tests.fuzz.execute import Namespace, namespace
from tests.fuzz.program import Settings, assigned
from tests.fuzz.reference import execute, parts_of

# The largest number of elements of a variable that programs use.
LARGEST = 4096
FLOATS = ("torch.float32",) * 7 + ("torch.float16", "torch.bfloat16", "torch.float64")
INTEGERS = ("torch.int64", "torch.bool", "torch.int32", "torch.uint8", "torch.int16", "torch.int8")
SIZES = (4, 3, 2, 1, 5, 8, 7, 6, 16, 0, 33, 17)
_INTEGERS = [st.integers(0, most) for most in range(400)]


class Draw:
    """Choices by Hypothesis. The first of several options is the simplest one, which shrinking prefers."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        found: int = self._draw(_INTEGERS[high - low])
        return low + found

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent

    def shuffled(self, items: Iterable[int]) -> list[int]:
        left, order = list(items), []
        while left:
            order.append(left.pop(self.integer(0, len(left) - 1)))
        return order


class Maker(Draw):
    """A program that is being built. `names` holds, for every call, a namespace with the variables so far."""

    def __init__(self, draw: Callable[[Any], Any], settings: Settings) -> None:
        super().__init__(draw)
        self.settings = settings
        self.inputs: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.variables = 0
        self.names: list[Namespace] = []
        self.rebuild()

    # What exists so far

    def rebuild(self) -> None:
        """Runs everything again from the start, after a line that failed in some of the calls only."""
        self.names = [namespace("cpu", n, k) for k, n in enumerate(self.settings.calls)]
        for names in self.names:
            for name, text in self.inputs:
                names[name] = eval(text, names)
            for line in self.lines:
                execute(line, names)

    def tensors(self, condition: Callable[[torch.Tensor], bool] = lambda x: True) -> list[str]:
        """Returns the names of tensors that fulfil the condition, the latest first."""
        found = [
            name for name, x in self.names[0].items()
            if isinstance(x, torch.Tensor) and name[0] in "av" and not x.is_nested
            and x.numel() <= LARGEST and x.dim() <= 5 and condition(x)
        ]  # fmt: skip
        return found[::-1]

    def tensor(self, condition: Callable[[torch.Tensor], bool] = lambda x: True) -> str:
        """Returns one of them, with a preference for late ones."""
        found = self.tensors(condition)
        if not found:
            return self.argument()
        place = min(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))
        return str(found[place])

    def target(self) -> str:
        """Returns a tensor to write into: one whose elements do not share memory."""
        return self.tensor(lambda t: all(step or size <= 1 for size, step in zip(t.shape, t.stride(), strict=True)))

    def like(self, x: str) -> str:
        """Returns a tensor that probably fits x in a binary operation: usually one of the same shape."""
        shape = self.shape(x)
        how = self.integer(0, 99)
        if how >= 85:
            return self.tensor(lambda t: _broadcasts(tuple(t.shape), shape))
        found = self.tensors(lambda t: tuple(t.shape) == shape)
        if how < 60:
            found = [y for y in found if self.floating(y) == self.floating(x)] or found
        if found in ([], [x]) and self.chance(30) and self.fixed_shape(x):
            return self.argument(self.layout(list(shape), self.pick(INTEGERS) if how >= 60 else self.pick(FLOATS[:8])))
        return str(self.pick(found)) if found else x

    def meta(self, x: str) -> torch.Tensor:
        found: torch.Tensor = self.names[0][x]
        return found

    def shape(self, x: str) -> tuple[int, ...]:
        return tuple(self.meta(x).shape)

    def rank(self, x: str) -> int:
        return self.meta(x).dim()

    def floating(self, x: str) -> bool:
        return self.meta(x).is_floating_point()

    def least(self, x: str, d: int) -> int:
        """Returns the smallest size of the dimension in any call."""
        return min((names[x].shape[d] if names[x].dim() > d else 0) for names in self.names)

    def size(self, x: str, d: int) -> str:
        """Returns a size as text: a number if it is the same in every call."""
        if not self.rank(x):
            return "1"
        if len({names[x].dim() for names in self.names}) > 1:
            return f"{x}.shape[{d}]"
        found = {names[x].shape[d] for names in self.names}
        return str(found.pop()) if len(found) == 1 and not self.chance(15) else f"{x}.shape[{d}]"

    def name(self, letter: str = "v") -> str:
        """Returns a new name. Those with the letter t are for what is no plain tensor."""
        self.variables += 1
        return f"{letter}{self.variables - 1}"

    def fixed_shape(self, x: str) -> bool:
        return len({tuple(names[x].shape) for names in self.names}) == 1

    # Adding lines and arguments

    def add(self, lines: Sequence[str]) -> bool:
        """Adds the lines if PyTorch accepts all of them in every call; else none."""
        ran = False
        try:
            for line in lines:
                # PyTorch resizes an out= tensor that does not fit, even if others view its memory, and gives a warning.
                if "out=" in line:
                    warnings.simplefilter("error")
                for names in self.names:
                    execute(line, names)
                    ran = True
                if any(self._unfit(names, line) for names in self.names):
                    raise ValueError("too large, or of a type that is not wanted")
        except Exception:
            # Earlier lines may give warnings when they run again.
            warnings.simplefilter("ignore")
            if ran or not assigned(lines[0]) or "_(" in lines[0]:
                self.rebuild()
            return False
        finally:
            warnings.simplefilter("ignore")
        self.lines += lines
        return bool(lines)

    def _unfit(self, names: Namespace, line: str) -> bool:
        made = [names[name] for name in assigned(line)]
        # Autocast refuses to mix its dtype with the other half type.
        other = {"float16": torch.bfloat16, "bfloat16": torch.float16}.get(self.settings.autocast)
        tensors = [parts_of(x) for x in made if isinstance(x, torch.Tensor)]
        return any(x.numel() > LARGEST or x.dim() > 6 or x.is_sparse or x.dtype is other for x in tensors)

    def argument(self, text: str = "") -> str:
        name = f"a{len([1 for name, _ in self.inputs if name != 'device'])}"
        self.inputs.append((name, text or self.argument_text()))
        try:
            for names in self.names:
                names[name] = eval(self.inputs[-1][1], names)
        except Exception:  # The argument views an earlier one that lacks the needed shape.
            self.inputs[-1] = (name, self.made((4,), "torch.float32"))
            for names in self.names:
                names[name] = eval(self.inputs[-1][1], names)
        return name

    def made(self, shape: Sequence[Any], dtype: str, limits: str = "", maker: str = "make") -> str:
        """Returns the text of a contiguous tensor. Its values differ from call to call, unless it is to be a weight."""
        same = self.fixed or (self.settings.weights and not any("n" in str(s) for s in shape) and self.chance(60))
        seed = f"{len(self.inputs)}{'' if same else ' + 9 * k'}"
        return f"{maker}(device, ({''.join(f'{s}, ' for s in shape).strip()}), {dtype}, {seed}{limits})"

    @property
    def fixed(self) -> bool:
        return len(self.settings.calls) == 1

    def argument_text(self) -> str:
        """Returns the text of a tensor of some dtype and layout, or of a view of another argument."""
        if self.inputs and self.chance(12):
            x = self.tensor(lambda t: True) if self.tensors() else ""
            if x.startswith("a"):
                return self.pick(
                    [
                        x,
                        f"{x}[1:]",
                        f"{x}.mT",
                        f"{x}.view(-1)",
                        f"{x}[..., :2]",
                        f"{x}[:1].expand(3, {'-1, ' * (self.rank(x) - 1)})",
                        f"{x}.detach()",
                        f"{x} if k % 2 else {x}.clone()",
                        f"{x}[1:] if k % 2 else {x}[1:].clone()",
                    ]
                )
        dtype = (
            self.pick(INTEGERS) if self.chance(20) else self.pick(FLOATS if not self.settings.autocast else FLOATS[:1])
        )
        rank = self.pick((2, 2, 1, 3, 2, 4, 0, 3))
        shape: list[Any] = [self.pick(SIZES[:6] if self.chance(85) else SIZES) for _ in range(rank)]
        if len(set(self.settings.calls)) > 1 and rank and self.chance(75):
            shape[self.integer(0, rank - 1)] = self.pick(("n", "n", "n", "n + 1", "2 * n"))
        # The shape of another argument.
        if self.inputs and self.chance(35):
            texts = [t for _, t in self.inputs if t.startswith("make(device, (")]
            if texts:
                inner = self.pick(texts).split("(device, (", 1)[1].split(")", 1)[0]
                shape = [s.strip() for s in inner.split(",") if s.strip()]
        return self.layout(shape, dtype)

    def layout(self, shape: list[Any], dtype: str) -> str:
        """Returns the text of a tensor of `shape` in one of several layouts; with gradients, a leaf or a view of one."""
        # Convolutions get no infinities: kernels that transform tiles compute inf - inf, which is NaN, and PyTorch's
        # kernels differ among themselves.
        maker = "special" if self.chance(3) and dtype in FLOATS and len(shape) < 3 else "make"
        if dtype in INTEGERS and self.chance(30):
            maker = "limits"
        rank, view = len(shape), ""
        base = list(shape)
        how = self.integer(0, 13)
        if how == 6 and rank > 1:
            base, view = base[::-1], f".permute({', '.join(map(str, reversed(range(rank))))})"
        elif how == 7 and rank:
            d = self.integer(0, rank - 1)
            base[d], view = f"2 * {_factor(base[d])} + 1", f"[{':, ' * d}1::2]"
        elif how == 8 and rank:
            base[-1], view = f"{base[-1]} + 3", "[..., 1:-2]"
        elif how == 9 and rank:
            d = self.integer(0, rank - 1)
            base[d], view = 1, f".expand({', '.join(map(str, shape))})"
        elif how == 10 and rank == 4:
            base, view = [base[0], base[2], base[3], base[1]], ".permute(0, 3, 1, 2)"
        elif how == 11 and rank:
            base[0], view = f"{base[0]} + 1", "[1:]"
        elif how == 12 and rank:  # The offset changes from call to call,
            base[0], view = f"{base[0]} + 1", "[k % 2 : k % 2 - 1 or None]"
        elif how == 13 and rank > 1:  # and here the strides.
            view = ".transpose(0, k % 2).contiguous().transpose(0, k % 2)"
        text = self.made(base, dtype, maker=maker)
        if self.settings.gradient and dtype in FLOATS and self.chance(80):
            wanted = "k % 2 == 0" if self.chance(5) else ""
            leaf = f".requires_grad_({wanted})"
            return f"{text}{leaf}{view}" if view and self.chance(40) else f"{text}{view}{leaf}"
        return text + view


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    pairs = zip(small[::-1], large[::-1], strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)


def _factor(text: Any) -> str:
    return f"({text})" if " " in str(text) else str(text)
