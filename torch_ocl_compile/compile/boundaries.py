# torch_ocl_compile/compile/boundaries.py: what AOTAutograd knows of the arguments and results of a graph.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def restride(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Gives the placeholders the tensors of `example_inputs`. A saved tensor has the strides that the forward graph
    chose. AOTAutograd updates them in the inputs but not in the nodes."""
    for node, fake in zip((n for n in gm.graph.nodes if n.op == "placeholder"), example_inputs, strict=True):
        if isinstance(fake, torch.Tensor):
            node.meta["val"] = fake


def keep_donations_from_torch() -> None:
    """Lets later calls retain the autograd graph, which torch forbids if backward overwrites what was saved. The compiled graph
    has a second plan for them."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def boundaries(kind: str) -> dict[str, Any]:
    """Returns what AOTAutograd knows of a graph: the positions of parameters and donated inputs, results that are views
    of arguments, and the position at which saved tensors begin.
    """
    from torch._functorch._aot_autograd.schemas import OutputType

    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return {}
    # Tokens belong to ops with effects. They are first among inputs and results, but the metadata does not count them.
    tokens = len(metadata.tokens)
    if kind == "backward":
        donated = list(metadata.bw_donated_idxs or ()) if not metadata.num_backward_tokens else []
        # Gradients become .grad of several tensors, and later calls add to them in place, so each gradient
        # needs memory of its own.
        return {"donated": donated, "separate_views": True}
    # The first results are the arguments that AOTAutograd writes back itself. The results of the user follow.
    written = metadata.mutated_inp_runtime_indices
    first = tokens + len(written)
    aliases = [
        first + i for i, info in enumerate(metadata.output_info) if info.output_type is OutputType.alias_of_input
    ]
    found: dict[str, Any] = {
        "parameters": [tokens + i for i in metadata.static_input_indices or ()],
        "aliases": aliases,
        "written_back": {tokens + k: tokens + i for k, i in enumerate(written)},
    }
    if kind == "forward":
        found["saved_from"] = tokens + metadata.num_forward
    return found
