# tests/fuzz/rows.py: prints rows of the op tables as lines of a program.
"""A row is a Python callable. It is called on the program's tensors while torch's function mode records its calls.

Printed, these calls are the lines. So every row of the tables is a statement of the fuzzer, without a second list of
ops.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.fuzz.program import NAME, assigned, names_in
from tests.fuzz.reference import refuse_unequal_lengths
from tests.op_row import Op
from tests.op_table import _OWN, ATTENTION_OPS, LINALG_OPS, NN_OPS, ORDER_OPS, SPECIAL

FAMILIES: dict[str, list[Op]] = {
    "own": _OWN,
    "nn": NN_OPS,
    "order": ORDER_OPS,
    "attention": ATTENTION_OPS,
    "special": SPECIAL,
    "linalg": LINALG_OPS,
}
# The largest number of elements of an operand that programs take from a row.
LARGEST = 700
INFIX = {
    "__and__": "&", "__or__": "|", "__xor__": "^", "__lshift__": "<<", "__rshift__": ">>", "__eq__": "==", "__ne__": "!=",
    "__pow__": "**", "__matmul__": "@", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
}  # fmt: skip
REFLECTED = {
    "__rsub__": "-",
    "__rpow__": "**",
    "__rtruediv__": "/",
    "__rfloordiv__": "//",
    "__radd__": "+",
    "__rmul__": "*",
}
CASTS = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
         "bool": "bool"}  # fmt: skip


class NotPrintable(Exception):
    """The row calls something that cannot be printed as a line."""


@dataclass
class Leaf:
    """A tensor argument of a row: its shape and dtype in one sample, and the range of values in all samples."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float
    high: float

    @property
    def limited(self) -> bool:
        """Returns whether the op is meant for a limited range of values only."""
        return self.low > -1.5 or self.high < 1.5


@dataclass
class Sample:
    """The arguments of a row. Tensors are leaves; all other values stay as they are."""

    leaves: list[Any]
    spec: Any

    def tensors(self) -> list[int]:
        return [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Leaf)]

    def arguments(self, operands: dict[int, Any]) -> Any:
        return tree_unflatten([operands.get(i, leaf) for i, leaf in enumerate(self.leaves)], self.spec)


@functools.cache
def samples(op: Op, dtype: torch.dtype) -> list[Sample]:
    """Returns the samples of a row that are small enough."""
    flat = [tree_flatten(s) for s in op.samples(dtype)]
    found = []
    for leaves, spec in flat:
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if all(x.numel() <= LARGEST for x in tensors):
            found.append(
                Sample([_leaf(x, i, flat) if isinstance(x, torch.Tensor) else x for i, x in enumerate(leaves)], spec)
            )
    return found


def _leaf(x: torch.Tensor, position: int, flat: Sequence[tuple[list[Any], Any]]) -> Leaf:
    values = [x.detach().double().flatten()]
    for leaves, _ in flat:
        if position < len(leaves) and isinstance(leaves[position], torch.Tensor):
            values.append(leaves[position].detach().double().flatten())
    every = torch.cat(values)
    every = every[every.isfinite()]
    known = every.unique().numel() >= 5 or not x.is_floating_point()
    low, high = (float(every.min()), float(every.max())) if known and every.numel() else (-2.0, 2.0)
    return Leaf(tuple(x.shape), x.dtype, low, high)


