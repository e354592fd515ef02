# torch_ocl_compile/user_kernel/registry.py: keeps the ops made of users' kernels, and what a stored graph with them
# depends on.
"""A stored graph holds what Python functions of the user computed when it was traced. It may be used again only if
these functions are the same. Its key therefore has the code of each function and of the functions that it calls, and
the values that they read. If something has no code or value that can be compared, the graph is not stored.
"""

from __future__ import annotations

import dis
import hashlib
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from torch_ocl_compile import identity
from torch_ocl_compile.errors import UnsupportedError


class Registered(Protocol):
    """An op made of a user's kernel."""

    name: str

    def texts(self) -> list[str]: ...

    def functions(self) -> list[Any]: ...


KERNELS: dict[str, Registered] = {}  # "mylib::saxpy" -> the op.
BY_OVERLOAD: dict[Any, Registered] = {}  # An overload that compiled graphs call -> the op.
_TRUSTED = ("aten", "prims", "prim", "ocl", "higher_order")  # Namespaces of ops that call no kernel of a user.


def find(target: Any) -> Any:
    """Returns the op that an overload belongs to, or None."""
    return BY_OVERLOAD.get(target)


def identity_of(gm: torch.fx.GraphModule) -> list[tuple[str, str]]:
    """Returns (op, digest) of all kernels, if the graph has ops that torch does not know: their formulas may call any
    kernel. UnsupportedError if a function of a kernel cannot be compared.
    """
    if not KERNELS or not any(_is_foreign(node.target) for part in gm.modules() for node in _nodes(part)):
        return []
    return sorted((name, _digest(kernel)) for name, kernel in KERNELS.items())


def _nodes(part: Any) -> Iterable[torch.fx.Node]:
    return part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ()


def _is_foreign(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in _TRUSTED
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.split("::")[0] not in _TRUSTED
    # An autograd.Function or a checkpoint holds Python functions that may call any op.
    return isinstance(target, torch._ops.HigherOrderOperator)


def _digest(kernel: Registered) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in kernel.texts():
        digest.update(f"{len(text)} {text}\n".encode())
    seen: set[int] = set()
    for value in kernel.functions():
        for part in _described(value, f"{kernel.name}", seen):
            digest.update(part.encode())
    return digest.hexdigest()


def _described(value: Any, where: str, seen: set[int]) -> Iterable[str]:
    """Yields texts that are equal if and only if the value means the same."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.dtype, torch.device)):
        yield f"{type(value).__name__} {value!r};"
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _described(item, where, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{key!r}:"
            yield from _described(item, where, seen)
    elif isinstance(value, types.FunctionType):
        if not identity.covers(value) and id(value) not in seen:
            seen.add(id(value))
            yield from _described_function(value, where, seen)
    elif isinstance(value, types.ModuleType):
        name = value.__name__.split(".")[0]
        if name not in ("torch", "math", "builtins"):
            raise UnsupportedError(f"{where} uses the module {value.__name__}, whose code cannot be compared")
        yield f"module {value.__name__};"
    elif value in KERNELS.values() or isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        yield f"op {getattr(value, 'name', value)};"
    elif getattr(value, "__module__", "").split(".")[0] in ("torch", "math", "builtins", "typing"):
        yield f"{value.__module__}.{getattr(value, '__qualname__', value)};"
    else:
        raise UnsupportedError(f"{where} uses {value!r}, which cannot be compared with that of another process")


def _described_function(function: Callable[..., Any], where: str, seen: set[int]) -> Iterable[str]:
    code: types.CodeType = function.__code__
    where = f"{where}: {code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"
    yield from _described_code(code)
    yield from _described([function.__defaults__, function.__kwdefaults__], where, seen)
    for cell in function.__closure__ or ():
        yield from _described(cell.cell_contents, where, seen)
    known: dict[str, Any] = function.__globals__
    for name in sorted(_globals_of(code)):
        if name in known:
            yield f"{name}="
            yield from _described(known[name], where, seen)


def _described_code(code: types.CodeType) -> Iterable[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames};"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _described_code(constant)
        else:
            yield f"{constant!r};"


def _globals_of(code: types.CodeType) -> set[str]:
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_of(constant)
    return names
