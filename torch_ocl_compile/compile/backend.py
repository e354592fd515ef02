# torch_ocl_compile/compile/backend.py: the function behind backend="ocl": calls AOTAutograd and compiles its graphs.
"""AOTAutograd turns Dynamo's graph into graphs of three kinds: "inference", "forward" and "backward". Each is lowered,
compiled to a plan, and called with a list of arguments that it may empty (a "boxed" call)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from torch_ocl_compile import config
from torch_ocl_compile.compile import (
    attention_pattern,
    constant_masks,
    debug,
    flex_attention,
    gelu_pattern,
    overlaps,
    plan_store,
    progress,
    repro,
    reshaped,
    times,
)
from torch_ocl_compile.compile.bodies import PlanBody
from torch_ocl_compile.compile.boundaries import boundaries, keep_donations_from_torch, restride
from torch_ocl_compile.compile.call import eager_call, refused_call
from torch_ocl_compile.compile.float_arguments import float_arguments
from torch_ocl_compile.compile.graph import Task, compile_or_run, eager_graph
from torch_ocl_compile.compile.joint_graph import ocl_partition
from torch_ocl_compile.compile.plan import result_strides
from torch_ocl_compile.compile.stored_plan import CompiledGraph
from torch_ocl_compile.decompositions.table import LateTable
from torch_ocl_compile.errors import ConfigError
from torch_ocl_compile.fx.host_part import graph_device
from torch_ocl_compile.fx.origin import describe
from torch_ocl_compile.lowering.elementwise.random import functionalise
from torch_ocl_compile.lowering.graphs.checks import BadArguments
from torch_ocl_compile.lowering.graphs.float_arguments import floats_to_tensors
from torch_ocl_compile.lowering.graphs.lowered import Lowered

log = logging.getLogger(__name__)

Options = dict[str, Any]
MODES: dict[str, Options] = {
    "default": {},
    # No effect: in any mode, a call of a graph is one call of C++.
    "reduce-overhead": {},
    "max-autotune": {"max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}


def ocl(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Any = None, mode: str | None = None
) -> Any:
    """Compiles a Dynamo graph. `options`: options of scope "compile" in config.py. `mode`: the mode of torch.compile."""
    settings = parse_options(options, mode)
    with times.compilation():
        reshaped.forget(gm)
        attention_pattern.rewrite(gm)
        flex_attention.rewrite(gm)
        constant_masks.rewrite(gm)
        gelu_pattern.rewrite(gm)
        compiled = _compile(gm, example_inputs, settings)
    return overlaps.guarded(gm, example_inputs, compiled, lambda inputs: _compile(gm, inputs, settings))


def _compile(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Options) -> Any:
    from torch._dynamo.backends.common import aot_autograd

    compiler: dict[str, Any] = {
        kind: partial(compile_graph, kind=kind, settings=settings) for kind in ("inference", "forward", "backward")
    }
    with plan_store.lookup(gm, settings, example_inputs) as is_stored:
        if is_stored:
            compiler = {kind: plan_store.serializable(function) for kind, function in compiler.items()}
        # Each graph gets a new aot_autograd, because it stores the wrapped compilers in its own keywords.
        aot = aot_autograd(
            fw_compiler=compiler["forward"],
            bw_compiler=compiler["backward"],
            inference_compiler=compiler["inference"],
            decompositions=LateTable(),
            partition_fn=ocl_partition,
            keep_inference_input_mutations=True,
        )
        with float_arguments(gm), overlaps.views_of_bases(example_inputs):
            compiled = aot(gm, example_inputs)
    # AOTAutograd marks `compiled` as a function that takes one list, which it is not. Dynamo's minifier trusts the mark.
    getattr(compiled, "__dict__", {}).pop("_boxed_call", None)
    return compiled


def reset() -> None:
    """Drops the records of compiled graphs. torch._dynamo.reset() calls this."""
    debug.forget()


ocl.reset = reset  # type: ignore[attr-defined]
progress.watch_dynamo()


def parse_options(options: Any, mode: str | None) -> Options:
    if mode is not None and mode not in MODES:
        raise ConfigError(f"mode {mode!r} is unknown to the ocl backend; there are {', '.join(MODES)}.")
    return dict(config.compile_options({**MODES.get(mode or "default", {}), **(options or {})}))


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, settings: Options
) -> CompiledGraph:
    """Compiles one graph of AOTAutograd. A graph that cannot become a plan runs eagerly, and the reason is recorded. If
    an error is not the user's fault, its message names a program that reproduces it.
    """
    label = debug.next_label(kind)
    try:
        return compile_or_raise(gm, example_inputs, kind, settings, label)
    except Exception as error:
        repro.report(gm, kind, settings, label, error)
        raise


def compile_or_raise(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], kind: str, settings: Options, label: str
) -> CompiledGraph:
    debug.dump(label, "fx.txt", lambda: gm.print_readable(print_output=False))
    if settings.get("interpret"):
        return CompiledGraph(eager_call(gm), reason="the option interpret runs it op by op")
    restride(gm, example_inputs)
    task = Task(gm, kind, settings, label, boundaries(kind))
    if kind == "backward":
        keep_donations_from_torch()
    if graph_device(gm.graph).type == "cpu":
        reason = "none of its tensors is on an ocl device; move model and data to 'ocl'"
        eager_graph(task, reason)
        return CompiledGraph(eager_call(gm), reason=f"it runs eagerly: {reason}")
    floats_to_tensors(gm)
    if kind == "inference":
        functionalise(gm)
    try:
        body = compile_or_run(task)
    except BadArguments as error:  # Running the graph raises PyTorch's own error.
        log.info("%s is not compiled: %s", label, error)
        return CompiledGraph(refused_call(gm, describe(error.node)), reason=f"it is not compiled: {error}")
    if kind == "forward" and isinstance(body, PlanBody):  # A graph that was cut keeps the traced strides.
        report_strides(body.plan, body.lowered)
    return CompiledGraph(body.boxed(), kind=kind, body=body)


def report_strides(plan: Any, lowered: Lowered) -> None:
    """Tells AOTAutograd the strides of the saved tensors, before it compiles the backward graph."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    tokens = 0 if context.fw_metadata is None else len(context.fw_metadata.tokens)
    context.output_strides.extend(result_strides(lowered, plan)[tokens:])
