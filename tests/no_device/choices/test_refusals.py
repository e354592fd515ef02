# tests/no_device/choices/test_refusals.py: each product and convolution of ten networks says why no faster kernel took it.
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

from tests.no_device.scheduling import CAPS, render
from tests.offline.networks import NETWORKS, graphs_of
from tests.offline.rendering import TYPES, trace
from torch_ocl_compile import _C
from torch_ocl_compile._C import ir

# What a reason may name besides a number: a property of the node or of the device.
PROPERTY = re.compile(
    r"\d|known only at run time|operands are \w+ and \w+|does not multiply \w+|lacks the matrix instructions|is disabled"
)
PLAIN = (("gpt", "bf16"),)  # What a plain run takes.


def rows_for(node: ir.Node, cpu: bool) -> list[str]:
    """Returns the hand-written kernels for the operation of a node, in the order in which they are asked."""
    gradient = False
    if node.kind == "contract":
        operations = {"gemm", "gemm_packed"}
    elif node.kind == "convolve":
        operations = {"conv_weight" if node.convolve.kind == ir.ConvolveKind.kWeight else "conv"}
    else:
        if node.attention.kind == ir.AttentionKind.kGradients:
            return ["attention_joint_gradient_warpgroup"]
        gradient = node.attention.kind != ir.AttentionKind.kForward
        operations = {"attention", "attention_gradient"} if gradient else {"attention"}
    return [
        row["name"]
        for row in _C.exec.kernels()
        if row["offered"]
        and row["operation"] in operations
        and (row["level"] == "item") == cpu
        # The portable kernels of attention also compute its gradients.
        and not (gradient and row["operation"] == "attention" and row["level"] not in ("item", "group"))
    ]


def faults(graph: ir.Graph, rendered: dict[str, Any], cpu: bool) -> list[str]:
    """Returns what is wrong with the refusals of a graph after scheduling."""
    found: list[str] = []
    wanted = [node for node in graph.nodes if node.kind in ("contract", "convolve", "attention")]
    everything = {tuple(rows_for(node, cpu)) for node in wanted}
    chosen: list[str] = []
    joined = 0  # Nodes that share their kernel with another one.
    for node in rendered["graph"].nodes:
        for line in node.refused:
            reason = line.partition(": refused, ")[2]
            if len(reason.split()) < 3 or not PROPERTY.search(reason):
                found.append(f"{node.origin.op}: {line!r} is no reason")
        names = [name for line in node.refused for name in line.partition(":")[0].split(", ")]
        if node.kind in ("contract", "convolve", "attention"):
            rows = rows_for(node, cpu)
            everything.add(tuple(rows))
            joined += node.attention.kind == ir.AttentionKind.kGradients
            if names != rows[: len(names)] or len(names) == len(rows):
                found.append(f"{node.origin.op}: {names} refused, of {rows}")
            else:
                chosen.append(rows[len(names)])
        elif names:
            chosen.append("no")
            if tuple(names) not in everything:
                found.append(f"{node.origin.op}: {names} refused, and generated loops compute it")
    logged = [words[1].split()[0] for line in rendered["log"] if len(words := line.split(": ")) > 1]
    logged = [word for word in logged if word == "no" or any(word in rows for rows in everything)]
    sums = sum(line.endswith("because the product has few rows") for line in rendered["log"])
    if Counter(logged) != Counter(chosen) or len(chosen) + joined + sums != len(wanted):
        found.append(f"{len(wanted)} nodes, log {Counter(logged)}, refusals {Counter(chosen)}")
    return found


def small() -> tuple[nn.Module, torch.Tensor]:
    """Plain, grouped and depthwise convolutions, one with more filters than channels, and products of odd sizes."""
    convolutions = [
        nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 5, 2, 3, groups=32), nn.Conv2d(32, 64, 3, groups=32),
        nn.Conv2d(64, 48, 3, 1, 3, groups=2), nn.Conv2d(48, 64, 3, padding=1),
    ]  # fmt: skip
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(5184, 7), nn.Linear(7, 30)), torch.randn(4, 3, 12, 12)


def assert_all_say_why(graphs: list[ir.Graph], some: Iterable[str]) -> None:
    for graph in graphs:
        for caps in some:
            assert faults(graph, render(graph, caps), CAPS[caps]["is_cpu"]) == [], caps


@pytest.mark.parametrize("type", TYPES)
def test_a_small_network_says_why_no_faster_kernel_took_a_node(type: str) -> None:
    model, x = small()
    assert_all_say_why(trace(model.to(TYPES[type]), x.to(TYPES[type])), CAPS)


def test_missing_and_wrong_refusals_are_found() -> None:
    (graph, *_) = trace(*small())
    rendered = render(graph, "gpu")
    found = faults(graph, rendered, cpu=True)
    # The first kernel of the table takes the depthwise convolution, so this one of the seven nodes has no refusals.
    assert sum("refused, of" in fault for fault in found) == 6 and "7 nodes" in found[-1], found
    other = faults(graph, render(graph, "warp") | {"log": rendered["log"]}, cpu=False)
    assert len(other) == 1 and "7 nodes" in other[0], other


@pytest.mark.parametrize(
    "name, type",
    [
        pytest.param(name, type, marks=[pytest.mark.needs("sweep")] * ((name, type) not in PLAIN))
        for name in NETWORKS
        for type in ("fp32", "bf16")
    ],
)
def test_networks_say_why_no_faster_kernel_took_a_node(name: str, type: str, sweep: bool) -> None:
    assert_all_say_why(graphs_of(name, type), CAPS if sweep else ("cpu16", "gpu", "warpgroup", "matrix"))
