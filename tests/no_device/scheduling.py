# tests/no_device/scheduling.py: fixed device capabilities, and a torch.compile backend that collects lowered graphs.
"""For test_schedule.py, test_golden.py and others. No device is needed: graphs are traced on CPU tensors, and kernels
are generated for these capabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile.call import plan_call
from torch_ocl_compile.compile.joint_graph import ocl_partition
from torch_ocl_compile.decompositions.table import ocl_decomp_table
from torch_ocl_compile.lowering.graphs.graph import lower_module
from torch_ocl_compile.reference.interpreter import run_graph

Calls = list[Callable[..., Any]]

_CPU: dict[str, Any] = {"is_cpu": True, "units": 2, "max_group_size": 4096, "fp64": True, "local_bytes": 32768}
CAPS: dict[str, dict[str, Any]] = {
    "cpu16": {**_CPU, "vector_floats": 16},
    "cpu8": {**_CPU, "vector_floats": 8, "units": 4},
    "cpu4": {**_CPU, "vector_floats": 4, "units": 8},
    "gpu": {
        "is_cpu": False, "vector_floats": 4, "units": 32, "local_bytes": 48 * 1024, "max_group_size": 1024,
        "fp64": True,
    },
}  # fmt: skip
CAPS["words"] = CAPS["cpu16"] | {"kernels": "gemm_pairs_item,gemm_dot_pairs_item"}
CAPS["warpgroup"] = CAPS["gpu"] | {"units": 132, "kept_output_bytes": 0, "kernels": "warpgroup"}
CAPS["warp"] = CAPS["gpu"] | {"units": 132, "kept_output_bytes": 0, "kernels": "warp"}
CAPS["matrix"] = CAPS["gpu"] | {"units": 96, "kernels": "subgroup_matrix:bf16,subgroup_matrix:fp16", "matrix": "wmma11"}


def render(graph: ir.Graph, caps: str, fuse: bool = True) -> dict[str, Any]:
    """Returns the schedule and the kernels of a graph. Every pass verifies the graph."""
    rendered: dict[str, Any] = _C.exec.render(graph, CAPS[caps], fuse)
    return rendered


def launch_order(rendered: dict[str, Any]) -> list[int]:
    """Returns the nodes in the order of their launches. What templates read copies of may serve several groups."""
    return list(dict.fromkeys(node for group in rendered["groups"] for node in group))


@dataclass
class Seen:
    """A lowered graph, and copies of the arguments of its first call."""

    kind: str
    graph: ir.Graph
    calls: Calls
    args: list[Any]


def copied(args: list[Any]) -> list[Any]:
    """Returns copies of the tensors with the same strides."""

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        storage = torch.empty(0, dtype=x.dtype).set_(x.detach().untyped_storage()).clone()  # type: ignore[call-overload]
        return storage.as_strided(x.shape, x.stride(), x.storage_offset())

    return [copy(x) for x in args]


class _Plan:
    """Runs the unscheduled graph in the interpreter, and appends it to `seen` at its first call."""

    def __init__(self, kind: str, graph: ir.Graph, calls: Calls, seen: list[Seen]) -> None:
        self.kind, self.graph, self.calls, self.seen, self.called = kind, graph, calls, seen, False

    def run(self, args: list[Any]) -> list[torch.Tensor]:
        if not self.called:
            self.called = True
            self.seen.append(Seen(self.kind, self.graph, self.calls, copied(args)))
        return run_graph(self.graph, args, self.calls)


def traced(
    gm: torch.fx.GraphModule,
    inputs: Any,
    compiler: Callable[[str, torch.fx.GraphModule, Any], Any],
    partition: Any = ocl_partition,
) -> Any:
    """Traces a graph of Dynamo's as the backend does. `compiler` gets the kind of each graph and the graph."""
    return aot_autograd(
        fw_compiler=partial(compiler, "forward"),
        bw_compiler=partial(compiler, "backward"),
        inference_compiler=partial(compiler, "inference"),
        decompositions=ocl_decomp_table(),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )(gm, inputs)


def collecting(
    function: Callable[..., Any], seen: list[Seen], group_kernels: bool = False, **settings: Any
) -> Callable[..., Any]:
    """Compiles `function`. Each of its graphs is appended to `seen` at its first call, with its arguments. `group_kernels`: see
    Context."""

    def compiler(kind: str, gm: torch.fx.GraphModule, _: Any) -> Any:
        gm.meta["group_kernels"] = group_kernels
        lowered = lower_module(gm)
        return plan_call(lowered, _Plan(kind, lowered.graph, lowered.calls, seen))

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return traced(gm, inputs, compiler)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, **settings)
    compiled.backend = backend  # type: ignore[attr-defined]
    return compiled
