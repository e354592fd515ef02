# torch_ocl_compile/device/flex_attention.py: lets FlexAttention take ocl tensors.
"""torch.nn.attention.flex_attention has a list of devices, and refuses tensors of others. What it computes is the same on
all of them. On ocl, it runs as the ops of its definition."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


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
