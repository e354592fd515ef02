# tests/fuzz/reference.py: runs a program line by line on the CPU: in its own dtypes, in fp64, and in fp64 with noise.
"""Noise shows how far correct rounding may change a result.

After each line, the values that it wrote and that its own dtype cannot represent exactly move by up to one unit in
the last place of that dtype; gradients move in the same way on their way back. Where a comparison or a rounding is
close to an edge, runs with different noise differ, and the element counts as unstable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.fuzz.execute import Namespace, Seen, arguments, as_list, given, gradients, look, namespace
from tests.fuzz.program import Program, assigned

FLOATS = re.compile(r"torch\.(float16|bfloat16|float32)\b")
COMPLEX = re.compile(r"torch\.(complex32|complex64)\b")
ATTENTION = re.compile(r"scaled_dot_product_attention\((\w+), (\w+), (\w+)")
WEIGHT_NORM = re.compile(r"torch\._weight_norm\((\w+), (\w+), (-?\d+)\)")
PRODUCT_IN_PLACE = re.compile(r"(\w+)\.(?:addmm|addmv|addbmm|baddbmm)_\((\w+), (\w+)")
SUM_INTO = re.compile(r"torch\.(?:sum|mean)\((\w+), .*out=(\w+)\)")
# Sorts without a promise about equal values, and the length up to which PyTorch's CPU kernel keeps their order.
UNSTABLE_SORT = re.compile(r"(\w+)\.argsort\((?![^)]*stable=True)")
SHORT_SORT = 16
# An in-place operation, with the text that names its operands.
IN_PLACE = re.compile(r"^(\w+)(?:\.\w+[a-z]_\(| [-+*/|&^%]+= |\[.*\] = )(.*)$")
LARGE_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?e\+?\d+")
# The seed that stands for rounding to nearest. Rounding makes values equal, which noise does not.
ROUND = 2**32
# PyTorch's CPU kernel returns uninitialised memory for medians of repeated elements.
MEDIAN = re.compile(r"(\w+)\.(?:nan)?median\(|(?:nan)?median\((\w+)")
# The types of numbers in an fp64 run.
WIDE = (torch.float64, torch.complex128)
CAST = re.compile(r"(\w+) = (\w+)\.to\((torch\.\w+)\)")


class Native:
    """The program in its own dtypes. `dtypes`: those of all variables; `copies`: the lines that are casts to another
    dtype."""

    def __init__(self, program: Program, n: int, k: int) -> None:
        self.program, self.n, self.k = program, n, k
        self.dtypes: dict[str, torch.dtype] = {}
        self.copies: set[int] = set()
        # The reason why other machines may rightly compute something else; "" if there is none.
        self.undefined = ""
        self.error: Exception | None = None
        self.seen = Seen()
        # The largest magnitude of all finite values.
        self.largest = 0.0
        names = arguments(program, "cpu", n, k)
        inputs = given(program, names)
        try:
            for i, line in enumerate(program.statements):
                self._before(i, line, names)
                execute(line, names)
                self._note(names, assigned(line))
            outputs = [names[o] for o in program.outputs]
            found = gradients(program, names, outputs)
        except Exception as error:
            self.error = error
            return
        self._note(names, [name for name, _ in inputs])
        self.seen = look(inputs, outputs)
        self.seen.gradients = found

    def _note(self, names: Namespace, fresh: list[str]) -> None:
        for name in fresh:
            if isinstance(names.get(name), torch.Tensor):
                self.dtypes[name] = names[name].dtype
                self.largest = max(self.largest, largest(names[name]))

    def _before(self, i: int, line: str, names: Namespace) -> None:
        low = self.program.settings.autocast
        if low and any(
            abs(float(number)) > torch.finfo(getattr(torch, low)).max for number in LARGE_NUMBER.findall(line)
        ):
            self.undefined = f"{line}: a number that {low} cannot hold"
        for written, rest in IN_PLACE.findall(line):
            if any(overlaps(names.get(written), names.get(name)) for name in re.findall(r"\w+", rest)):
                self.undefined = f"{line}: an operand shares memory with what is written"
        for name in UNSTABLE_SORT.findall(line):
            if has_ties(names.get(name)):
                self.undefined = f"{line}: the order of equal values is open"
        for name in (method or function for method, function in MEDIAN.findall(line)):
            x = names.get(name)
            if isinstance(x, torch.Tensor) and any(
                n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True)
            ):
                self.undefined = f"{line}: a median of repeated elements"
        cast = CAST.fullmatch(line)
        if not cast:
            return
        x, dtype = names[cast[2]], eval(cast[3], names)
        if x.dtype == dtype:
            return
        self.copies.add(i)
        if x.dtype.is_floating_point and not dtype.is_floating_point and dtype is not torch.bool and x.numel():
            inside = torch.iinfo(dtype)
            x = x.detach().double()
            if not bool(((x >= inside.min) & (x <= inside.max)).all()):
                self.undefined = f"{line}: a value that {dtype} cannot hold"


def overlaps(written: Any, operand: Any) -> bool:
    """Returns whether two different views of one memory have the same element: PyTorch then either refuses the operation, or
    its order decides about the result."""
    if not (isinstance(written, torch.Tensor) and isinstance(operand, torch.Tensor)) or written is operand:
        return False
    if written.untyped_storage()._cdata != operand.untyped_storage()._cdata or not (
        written.numel() and operand.numel()
    ):
        return False
    places = [(x.storage_offset(), x.shape, x.stride()) for x in (written, operand)]
    if places[0] == places[1]:
        return False
    mine, theirs = (set(positions(x).tolist()) for x in (written, operand))
    return bool(mine & theirs)


def positions(x: torch.Tensor) -> torch.Tensor:
    """Returns the position of each element in its storage."""
    every = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    return every.as_strided(x.shape, x.stride(), x.storage_offset()).flatten()


def has_ties(x: Any) -> bool:
    """Returns whether equal elements follow each other along some sorted dimension. A short dimension is sorted in the same
    way everywhere."""
    if not isinstance(x, torch.Tensor):
        return False
    long = [d for d in range(x.dim()) if x.shape[d] > SHORT_SORT]
    ordered = [(x.detach().sort(d).values, d) for d in long]
    return any(bool((y.diff(dim=d) == 0).any()) for y, d in ordered)


def largest(x: torch.Tensor) -> float:
    """Returns the largest magnitude of the finite elements of a floating-point tensor; 0 for others."""
    x = parts_of(x.detach())
    if not x.is_floating_point() or not x.numel():
        return 0.0
    x = x.float() if x.element_size() == 1 else x
    return float(torch.where(x.isfinite(), x, 0.0).abs().max())


def parts_of(x: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a jagged tensor; real and imaginary parts of complex numbers; else the tensor itself."""
    x = x.values() if x.is_nested else x
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def execute(line: str, names: Namespace) -> None:
    for operands in ATTENTION.findall(line):
        refuse_unequal_lengths(*(names.get(name) for name in operands[1:]))
        if "enable_gqa=True" in line:
            refuse_no_heads(names.get(operands[1]))
    for v, g, dim in WEIGHT_NORM.findall(line):
        refuse_scales_beyond_rows(names.get(v), names.get(g), int(dim))
    for written, *operands in PRODUCT_IN_PLACE.findall(line) + [pair[::-1] for pair in SUM_INTO.findall(line)]:
        refuse_written_operands(names.get(written), *(names.get(name) for name in operands))
    exec(compile(line, "<line>", "exec"), names)


