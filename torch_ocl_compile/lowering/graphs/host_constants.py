# torch_ocl_compile/lowering/graphs/host_constants.py: numbers on the CPU that a graph on the device reads.
from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torch_ocl_compile.fx.host_part import tensors_of
from torch_ocl_compile.lowering.core.complex_value import real_dtype
from torch_ocl_compile.lowering.core.context import Context

aten = torch.ops.aten

CPU_CONSTANTS = {aten.full.default, aten.scalar_tensor.default, aten.lift_fresh_copy.default}


def host_constant(gm: torch.fx.GraphModule, c: Context, node: torch.fx.Node) -> Any:
    """Returns the value of a node on the CPU that is a known number. None for others."""
    fake = node.meta["val"]
    if node.op == "get_attr" or node.target is aten.lift_fresh_copy.default:
        source = node if node.op == "get_attr" else node.args[0]
        if isinstance(source, torch.fx.Node) and source.op == "get_attr":
            tensor = attrgetter(str(source.target))(gm)
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 0 and type(tensor) is torch.Tensor:
                with unset_fake_temporarily():  # The tensor was made inside the function: it is not fake.
                    number = tensor.item()
                return c.of_dtype(number, tensor.dtype)
    if node.target in CPU_CONSTANTS and fake.dim() == 0:
        value = node.args[-1]
        if isinstance(value, (bool, int, float, complex)):
            return c.of_dtype(value, fake.dtype)
    return None


def packed_dtype(node: torch.fx.Node) -> torch.dtype:
    """Returns float32 for packed float64 numbers unless a result on the device needs float64: few devices support it."""
    dtype: torch.dtype = node.meta["val"].dtype
    if dtype is not torch.float64:
        return dtype
    wide = any(
        real_dtype(t.dtype) is dtype and t.device.type != "cpu"
        for u in node.users
        for t in tensors_of(u.meta.get("val"))
    )
    return dtype if wide else torch.float32
