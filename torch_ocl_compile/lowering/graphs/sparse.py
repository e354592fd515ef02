# torch_ocl_compile/lowering/graphs/sparse.py: sparse tensors in a graph. No plan has them, so the graph is cut where they occur.
from __future__ import annotations

import torch
from torch._ops import OpOverload

from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.fx.host_part import tensors_of


def reads_or_makes_sparse(node: torch.fx.Node) -> bool:
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    return any(t.layout is not torch.strided for value in values for t in tensors_of(value))


def refuse_sparse(node: torch.fx.Node) -> None:
    """UnsupportedError if the node reads or makes a sparse tensor. It then runs as outside of compiled functions."""
    if isinstance(node.target, OpOverload) and reads_or_makes_sparse(node):
        raise UnsupportedError(f"{node.target} reads or makes a sparse tensor, which no plan can hold")
