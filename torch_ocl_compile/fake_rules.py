# torch_ocl_compile/fake_rules.py: what traced ops give on the device, where torch's own rule for private devices is not ours.
"""torch takes the convolutions of every private device to give contiguous results. Ours keep channels-last: the results have
the layout that they have on the CPU, and no kernel scatters its stores."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)


def register(fake_impls: ModuleType) -> None:
    """`fake_impls`: torch._subclasses.fake_impls, whose rules are asked in order until one answers."""
    rule = fake_impls.op_implementations_dict[aten.convolution.default]

    def convolution(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}
        x, w = given["input"], given["weight"]
        if x.device.type != "ocl":
            return NotImplemented
        results = rule(mode, func, *args, **kwargs)
        with mode:
            if func is aten.convolution.default:
                return in_layout_of(results, x, w)
            gx, gw, gb = results
            return in_layout_of(gx, x, w), in_layout_of(gw, w), gb

    fake_impls.op_implementations_checks.insert(0, (CONVOLUTIONS.__contains__, convolution))


def in_layout_of(result: torch.Tensor | None, *operands: torch.Tensor) -> torch.Tensor | None:
    """Channels-last if an operand is, as torch tells it from strides."""
    for operand in operands:
        layout = suggest_memory_format(operand)
        if result is not None and layout != torch.contiguous_format:
            return result.to(memory_format=layout)
    return result
