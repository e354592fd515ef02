# torch_ocl_compile/compile/plan.py: makes a plan of a lowered graph, with the kernel choices that were measured for its device.
from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile import _C, config
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import debug
from torch_ocl_compile.errors import OclError
from torch_ocl_compile.fx.host_part import graph_device
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.lowering.graphs.lowered import Lowered
from torch_ocl_compile.lowering.graphs.user_kernel import bound_calls
from torch_ocl_compile.tuning import table


def device_index(lowered: Lowered) -> int:
    return torch.accelerator.current_device_index() if lowered.device.index is None else lowered.device.index


def lower_for_device(gm: torch.fx.GraphModule, **settings: Any) -> Lowered:
    """Lowers a graph, as lower_module does, for the device of its tensors."""
    device = graph_device(gm.graph)
    gm.meta["cpu_units"], gm.meta["group_kernels"] = 0, False
    if device.type == torch._C._get_privateuse1_backend_name():
        index = torch.accelerator.current_device_index() if device.index is None else device.index
        properties = _C.device_properties(index)
        gm.meta["cpu_units"] = int(properties["multi_processor_count"]) if properties["is_cpu"] else 0
        family = config.get("kernel_family")
        gm.meta["group_kernels"] = family == "group" or (family == "auto" and not properties["is_cpu"])
    return lower_module(gm, **settings)


def measure_kernels(lowered: Lowered, settings: dict[str, Any]) -> None:
    """Call before make_plan. If the user asks for it, measures the problems of this graph for which no measurement is
    stored."""
    if settings.get("max_autotune"):
        # Imported here, because only mode="max-autotune" needs it.
        from torch_ocl_compile.tuning import measure

        config.configure_core()
        measure.tune_graph(lowered.graph, device_index(lowered), settings)


def start_plan(lowered: Lowered, settings: dict[str, Any], label: str, *, scheduled_at_once: bool) -> Any:
    """Begins a plan in another thread, for make_plan with the same settings. Returns None if that is impossible."""
    config.configure_core()
    index = device_index(lowered)
    table.follow(index)
    return _C.exec.start(lowered.graph, index, {**settings, "label": label}, scheduled_at_once)


def result_strides(lowered: Lowered, plan: Any) -> list[tuple[int, ...] | None]:
    """Returns the strides of each result of a graph. None: it is no result of the plan, or has symbolic strides, so that it
    keeps its traced strides."""
    strides: list[list[int]] = plan.output_strides()
    chosen: list[tuple[int, ...] | None] = []
    for result, fake in zip(lowered.recipe.results, lowered.traced, strict=False):
        known = isinstance(fake, torch.Tensor) and result.kind == "output" and len(strides[result.index]) == fake.dim()
        chosen.append(tuple(strides[result.index]) if known else None)
    return chosen


def make_plan(
    lowered: Lowered,
    settings: dict[str, Any],
    label: str,
    graph: ir.Graph | None = None,
    key: str = "",
    started: Any = None,
) -> Any:
    """Makes a plan. `settings`: options of scope "compile". `label` names the plan in dumps and records. `graph`: runs in
    place of the lowered one. `key`: equal for equal graphs only; the plan may come from the cache then, and is kept there.
    `started`: a plan that was started with these settings (compile/ahead.py).
    """
    config.configure_core()
    graph, index = graph or lowered.graph, device_index(lowered)
    table.follow(index)
    if settings.get("check"):
        # Imported here, because only the option check needs the interpreter.
        from torch_ocl_compile.compile import check

        check.install()
    try:
        calls, options = bound_calls(lowered.calls, index), {**settings, "label": label}
        return _C.exec.compile(graph, index, calls, options, key, started)
    except OclError:
        debug.dump(label, "failed_graph.txt", graph.str)
        raise
