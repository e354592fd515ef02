# tests/device/ops/nodes.py: runs a graph of one node.
from __future__ import annotations

from collections.abc import Callable

import torch

from torch_ocl_compile import _C, config
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import check
from torch_ocl_compile.dtypes import IR_DTYPES


def run_checked(
    device: str,
    family: str,
    operands: list[torch.Tensor],
    node: Callable[[ir.Builder, list[ir.Value]], list[ir.Value]],
) -> list[torch.Tensor]:
    """Returns the results of the node that `node` builds, with the option check, which compares with its definition."""
    builder = ir.Builder()
    given = [
        builder.input(IR_DTYPES[x.dtype], [ir.IndexExpr(s) for s in x.shape], [ir.IndexExpr(s) for s in x.stride()])
        for x in operands
    ]
    for result in node(builder, given):
        builder.output(result, [])
    config.configure_core()
    check.install()
    options = {**config.compile_options(None), "kernel_family": family, "check": True, "verify": True}
    plan = _C.exec.compile(builder.finish(), torch.device(device).index, [], options)
    return plan.run([torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x) for x in operands])
