# tests/conformance/inductor.py: whether Inductor compiles a case: all but the C++ compiler, which would take hours.
"""Inductor traces, decomposes, lowers, schedules and generates the code of every graph; an op that it cannot do raises there.
The code is not built: in its place the graph of aten ops runs, so that later graphs of the case get real values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch


def unbuilt(*_: Any) -> Callable[..., None]:
    return lambda *_: None


def generate(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Any:
    """In the place of Inductor's compile_fx_inner."""
    from functorch.compile import make_boxed_func
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.compile_fx import compile_fx_inner

    kept = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    with (
        patch.object(AsyncCompile, "cpp_pybinding", unbuilt),
        patch.object(AsyncCompile, "cpp", unbuilt),
        config.patch({"force_disable_caches": True, "cpp.vec_isa_ok": True}),
    ):
        made: Any = compile_fx_inner(gm, example_inputs, **settings)
    made.current_callable = make_boxed_func(kept)
    return made


def inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, inner_compile=generate)
