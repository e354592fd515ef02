# torch_ocl_compile/fx/overloads.py: finds overloads of ops by name, because not every version of torch has every op.
from __future__ import annotations

import torch
from torch._ops import OpOverload, OpOverloadPacket


def overload(name: str) -> OpOverload | None:
    """Returns the overload with this name ("aten.add.Tensor"). None if this torch has no such op."""
    namespace, packet, which = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    if not isinstance(found, OpOverloadPacket):
        return None
    result = getattr(found, which, None)
    return result if isinstance(result, OpOverload) else None