def refuse_scales_beyond_rows(v: Any, g: Any, dim: int) -> None:
    """ValueError if weight_norm gets more than one scale for each row: PyTorch's CPU kernel then takes the first ones,
    whatever row they belong to."""
    if isinstance(v, torch.Tensor) and isinstance(g, torch.Tensor) and v.dim() and g.numel() != v.shape[dim]:
        raise ValueError(f"weight_norm of {v.shape[dim]} rows has {g.numel()} scales")


def refuse_written_operands(written: Any, *operands: Any) -> None:
    """ValueError if a matrix product or sum writes into memory that it reads: PyTorch does not check this, and its result
    depends on the order in which the BLAS library computes it. A sum reads the zero that it begins with."""
    memory = [x.untyped_storage()._cdata for x in (written, *operands) if isinstance(x, torch.Tensor)]
    if memory and memory[0] in memory[1:]:
        raise ValueError("an op writes into memory that it reads")


def refuse_unequal_lengths(keys: Any, values: Any) -> None:
    """ValueError if keys and values differ in length.

    PyTorch's CPU kernel does not check this, and reads and writes beyond the shorter of the two.
    """
    both = [x.shape[-2] for x in (keys, values) if isinstance(x, torch.Tensor) and x.dim() > 1]
    if len(set(both)) > 1:
        raise ValueError(f"keys and values of attention have {both[0]} and {both[1]} rows")


