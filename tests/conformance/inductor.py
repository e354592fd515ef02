# tests/conformance/inductor.py: finds which parts of a case Inductor compiles, without running the C++ compiler.
"""Inductor traces, decomposes, lowers, schedules and generates the code of every graph.

An op that it cannot compile is called from the code, for example as `torch.ops.aten.sort.stable(...)`. Matrix
products and convolutions of libraries (`extern_kernels.mm`, mkldnn) count as compiled. The code is not built, which
would take hours; the graph of aten ops runs instead, so that later graphs get real values.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch

# A call of an op in generated code. SEEDS is the call that draws seeds of random numbers; it is not counted.
CALL = re.compile(
    r"^(?!\s*#).*?(?:torch\.ops\.|\b(?=aten\.))((?!mkl|onednn|quantized|mkldnn)\w+\.(?:\w+\.)*\w+)\(", re.MULTILINE
)
SEEDS = "aten.randint.low_out"

_calls: Counter[str] = Counter()
_graphs = 0


def graphs() -> int:
    """Returns how many graphs have been compiled."""
    return _graphs


def uncompiled() -> dict[str, int]:
    """Counts what was not compiled, over all graphs: ops that the generated code calls, and graph breaks."""
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return dict(_calls) | ({"graph break": breaks} if breaks else {})


def unbuilt(*_: Any) -> Callable[..., None]:
    return lambda *_: None


def generate(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Any:
    """Replaces Inductor's compile_fx_inner: generates the code, counts its calls, and runs the aten graph instead."""
    global _graphs
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
    _graphs += 1
    _calls.update(name for name in CALL.findall(made.source_code) if name != SEEDS)
    made.current_callable = make_boxed_func(kept)
    return made


def inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, inner_compile=generate)
