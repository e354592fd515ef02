# torch_ocl_compile/device/default_backend.py: torch.compile without backend= on ocl tensors.
"""The default backend of torch.compile, Inductor, has no code for ocl. Libraries call torch.compile without `backend=` in their own
code, where a user cannot add it. So a graph with ocl tensors goes on to the ocl backend, with one warning per process."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.origin import user_frame

_warned = False


def register(module: ModuleType) -> None:
    """Changes torch._inductor.compile_fx, which has just been imported: the module's function of the same name is the one entry
    through which Dynamo, torch._inductor.compile and AOTInductor give it a graph."""
    inductor = module.__dict__["compile_fx"]

    @functools.wraps(inductor)
    def compile_fx(model_: Any, example_inputs_: Sequence[Any], *args: Any, **keywords: Any) -> Any:
        if not _has_ocl_tensors(model_, example_inputs_):
            return inductor(model_, example_inputs_, *args, **keywords)
        return _hand_over(module, model_, example_inputs_, keywords.get("config_patches") or {})

    module.__dict__["compile_fx"] = compile_fx


def _has_ocl_tensors(model: Any, inputs: Sequence[Any]) -> bool:
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    values = [list(inputs), *(node.meta.get("example_value", node.meta.get("val")) for node in nodes)]
    return any(isinstance(v, torch.Tensor) and v.device.type == "ocl" for v in tree_leaves(values))


def _hand_over(module: ModuleType, model: Any, inputs: Sequence[Any], patches: dict[str, Any]) -> Any:
    global _warned
    if module.__dict__["V"].aot_compilation:
        raise UnsupportedError(
            "AOTInductor makes no packages of models on an ocl device.\n"
            "  do: torch_ocl_compile.package.save() makes a file that runs on ocl devices without PyTorch"
        )
    from torch_ocl_compile.compile.backend import ocl

    if not _warned:
        _warned = True
        warnings.warn(
            "Inductor, the default backend of torch.compile, has no code for ocl devices, so the ocl backend compiles this graph. "
            'To choose it and its options: torch.compile(..., backend="ocl")',
            stacklevel=user_frame()[1],
        )
    return ocl(model, inputs, mode="max-autotune" if patches.get("max_autotune") else None)
