# torch_ocl_compile/compile/cache_key.py: what a stored graph depends on besides the graph that Dynamo traced.
"""AOTAutograd's own key has the graph, the inputs, torch's version and torch's settings. It knows nothing of this project.
Measured choices of kernels are not part of the key: a stored graph is scheduled when it is loaded, by the choices then known."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload

from torch_ocl_compile import _C
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.lowering.graph import allows_tf32
from torch_ocl_compile.lowering.registry import LOWERINGS

PACKAGE = Path(__file__).resolve().parents[1]
_KNOWN = (f"{Path(torch.__file__).parent}/", f"{PACKAGE}/")  # where functions are that the versions speak for


def key(settings: Mapping[str, Any], inputs: Sequence[Any]) -> str:
    """`settings`: options of scope "compile". Raises UnsupportedError where something has no name that lasts."""
    parts = [
        project_hash(),
        sorted(settings.items()),
        [device_text(index) for index in devices(inputs)],
        allows_tf32(),
        foreign_functions({**ocl_decomp_table(), **LOWERINGS}),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def project_hash() -> str:
    """Of this package's Python files and of the C++ extension, kernels included."""
    found = hashlib.sha256()
    for path in [*sorted(PACKAGE.rglob("*.py")), Path(_C.__file__)]:
        found.update(f"{path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path.name}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def devices(inputs: Iterable[Any]) -> list[int]:
    """Devices that a graph may run on: those of its inputs and the current one."""
    ours = torch._C._get_privateuse1_backend_name()
    found = {torch.accelerator.current_device_index()}
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type == ours and value.device.index is not None:
            found.add(value.device.index)
    return sorted(found)


def device_text(index: int) -> str:
    """Name, driver and capabilities."""
    properties = _C.device_properties(index)
    return f"{sorted(properties.items())}\n{_C.describe_device(index)}"


def foreign_functions(table: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """Decompositions and lowerings that are not torch's and not ours: an op and a hash of its function's code."""
    found = []
    for op, function in table.items():
        while isinstance(function, partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if isinstance(function, OpOverload) or (code is not None and code.co_filename.startswith(_KNOWN)):
            continue
        if code is None or function.__closure__:
            raise UnsupportedError(f"{function!r}, which compiles {op}, has no code that can be compared")
        found.append((str(op), hashlib.sha256(marshal.dumps(code)).hexdigest()))
    return sorted(found)
