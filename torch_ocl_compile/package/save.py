# torch_ocl_compile/package/save.py: exports the methods of a model and writes them to a package.
from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.package import binaries
from torch_ocl_compile.package.export import Exported, MethodRows
from torch_ocl_compile.package.refusals import naming
from torch_ocl_compile.package.writer import Weights, write


@dataclass
class Method:
    """One function of a package: a module, and arguments with which torch.export traces it.

    `module`: an nn.Module, or an ExportedProgram, which needs no arguments. `dynamic_shapes`: as in torch.export.export.
    Modules of several methods may share weights and buffers: the package has each of them once."""

    module: torch.nn.Module | ExportedProgram
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None


def save(
    path: str | os.PathLike[str],
    model: torch.nn.Module | ExportedProgram | Mapping[str, Method],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    devices: Sequence[str] = (),
) -> None:
    """Writes a model to a package, for inference.

    A module is exported as the method "forward" with `args`, `kwargs` and `dynamic_shapes`, as by torch.export.export. A mapping
    gives several methods their names. A buffer that a method writes is state: it stays on the device between calls. `devices`:
    for each of these OpenCL devices ("0", or a part of its name), the package also gets built kernels.

    UnsupportedError if a part of the model has no kernels. ConfigError if there is nothing to trace. The file is replaced only
    when everything has succeeded."""
    methods = model if isinstance(model, Mapping) else {"forward": Method(model, args, kwargs or {}, dynamic_shapes)}
    if not methods:
        raise ConfigError("a package needs at least one method")
    weights = Weights()
    with warnings.catch_warnings():
        # torch.export copies specs of its own in a way that torch itself deprecates.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        exported = [_export(name, method, weights) for name, method in methods.items()]
    rows = [_rows(method) for method in exported]
    target = Path(path)
    unfinished = target.with_name(target.name + f".{os.getpid()}.part")
    try:
        write(unfinished, rows, weights)
        for device in devices:
            binaries.add(unfinished, device)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _export(name: str, method: Method, weights: Weights) -> Exported:
    module = method.module
    with naming(name):
        if not isinstance(module, ExportedProgram):
            if any(part.training and not any(part.children()) for part in module.modules()):
                raise ConfigError("the model is in training mode\n  do: model.eval()")
            with torch.no_grad():
                shapes = method.dynamic_shapes
                module = torch.export.export(module, method.args, dict(method.kwargs), dynamic_shapes=shapes)
        return Exported(name, module, torch.device("ocl", 0), weights)


def _rows(method: Exported) -> MethodRows:
    with naming(method.made.name):
        return method.rows()
