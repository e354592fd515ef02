# torch_ocl_compile/compile/python_code.py: describes Python functions by what they compute, for the keys of stored graphs.
"""A stored graph holds what Python functions of the user computed when it was traced. It may be used again only if these functions
are the same. A description has the code of each function and of the functions that it calls, and the values that they read. If
something has no code or value that can be compared, there is no description, and the graph is not stored."""

from __future__ import annotations

import dis
import functools
import hashlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torch_ocl_compile import identity
from torch_ocl_compile.errors import UnsupportedError

# Modules that change only with Python or with torch, which are part of each key.
_KNOWN_MODULES = ("torch", "math", "builtins", "operator", "typing")
# Describes an op: (value, where it is used, what is described already). None if the value is no op.
DescribeOp = Callable[[Any, str, set[Any]], Iterable[str] | None]


def digest(values: Iterable[Any], where: str, describe_op: DescribeOp) -> str:
    """Returns a text that is equal in two processes if the values mean the same. `where` begins the message of the
    UnsupportedError if a value cannot be compared."""
    found = hashlib.blake2b(digest_size=16)
    for part in describe(list(values), where, set(), describe_op):
        found.update(f"{len(part)} {part}\n".encode())
    return found.hexdigest()


def describe(value: Any, where: str, seen: set[Any], describe_op: DescribeOp) -> Iterator[str]:
    """Yields texts that are equal if and only if the value means the same."""
    if (op := describe_op(value, where, seen)) is not None:
        yield from op
    elif value is None or isinstance(value, (bool, int, float, str, bytes, torch.dtype, torch.device)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list)):
        yield f"{type(value).__name__} of {len(value)}"
        for item in value:
            yield from describe(item, where, seen, describe_op)
    elif isinstance(value, dict):
        yield f"dict of {len(value)}"
        for key, item in value.items():
            yield from describe((key, item), where, seen, describe_op)
    elif isinstance(value, functools.partial):
        yield from describe(("partial", value.func, value.args, value.keywords), where, seen, describe_op)
    elif isinstance(value, types.FunctionType):
        if identity.covers(value):
            yield f"function {value.__module__}.{value.__qualname__}"
        elif id(value) not in seen:
            seen.add(id(value))
            yield from _describe_function(value, where, seen, describe_op)
    elif isinstance(value, types.ModuleType):
        if value.__name__.split(".")[0] not in _KNOWN_MODULES:
            raise UnsupportedError(f"{where} uses the module {value.__name__}, whose code cannot be compared")
        yield f"module {value.__name__}"
    elif (getattr(value, "__module__", None) or "").split(".")[0] in _KNOWN_MODULES and hasattr(value, "__qualname__"):
        yield f"{value.__module__}.{value.__qualname__}"
    else:
        raise UnsupportedError(f"{where} uses {value!r}, which cannot be compared with that of another process")


def _describe_function(
    function: types.FunctionType, where: str, seen: set[Any], describe_op: DescribeOp
) -> Iterator[str]:
    code = function.__code__
    where = f"{where}: {getattr(code, 'co_qualname', code.co_name)}"
    yield from _describe_code(code)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    yield from describe([function.__defaults__, function.__kwdefaults__, cells], where, seen, describe_op)
    known: dict[str, Any] = function.__globals__
    for name in sorted(_globals_of(code)):
        if name in known:
            yield f"{name}="
            yield from describe(known[name], where, seen, describe_op)


def _describe_code(code: types.CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _describe_code(constant)
        elif isinstance(constant, frozenset):
            yield f"{sorted(map(repr, constant))}"
        else:
            yield f"{constant!r}"


def _globals_of(code: types.CodeType) -> set[str]:
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_of(constant)
    return names
