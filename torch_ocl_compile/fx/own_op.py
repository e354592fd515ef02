# torch_ocl_compile/fx/own_op.py: defines the ops of our own, without what computes them, for modules that start-up imports.
from __future__ import annotations

from typing import Any

import torch

LIBRARY = torch.library.Library("ocl", "FRAGMENT")


def own_op(schema: str, eager: Any, fake: Any) -> None:
    """Defines an op ocl::NAME, by what computes it outside of plans and what makes its results without contents."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ocl::{name}", fake, lib=LIBRARY)
