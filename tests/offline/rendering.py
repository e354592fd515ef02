# tests/offline/rendering.py: kernels of functions and modules, for a GPU with given limits. No device is needed.
"""Graphs are traced on CPU tensors, and nothing is computed: a traced graph returns zeros."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from tests.golden_text import whole
from tests.no_device import scheduling
from tests.offline.compilers import CHIPS, Limits
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import attention_pattern
from torch_ocl_compile.compile.joint_graph import ocl_partition
from torch_ocl_compile.lowering.elementwise.random import functionalise
from torch_ocl_compile.lowering.graphs.graph import lower_module

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# What every GPU of the last ten years has. One set for all chips: a kernel that fits these limits runs on each of them.
# AMD's drivers take 1024 bytes of arguments, Intel's 2048.
CAPS: dict[str, Any] = {
    **scheduling.CAPS["gpu"],
    "max_group_size": 256,
    "local_bytes": 32 * 1024,
    "fp64": False,
    "max_kernel_arg_bytes": 1024,
}
# Limits of larger GPUs, for kernels that need more.
LARGE = {**CAPS, "max_group_size": 1024, "local_bytes": 64 * 1024, "fp64": True}
LIMITS = sorted({chip.limits for chip in CHIPS.values()})
GENERATED = "generated"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True)
class Kernel:
    """The text of a kernel, and which row of the tables it belongs to."""

    row: str  # File and tile of a hand-written kernel: "gemm/group 128x64"; of others "generated KIND".
    type: str  # Of the operands: a key of TYPES.
    limits: Limits  # It is for chips with these.
    text: str = field(repr=False)
    source: str = field(compare=False)  # A problem or network that has it.

    def chips(self, among: Iterable[str]) -> list[str]:
        return [chip for chip in among if CHIPS[chip].limits == self.limits]

    @property
    def generated(self) -> bool:
        return self.row.startswith(GENERATED)


def row_of(kind: str, text: str) -> str:
    """Returns the row of a kernel: what it is, and the tile that the macros at its begin name."""
    files = re.findall(r"^// kernels/((?!base/|tensor_core/)\w+/\w+)\.cl:", text, re.MULTILINE)
    if not files:
        return f"{GENERATED} {kind}"
    macros = dict(re.findall(r"^#define (\w+) (\S+)$", text.partition("\n//")[0], re.MULTILINE))
    row = files[-1]
    if "ITEM_M" in macros:
        row += f" {macros['TILE_M']}x{macros['TILE_N']} by {macros['ITEM_M']}x{macros['ITEM_N']}"
    elif "TILE_R" in macros:
        row += f" {macros['TILE_R']}x{macros['TILE_C']}"
    if macros.get("FLAT") == "1":
        row += " flat"
    if "DEPTH" in macros and files[-1].startswith("attention/"):
        row += f" heads of {macros['DEPTH']}"
    parts = {
        "DATA_GRADIENT": ("forward", "data gradient"),
        "OPERATION": ("forward", "data gradient", "weight gradient"),
        "PASS": ("forward", "query gradient", "key and value gradient"),
    }
    for macro, names in parts.items():
        if macro in macros:
            row += f", {names[int(macros[macro])]}"
    return row


def _traced(kind: str, graphs: list[ir.Graph], gm: torch.fx.GraphModule) -> Any:
    graphs.append(lower_module(gm).graph)
    (output,) = gm.graph.find_nodes(op="output")

    def zeros(node: Any) -> Any:
        value = node.meta["val"] if isinstance(node, torch.fx.Node) else node
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()

    def run(args: list[Any]) -> list[Any]:
        args.clear()
        return [zeros(node) for node in output.args[0]]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """scaled_dot_product_attention, as the op that it becomes on the device. On CPU tensors it would become another one."""
    settings = {"p": dropout_p, "causal": is_causal, "scale": scale}
    return torch.ops.ocl.attention(query, key, value, attn_mask, None, **settings)[0]


def _partition(gm: torch.fx.GraphModule, *rest: Any, **settings: Any) -> Any:
    functionalise(gm, "cpu")
    return ocl_partition(gm, *rest, **settings)


def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> list[ir.Graph]:
    """Returns the graphs of a call: one for inference, or forward and backward if the result needs gradients."""
    graphs: list[ir.Graph] = []

    def compiler(kind: str, gm: torch.fx.GraphModule, _: Any) -> Any:
        if kind == "inference":
            functionalise(gm, "cpu")
        return _traced(kind, graphs, gm)

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        attention_pattern.rewrite(gm, "cpu")
        return scheduling.traced(gm, example_inputs, compiler, _partition)

    torch._dynamo.reset()
    # Torch keeps this list. If it were made below, later tests in this process would not know the function itself.
    torch.overrides.get_overridable_functions()
    with mock.patch.object(F, "scaled_dot_product_attention", attention):
        result = torch.compile(function, backend=backend, dynamic=False)(*inputs)
        if result.requires_grad:
            result.float().sum().backward()
    return graphs


def limited(caps: dict[str, Any], limits: Limits) -> dict[str, Any]:
    return caps | dict(zip(("item_registers", "thread_items"), limits, strict=True))


def kernels(graph: ir.Graph, type: str, source: str, caps: dict[str, Any] = CAPS) -> Iterator[Kernel]:
    """Yields the kernels of a graph."""
    for limits in LIMITS:
        for kernel in _C.exec.render(graph, limited(caps, limits), True)["kernels"]:
            yield Kernel(row_of(kernel["kind"], kernel["text"]), type, limits, kernel["text"], source)


def with_every_choice(graph: ir.Graph, type: str, source: str, caps: dict[str, Any] = CAPS) -> Iterator[Kernel]:
    """Yields the hand-written kernels of a graph, each with every tile and number of slices that tuning would try."""
    for limits in LIMITS:
        given = limited(caps, limits)
        for problem, alone, candidates in _C.exec.tuning_cases_for(graph, given):
            for choice, _ in candidates:
                for kernel in _C.exec.render(alone, given, True, {problem: choice})["kernels"]:
                    found = Kernel(row_of(kernel["kind"], kernel["text"]), type, limits, kernel["text"], source)
                    if not found.generated:
                        yield found


def goldens() -> Iterator[Kernel]:
    """Yields the kernels of tests/golden that a GPU would use."""
    for path in sorted(GOLDEN.glob("*.gpu.cl")):
        head, *parts = re.split(r"^// (\w+), groups .*\n", whole(path.read_text(encoding="utf-8")), flags=re.MULTILINE)
        if head or not parts:
            raise ValueError(f"{path} does not begin with the line in front of a kernel")
        for kind, text in zip(parts[::2], parts[1::2], strict=True):
            yield from (Kernel(row_of(kind, text), "fp32", limits, text, path.name) for limits in LIMITS)
