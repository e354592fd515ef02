# torch_ocl_compile/eager/ctc.py: ctc_loss outside of compiled functions. torch passes the lengths as numbers.
"""A plan would hold for these lengths only. So the formulas run op by op, with the lengths in tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import torch_ocl_compile.lowering.graphs.user_kernel  # noqa: F401  (it defines ocl.ctc_paths)
from torch_ocl_compile.decompositions import ctc  # noqa: F401  (it registers what runs here)
from torch_ocl_compile.decompositions.registry import DECOMPOSITIONS


# A compiled function that breaks its graph at ctc_loss calls this, and Dynamo would trace it, and the launch of the kernel in it.
@torch._dynamo.disable  # type: ignore[untyped-decorator]
def run(name: str, *args: Any) -> Any:
    """Runs an overload of aten ("_ctc_loss.default"). Arguments that it does not take go to PyTorch, which raises its error."""
    packet, overload = name.split(".")
    target = getattr(getattr(torch.ops.aten, packet), overload)
    device = args[0].device
    made = DECOMPOSITIONS[target](*tree_map_only(torch.Tensor, lambda t: t.to(device), args))
    if made is NotImplemented:
        made = target(*tree_map_only(torch.Tensor, lambda t: t.cpu(), args))
        made = tree_map_only(torch.Tensor, lambda t: t.to(device), made)
    return made