class Recorder(TorchFunctionMode):
    """Records calls as lines. `known` maps ids of tensors to names; `fresh()` returns a new name."""

    def __init__(self, known: dict[int, str], fresh: Callable[[], str]) -> None:
        super().__init__()
        self.known, self.fresh = known, fresh
        self.lines: list[str] = []
        # Keeps objects alive, so that no id is reused.
        self.alive: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            refuse_unequal_lengths(*args[1:3])
        result = func(*args, **kwargs)
        self.alive.append((args, kwargs, result))
        listed = list(result) if isinstance(result, (tuple, list)) else [result]
        tensors = [x for x in listed if isinstance(x, torch.Tensor)]
        if not tensors and getattr(func, "__name__", "") != "__setitem__":
            return result
        if len(tensors) != len(listed) and tensors:
            raise NotPrintable(f"{func} returns more than tensors")
        text = self.call(func, args, kwargs)
        new = [x for x in tensors if id(x) not in self.known]
        if not new:
            self.lines.append(text)
            return result
        if len(new) != len(tensors):
            raise NotPrintable(f"{func} returns tensors old and new")
        names = [self.fresh() for _ in tensors]
        self.known.update({id(x): name for x, name in zip(tensors, names, strict=True)})
        comma = "," if isinstance(result, (tuple, list)) and len(names) == 1 else ""
        self.lines.append(f"{', '.join(names)}{comma} = {text}")
        return result

    def call(self, func: Any, args: Any, kwargs: Any) -> str:
        name = getattr(func, "__name__", "")
        if name == "__getitem__":
            return f"{self.show(args[0])}[{self.index(args[1])}]"
        if name == "__setitem__":
            return f"{self.show(args[0])}[{self.index(args[1])}] = {self.show(args[2])}"
        shown = [self.show(a) for a in args]
        if name == "__get__":
            return f"{shown[0]}.{func.__self__.__name__}"
        if name in INFIX:
            return f"{shown[0]} {INFIX[name]} {shown[1]}"
        if name in REFLECTED:
            return f"{shown[1]} {REFLECTED[name]} {shown[0]}"
        if name == "__invert__":
            return f"~{shown[0]}"
        full = str(resolve_name(func))
        usual = defaults(func)
        settings = [f"{key}={self.show(value)}" for key, value in kwargs.items() if not _is_default(usual, key, value)]
        if full.startswith("torch.Tensor."):
            if name in CASTS:
                return f"{shown[0]}.to(torch.{CASTS[name]})"
            return f"{shown[0]}.{name}({', '.join([*shown[1:], *settings])})"
        return f"{path_of(func, full)}({', '.join([*shown, *settings])})"

    def index(self, value: Any) -> str:
        if isinstance(value, tuple):
            return ", ".join(self.index(v) for v in value) + ("," if len(value) == 1 else "") if value else "()"
        if isinstance(value, slice):
            parts = ["" if v is None else self.show(v) for v in (value.start, value.stop, value.step)]
            return ":".join(parts if parts[2] else parts[:2])
        return self.show(value)

    def show(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known:
                raise NotPrintable("a tensor from elsewhere")
            return self.known[id(value)]
        if isinstance(value, torch.device):
            if value.type != "cpu":
                raise NotPrintable(f"device {value}")
            return "device"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self.show(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.memory_format)):
            return repr(value)
        if value is Ellipsis:
            return "..."
        raise NotPrintable(f"a {type(value).__name__}")


def defaults(func: Any) -> dict[str, Any]:
    try:
        return {name: p.default for name, p in inspect.signature(func).parameters.items()}
    except (TypeError, ValueError):  # Functions that are implemented in C++.
        return {}


def _is_default(usual: dict[str, Any], key: str, value: Any) -> bool:
    return key in usual and type(value) is type(usual[key]) and bool(value == usual[key])


def path_of(func: Any, full: str) -> str:
    """Returns how a line calls a function."""
    if getattr(torch, getattr(func, "__name__", ""), None) is func:
        return f"torch.{func.__name__}"
    if full.startswith("aten."):
        return f"torch.ops.{full}"
    path = full.replace("torch.nn.functional.", "F.").replace("torch.functional.", "torch.")
    owner: Any = {"torch": torch, "F": torch.nn.functional}
    for i, part in enumerate(path.split(".")):
        owner = owner.get(part) if i == 0 else getattr(owner, part, None)
    if owner is None:
        raise NotPrintable(f"{full} has no public name")
    return path


def lines_of(op: Op, arguments: Any, known: dict[int, str], fresh: Callable[[], str]) -> list[str]:
    """Returns the lines of the row's calls on these arguments. NotPrintable, or any error of PyTorch, if it cannot be
    called."""
    given = set(known.values())
    recorder = Recorder(known, fresh)
    with recorder:
        results = op.call(*arguments)
    named = [known[id(x)] for x in tree_flatten(results)[0] if isinstance(x, torch.Tensor) and id(x) in known]
    return [_hidden(line, given | set(named)) for line in used(recorder.lines, named)]


def _hidden(line: str, seen: set[str]) -> str:
    """Renames intermediate results to names that nothing else uses, because the row may return less than they promise."""
    return NAME.sub(lambda m: m[0] if m[0] in seen else f"t{m[2]}", line)


def used(lines: list[str], results: list[str]) -> list[str]:
    """Returns the lines that results depend on, and those that write."""
    wanted, kept = set(results), []
    for line in reversed(lines):
        gives = assigned(line)
        if not gives or wanted & set(gives):
            kept.append(line)
            wanted.update(names_in(line))
    return kept[::-1]


@functools.cache
def in_place(family: str) -> list[Op]:
    """Returns the rows that are named after a method with an in-place form."""
    return [op for op in FAMILIES[family] if hasattr(torch.Tensor, op.name + "_") and not inspect.isclass(op.call)]


@functools.cache
def programs(family: str) -> list[Op]:
    """Returns the rows of a family that random programs use."""
    return [op for op in FAMILIES[family] if op.programs != "none"]
