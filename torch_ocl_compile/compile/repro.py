# torch_ocl_compile/compile/repro.py: writes a graph that cannot be compiled as a program of its own.
"""`write` makes <cache>/failed/<graph>/repro.py. The program needs only torch and this package; tools/repro.py runs it.
It has the graph's ops and the shapes, strides and dtypes of its arguments. The arguments' values are random, so it can
be shared.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.graph_module import _format_import_block
from torch.package.importer import sys_importer

from torch_ocl_compile.compile.debug import save_failure
from torch_ocl_compile.errors import ConfigError, OutOfMemoryError, UnsupportedError

log = logging.getLogger(__name__)

# No program is written for the user's own errors and for a full device: their messages say what to do.
NOT_REPORTED = (ConfigError, UnsupportedError, OutOfMemoryError)

TEMPLATE = '''"""{title}

torch {torch}, {device}. Run this file to see the error again.{remark}
"""

from pathlib import Path

{imports}
from torch_ocl_compile.tools import repro


{source}

ARGUMENTS = [
{arguments}
]

if __name__ == "__main__":
    repro.run(forward, ARGUMENTS, constants={constants}, kind={kind!r}, settings={settings!r})
'''
SYMBOLIC = "\nThe graph was compiled for sizes that change. This program has one set of sizes, so it may not fail."


def report(gm: torch.fx.GraphModule, kind: str, settings: Mapping[str, Any], label: str, error: Exception) -> None:
    """Writes the program and adds its path to the message of `error`. An error that happens here is only logged."""
    if isinstance(error, NOT_REPORTED):
        return
    try:
        path = write(gm, kind, settings, label, error)
    except Exception as problem:
        log.warning("no program that shows the error could be written: %s: %s", type(problem).__name__, problem)
        return
    if len(error.args) == 1 and error.args[0] == str(error):  # false for KeyError
        error.args = (f"{error.args[0]}\n  repro: python {path}",)
    else:
        log.error("%s cannot be compiled; a program that shows it: %s", label, path)


def write(gm: torch.fx.GraphModule, kind: str, settings: Mapping[str, Any], label: str, error: Exception) -> Path:
    """Writes the program and returns its path. Raises OSError where the folder cannot be written, and an error of
    torch.package for a graph with a function that cannot be imported.
    """
    code = gm.graph.python_code("self")
    places = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    constants = {name: _constant(gm, name) for name in _attributes(gm)}
    symbolic = any(_is_symbolic(value) for value in places)
    text = TEMPLATE.format(
        title=f"{type(error).__name__}: {error}".replace("\\", "\\\\").replace('"""', "'''"),
        torch=torch.__version__,
        device=_device_name(places),
        remark=SYMBOLIC if symbolic else "",
        imports=_format_import_block(code.globals, sys_importer),
        source=code.src.strip(),
        arguments="\n".join(f"    {_argument(value)}," for value in places),
        constants="Path(__file__).with_name('constants.pt')" if constants else None,
        kind=kind,
        settings=dict(settings),
    )
    name = f"{label}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return save_failure(name, {"repro.py": text}, {"constants.pt": constants} if constants else {}) / "repro.py"


def _attributes(gm: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "get_attr"]


def _constant(gm: torch.fx.GraphModule, name: str) -> torch.Tensor:
    """Returns a tensor that the graph holds. Raises UnsupportedError for anything else, such as the graphs of control
    flow.
    """
    value = getattr(gm, name, None)
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"the graph has the attribute {name}, a {type(value).__name__}")
    return value


def _is_symbolic(value: Any) -> bool:
    sizes = [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(size, torch.SymInt | torch.SymFloat) for size in sizes)


def _number(size: Any) -> Any:
    """Returns a size. For a symbol, returns the size that it stood for first."""
    return size.node.hint if isinstance(size, torch.SymInt | torch.SymFloat) else size


def _argument(value: Any) -> str:
    """Returns the text that makes an argument."""
    if isinstance(value, torch.Tensor):
        shape, strides = (tuple(_number(n) for n in numbers) for numbers in (value.shape, value.stride()))
        device = "" if str(value.device) in ("ocl", "ocl:0") else f", {str(value.device)!r}"
        return f"repro.tensor({shape}, {strides}, {value.dtype}{device})"
    return repr(_number(value))


def _device_name(places: Sequence[Any]) -> str:
    found = next((v.device for v in places if isinstance(v, torch.Tensor) and v.device.type == "ocl"), None)
    if found is None:
        return "no OpenCL device"
    module: Any = torch.get_device_module(found.type)
    properties = module.get_device_properties(found)
    return f"{properties.platform_name}, {properties.name}, driver {properties.driver}"