def refuse_no_heads(keys: Any) -> None:
    """ValueError if grouped attention has no key heads: PyTorch divides by their number, which ends the process."""
    if isinstance(keys, torch.Tensor) and keys.dim() > 2 and not keys.shape[-3]:
        raise ValueError("grouped attention without heads of keys")


@contextmanager
def fp64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def widened(text: str) -> str:
    return COMPLEX.sub("torch.complex128", FLOATS.sub("torch.float64", text))


def exact(native: Native, noise: int | None = None, moved: bool = False) -> Seen | None:
    """Runs the program in fp64. None if PyTorch refuses it.

    `noise` is the seed of the noise, None for none, ROUND to round instead. `moved`: the arguments get noise, too.
    """
    program = native.program
    shaken = None if noise is None else Noise(native, noise)
    with fp64_by_default():
        try:
            names = arguments(program, "cpu", native.n, native.k, widened)
            if moved and shaken:
                shaken.move(names)
            inputs = given(program, names)
            for i, line in enumerate(program.statements):
                text = widened(line)
                if i in native.copies:
                    text = text[:-1] + ", copy=True)"
                if shaken:
                    shaken.before(names)
                execute(text, names)
                if shaken:
                    shaken.after(names, assigned(line))
            outputs = [names[o] for o in program.outputs]
            found = gradients(program, names, outputs)
        except Exception:
            return None
    seen = look(inputs, outputs)
    seen.gradients = found
    return seen


