# torch_ocl_compile/compile/foreign_ops.py: identifies the code of ops that are not torch's, for the keys of stored graphs.
"""AOTAutograd traces through Python functions that a program registers for its ops: formulas of gradients, composite kernels,
functions for fake tensors. What they compute becomes part of the compiled graph, but only the op's name is in Dynamo's graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._library import custom_ops, simple_registry
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_ocl_compile.compile import python_code
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.user_kernel.registry import BY_OVERLOAD, KERNELS

_TRUSTED = (
    "aten",
    "prims",
    "prim",
    "ocl",
    "higher_order",
)  # Namespaces of ops whose code comes with torch or with this package.
# torch traces through kernels of these keys. A kernel that is registered with torch.library.impl or in C++ cannot be read.
_TRACED_KEYS = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "Autograd",
    "AutogradPrivateUse1",
    "Meta",
)


def identity_of(gm: torch.fx.GraphModule) -> str:
    """Returns a text that is equal in processes with the same code of ops that are not torch's. "" if the graph has no such op.
    UnsupportedError if the code of an op cannot be compared."""
    targets = [
        node.target for part in gm.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes
    ]
    found = {str(target): target for target in targets if _is_foreign(target)}
    # An autograd.Function or a checkpoint holds Python functions that may call any kernel.
    if not found and not (KERNELS and any(isinstance(t, torch._ops.HigherOrderOperator) for t in targets)):
        return ""
    ops = [*(found[name] for name in sorted(found)), *(KERNELS[name] for name in sorted(KERNELS))]
    return python_code.digest(ops, "the graph", describe_op)


def check_inputs(inputs: Iterable[Any]) -> None:
    """Raises UnsupportedError if an input's class has a __torch_dispatch__ that is not torch's: AOTAutograd traces through it."""
    for value in inputs:
        kind = type(value)
        if is_traceable_wrapper_subclass(value) and not kind.__module__.startswith(("torch.", "torch_ocl_compile.")):
            raise UnsupportedError(f"the code of {kind.__module__}.{kind.__qualname__} cannot be compared")


def describe_op(value: Any, where: str, seen: set[Any]) -> Iterator[str] | None:
    """Yields texts that are equal if an op has the same code. None if `value` is no op."""
    if any(value is kernel for kernel in KERNELS.values()):
        return _describe_kernel(value, where, seen)
    if isinstance(value, custom_ops.CustomOpDef):
        return _describe_overload(value._opoverload, where, seen)
    if isinstance(value, torch._ops.OpOverloadPacket):
        return _describe_packet(value, where, seen)
    return _describe_overload(value, where, seen) if isinstance(value, torch._ops.OpOverload) else None


def _is_foreign(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace not in _TRUSTED
    return isinstance(target, torch._ops.OpOverloadPacket) and target._qualified_op_name.split("::")[0] not in _TRUSTED


def _describe_packet(packet: Any, where: str, seen: set[Any]) -> Iterator[str]:
    for name in packet.overloads():
        yield from _describe_overload(getattr(packet, name), where, seen)


def _describe_overload(op: Any, where: str, seen: set[Any]) -> Iterator[str]:
    yield f"op {op}"
    if not _is_foreign(op) or op in seen:
        return
    seen.add(op)
    if op in BY_OVERLOAD:
        yield from _describe_kernel(BY_OVERLOAD[op], where, seen)
        return
    name = op.name()
    definition, entry = (
        custom_ops.OPDEFS.get(name),
        simple_registry.singleton._data.get(name),
    )  # torch 2.11 has no get()
    if definition is None:
        traced = [key for key in _TRACED_KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
        if traced:
            raise UnsupportedError(f"{where} uses the op {name}, whose {traced[0]} kernel cannot be compared")
        functions: list[Any] = []
    else:
        functions = [
            *(definition._abstract_fn, definition._setup_context_fn, definition._backward_fn, definition._vmap_fn),
            *definition._torch_dispatch_fns.values(),
        ]
    fake = None if entry is None else entry.fake_impl.kernel
    rules = [] if entry is None else list(entry.torch_dispatch_rules._data.values())
    yield str(op._schema)
    yield from python_code.describe(
        [*functions, None if fake is None else fake.func, *rules], f"{where}: {name}", seen, describe_op
    )


def _describe_kernel(kernel: Any, where: str, seen: set[Any]) -> Iterator[str]:
    if kernel not in seen:
        seen.add(kernel)
        yield from kernel.texts()
        yield from python_code.describe(kernel.functions(), f"{where}: {kernel.name}", seen, describe_op)
