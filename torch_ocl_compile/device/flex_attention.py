# torch_ocl_compile/device/flex_attention.py: lets FlexAttention take ocl tensors.
"""torch.nn.attention.flex_attention has a list of devices, and refuses tensors of others. What it computes is the same on
all of them. On ocl, outside of compiled functions, it runs as the ops of its definition. In compiled functions,
compile/flex_attention.py replaces it. Under autocast, PyTorch has a rule for each device it knows; ours casts like those."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch


def register(module: ModuleType) -> None:
    """Changes torch.nn.attention.flex_attention, which has just been imported."""
    refuse = getattr(module, "_validate_device", None)
    if refuse is None:
        return

    @functools.wraps(refuse)
    def validate(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "ocl":
            refuse(query, key, value)

    module.__dict__["_validate_device"] = validate
    op: Any = getattr(module, "flex_attention_hop", None)
    if op is not None and AUTOCAST not in op.py_kernels:
        op.py_impl(AUTOCAST)(functools.partial(_cast, op))


AUTOCAST: Any = torch._C.DispatchKey.__members__["AutocastPrivateUse1"]


def _cast(op: Any, query: Any, key: Any, value: Any, *rest: Any, **keywords: Any) -> Any:
    """Calls the op with queries, keys and values in the type of autocast. float64 stays."""
    dtype = torch.get_autocast_dtype(query.device.type)
    operands = [x if x.dtype is torch.float64 else x.to(dtype) for x in (query, key, value)]
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(AUTOCAST)):
        return op(*operands, *rest, **keywords)
