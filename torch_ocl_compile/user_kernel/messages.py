# torch_ocl_compile/user_kernel/messages.py: checks a user's kernel and the tensors given to it, and writes the error
# messages.
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.user_kernel.signature import SCALARS, Parameter, element


def check_name(name: str, known: Mapping[str, Any]) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name):
        raise ConfigError(f"the name {name!r} of a kernel must have the form 'library::op'.")
    if name in known:
        raise ConfigError(f"the op {name} exists already.\n  do: choose another name; a process cannot replace an op.")


def check_parameters(kernel: Any) -> None:
    """Raises ConfigError if outputs, values and strided do not fit the kernel's parameters."""
    by_name = {p.name: p for p in kernel.parameters}
    where = f"{kernel.name}: kernel {kernel.signature.kernel}"
    for what, names in (("outputs", kernel.outputs), ("values", kernel.values), ("strided", kernel.strided)):
        for name in names:
            if name not in by_name:
                raise ConfigError(
                    f"{where} has no parameter {name!r}, which `{what}` names; it has {', '.join(by_name)}."
                )
    for p in kernel.parameters:
        if p.name in kernel.outputs and not p.written:
            raise ConfigError(f"{where}: the output {p.name} must be a `__global` pointer that is not const.")
        if p.name in kernel.values and p.space == "global":
            raise ConfigError(f"{where}: {p.name} is a tensor; `values` are numbers and sizes of __local memory.")
        if p.space == "local" and p.name not in kernel.values:
            raise ConfigError(f"{where}: `values` must say how many elements the __local memory {p.name} has.")
    if not any(p.space == "global" for p in kernel.parameters):
        raise ConfigError(f"{where} has no tensor.")


def elements_without_macros(kernel: Any) -> dict[str, tuple[str, int]]:
    """Returns (scalar type, vector width) of the parameters whose type does not depend on `defines`."""
    found = {}
    for p in kernel.parameters:
        try:
            found[p.name] = element(p.type, kernel._macros, f"{kernel.name}: {p.name}")
        except ConfigError:
            if kernel.defines is None:
                raise
    return found


def check_tensor(kernel: Any, p: Parameter, tensor: Any, what: str) -> None:
    """Raises ConfigError if the kernel cannot take the tensor. If `defines` sets the type of the parameter, any dtype
    is allowed.
    """
    where = f"{kernel.name}: {what} {p.name}"
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"{where} is a {type(tensor).__name__}, but it must be a tensor.")
    if tensor.device.type == "cpu":
        return  # The reference decides.
    if p.name not in kernel.strided and not tensor.is_contiguous():
        raise ConfigError(
            f"{where} is not contiguous: its strides are {tuple(tensor.stride())}.\n"
            f"  do: pass {p.name}.contiguous(), or name it in `strided` and give its strides to the kernel through `values`"
        )
    if p.name not in kernel.known_elements:
        return
    kind, width = kernel.known_elements[p.name]
    if tensor.dtype not in SCALARS[kind][2]:
        allowed = " or ".join(str(dtype) for dtype in SCALARS[kind][2])
        raise ConfigError(
            f"{where} has dtype {tensor.dtype}, but the parameter of kernel {kernel.signature.kernel} is a pointer to {p.type} "
            f"({allowed}).\n"
            f"  do: convert it, or make the type a macro of `defines`: {{'T': {p.name}.dtype}}"
        )
    offset = tensor.storage_offset()
    if width > 1 and isinstance(offset, int) and offset % (4 if width == 3 else width):
        raise ConfigError(
            f"{where} begins at element {offset} of its memory, which is not aligned for {p.type}.\n  do: pass {p.name}.clone()"
        )


def check_call(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises ConfigError if the number or the types of a call's arguments do not fit the op."""
    names = [p.name for p in kernel.inputs]
    problem = ""
    if len(args) + len(kwargs) != len(names) or any(name not in names[len(args) :] for name in kwargs):
        given = [*(type(a).__name__ for a in args), *(f"{name}=" for name in kwargs)]
        problem = f"{len(names)} arguments are needed, not {len(given)} ({', '.join(given)})"
    else:
        for p, value in zip(kernel.inputs, [*args, *(kwargs[n] for n in names[len(args) :])], strict=True):
            is_float = not p.space and kernel.known_elements.get(p.name, ("float", 1))[0] in ("half", "float", "double")
            numbers = (int, float, torch.SymInt, torch.SymFloat) if is_float else (int, torch.SymInt)
            if not isinstance(value, torch.Tensor if p.space else numbers):
                wanted = "a tensor" if p.space else "a number" if is_float else "an int"
                problem = (
                    f"{p.name} must be {wanted}, as the kernel's `{' '.join(p.text.split())}` says, not {value!r:.60}"
                )
                break
    if problem:
        raise ConfigError(f"{kernel.name}: {problem}.\n  do: call it as {kernel.op._schema}")


def other_device(op: str, given: Mapping[str, Any]) -> ConfigError:
    places = ", ".join(f"{name} on {t.device}" for name, t in given.items() if isinstance(t, torch.Tensor))
    return ConfigError(f"{op}: all tensors must be on one device, but there are {places}.\n  do: move one with .to()")


def group_too_large(kernel: Any, local: list[int], items: int, most: int) -> ConfigError:
    size = "x".join(str(n) for n in local)
    return ConfigError(
        f"{kernel.name}: local_size {size} has {items} work-items, but this device allows {most} for kernel "
        f"{kernel.signature.kernel}.\n  do: choose a smaller local_size"
    )


def macro_text(op: str, name: str, value: Any, types: Mapping[torch.dtype, str]) -> str:
    """Returns the text of a macro: a dtype becomes OpenCL's type, a float has all its digits."""
    if isinstance(value, torch.dtype):
        if value not in types:
            raise ConfigError(f"{op}: the macro {name} is {value}, which OpenCL C has no type for.")
        return types[value]
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (str, float)):
        return str(value) if isinstance(value, str) else repr(value)
    if isinstance(value, (int, torch.SymInt)):
        return str(int(value))
    raise ConfigError(f"{op}: the macro {name} is {value!r}, but it must be a text, a number or a dtype.")


def with_lines(message: str, kernel: Any, text: str) -> str:
    """Adds the lines of the source that the compiler's log names.

    `text` is what was compiled. A compiler that ignores its #line directive writes <kernel>:LINE and counts the lines of
    `text`.
    """
    lines = kernel.source.splitlines()
    own = kernel.name.replace("::", ".")
    before = text.partition(f'#line 1 "{own}"')[0].count("\n") + 1
    numbers = re.findall(rf"(?:({re.escape(own)})|<kernel>):(\d+)", message)
    found = dict.fromkeys(int(n) - (0 if follows_directive else before) for follows_directive, n in numbers)
    shown = [f"\n  line {n}: {lines[n - 1].strip()}" for n in list(found)[:4] if 0 < n <= len(lines)]
    head, mark, rest = message.partition("\n  do:")
    return head + "".join(shown) + mark + rest
