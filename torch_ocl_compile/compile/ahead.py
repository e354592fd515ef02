# torch_ocl_compile/compile/ahead.py: builds the kernels of a backward graph while those of its forward graph are built.
"""AOTAutograd asks for the backward graph in the first call of backward(). But the graph is known when the forward graph is
compiled. So it is lowered a first time then, and threads of the core schedule it and build its kernels. Backward's compilation
takes the plan if it lowers to the same graph. What goes wrong here is left to that compilation.
"""

from __future__ import annotations

import copy
import itertools
import logging
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from torch_ocl_compile import _C
from torch_ocl_compile.compile import cache_key
from torch_ocl_compile.compile.boundaries import boundaries, restride
from torch_ocl_compile.compile.plan import lower_for_device, result_strides, start_plan
from torch_ocl_compile.lowering.graphs.float_arguments import floats_to_tensors
from torch_ocl_compile.lowering.graphs.lowered import Lowered

log = logging.getLogger(__name__)

_KEY = "ocl_ahead"  # in the meta of both graphs: their number
_NODES_PER_WORKER = 8
_numbers = itertools.count()
_backwards: weakref.WeakValueDictionary[int, GraphModule] = weakref.WeakValueDictionary()
_started: dict[int, tuple[Any, dict[str, Any]]] = {}  # number -> the plan of the backward graph, and its settings


def expect_kernels(gm: GraphModule, inputs: Sequence[Any]) -> None:
    """Starts build workers for a graph of Dynamo that the cache does not have. It is traced before it has kernels."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and x.device.type == "ocl"]
    count = len(gm.graph.nodes) // _NODES_PER_WORKER
    if tensors and count:
        _C.exec.start_workers(cache_key.devices(tensors)[0], count)


def note(forward: GraphModule, backward: GraphModule) -> None:
    """Tells that `backward` is the backward graph of `forward`."""
    number = next(_numbers)
    forward.meta[_KEY] = backward.meta[_KEY] = number
    _backwards[number] = backward
    weakref.finalize(backward, _started.pop, number, None).atexit = False


def start(gm: GraphModule, lowered: Lowered, settings: dict[str, Any], label: str) -> Any:
    """Starts the plan of a forward graph, then that of its backward graph. Returns the first, or None."""
    backward = _backwards.get(gm.meta.get(_KEY, -1))
    # Kernels of the backward graph are measured when it is compiled.
    if backward is None or settings.get("max_autotune"):
        return None
    plan = start_plan(lowered, settings, label, scheduled_at_once=True)
    if plan is None:
        return None
    try:
        late = _lower_backward(backward, lowered, plan)
        started = start_plan(late, settings, f"backward graph of {label}", scheduled_at_once=False)
        _started[gm.meta[_KEY]] = started, settings
    except Exception as error:
        log.debug("the backward graph of %s is compiled when it is called: %s", label, error)
    return plan


def take_backward(gm: GraphModule, lowered: Lowered, settings: dict[str, Any]) -> Any:
    """Returns the plan of a backward graph that was started, or None. A caller that keeps the autograd graph
    (retain_graph=True) gets none, because the plan may overwrite saved tensors."""
    plan, given = _started.pop(gm.meta.get(_KEY, -1), (None, settings))
    return plan if plan is not None and given == settings and plan.fits(lowered.graph) else None


def _lower_backward(backward: GraphModule, forward: Lowered, plan: Any) -> Lowered:
    """Lowers a copy of the backward graph, for saved tensors with the strides that the forward graph chose."""
    metadata: Any = torch._guards.TracingContext.get().fw_metadata
    if metadata is None or metadata.num_symints_saved_for_bw:
        raise ValueError("AOTAutograd compiles it together with the forward graph")
    strides = result_strides(forward, plan)[len(metadata.tokens) :][metadata.tensors_saved_for_backwards_slice]
    values = [node.meta["val"] for node in backward.graph.nodes if node.op == "placeholder"]
    with torch.no_grad():
        for i, (value, chosen) in enumerate(zip(values, strides, strict=False)):
            if isinstance(value, torch.Tensor) and chosen is not None and chosen != value.stride():
                values[i] = value.as_strided(value.shape, chosen)
        with unset_fake_temporarily():
            copied = copy.deepcopy(backward)
        restride(copied, values)
        floats_to_tensors(copied)
        # An op without kernels is an error here, because the compilation counts and logs it.
        return lower_for_device(copied, **boundaries("backward"), fallback="error")