class Noise:
    """Adds noise to what each line wrote, or rounds it to its own dtype."""

    def __init__(self, native: Native, seed: int) -> None:
        self.native = native
        self.rounds = seed == ROUND
        self.generator = torch.Generator().manual_seed(seed)
        self.nan = torch.tensor(math.nan, dtype=torch.float64).copysign(torch.tensor(-1.0 if seed % 2 else 1.0))
        self.old: dict[int, torch.Tensor] = {}

    def before(self, names: Namespace) -> None:
        self.old = {key: flat.clone() for key, (flat, _) in self._storages(names).items()}

    def after(self, names: Namespace, fresh: list[str]) -> None:
        for key, (flat, dtype) in self._storages(names).items():
            old = self.old.get(key)
            written = torch.ones_like(flat, dtype=torch.bool) if old is None else ~same(flat, old)
            inexact = written & ~same(flat.to(_narrow(dtype)).double(), flat) & flat.isfinite()
            if bool(inexact.any()):
                moved = flat.to(dtype).double() if self.rounds else flat * self._factor(flat, dtype)
                flat.copy_(torch.where(inexact, moved, flat))
            # The sign of NaN means nothing, but signbit and copysign show it.
            if bool((written & flat.isnan()).any()):
                flat.copy_(torch.where(written & flat.isnan(), self.nan, flat))
        for name in fresh:
            x = names[name]
            if (
                isinstance(x, torch.Tensor)
                and x.requires_grad
                and not x.is_leaf
                and x.dtype in WIDE
                and not x.is_nested
            ):
                x.register_hook(self._hook(self._dtype(name)))

    def move(self, names: Namespace) -> None:
        """Adds noise to arguments, even if they are exact: intermediate results inside of an op are as uncertain as
        that."""
        for flat, dtype in self._storages(names).values():
            flat.copy_(flat * self._factor(flat, dtype))

    def _hook(self, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
        def shake(g: torch.Tensor) -> torch.Tensor:
            if g.is_complex():
                return torch.view_as_complex(shake(torch.view_as_real(g.resolve_conj())).contiguous())
            inexact = ~same(g.to(_narrow(dtype)).double(), g) & g.isfinite()
            return torch.where(inexact, g * self._factor(g, dtype), g)

        return shake

    def _factor(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return 1 + torch.finfo(dtype).eps * (torch.rand(x.shape, generator=self.generator) * 2 - 1)

    def _dtype(self, name: str) -> torch.dtype:
        autocast = self.native.program.settings.autocast
        dtype = self.native.dtypes.get(name, torch.float64)
        dtype = dtype.to_real() if dtype.is_complex else dtype
        return getattr(torch, autocast) if autocast and dtype is torch.float32 else dtype

    def _storages(self, names: Namespace) -> dict[int, tuple[torch.Tensor, torch.dtype]]:
        """Returns the floating-point storages by address, flattened, with the dtype that they have in the program."""
        found: dict[int, tuple[torch.Tensor, torch.dtype]] = {}
        for name, x in names.items():
            if isinstance(x, torch.Tensor) and x.is_nested:
                x = x.values()
            if isinstance(x, torch.Tensor) and x.dtype in WIDE and x.untyped_storage().nbytes():
                key = x.untyped_storage().data_ptr()
                if key not in found and self._dtype(name).is_floating_point:
                    flat = torch.empty(0, dtype=torch.float64).set_(x.untyped_storage())
                    found[key] = (flat, self._dtype(name))
        return found


def _narrow(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype that shows whether a value is exact. A float64 value that float32 holds too is one of the arguments
    or a sum or product of a few of them."""
    return torch.float32 if dtype is torch.float64 else dtype


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def fake(program: Program, device: str, n: int, k: int) -> list[Any] | None:
    """Returns dtypes and shapes of arguments and results under autocast on `device`, computed with fake tensors.

    The CPU has other lists of ops for autocast. None if the values of tensors decide about dtypes or shapes.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    try:
        return _traced(program, device, n, k)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return None


def fake_strides(native: Native) -> list[tuple[int, ...]] | None:
    """Returns the strides of arguments and results when PyTorch traces the program on the CPU."""
    try:
        return [tuple(x.stride()) for x in _fake_tensors(native.program, "cpu", native.n, native.k)]
    except Exception:
        return None


def _traced(program: Program, device: str, n: int, k: int) -> list[Any]:
    return [(x.dtype, tuple(x.shape)) for x in _fake_tensors(program, device, n, k)]


def _fake_tensors(program: Program, device: str, n: int, k: int) -> list[torch.Tensor]:
    """Returns arguments and results as fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    low = program.settings.autocast if device != "cpu" else ""
    with FakeTensorMode(allow_non_fake_inputs=True):
        names = arguments(program, device, n, k)
        inputs = given(program, names)
        dtype = getattr(torch, low) if low else None
        with torch.autocast(torch.device(device).type, dtype=dtype, enabled=bool(low)):
            for line in program.statements:
                execute(line, names)
        outputs = as_list(tuple(names[o] for o in program.outputs))
        found = [x for x in [x for _, x in inputs] + outputs if isinstance(x, torch.Tensor)]
        return [x.values() if x.is_nested else x for x in found]


__all__ = ["ROUND", "Native", "exact", "fake", "fake_strides", "largest", "namespace", "same"]
