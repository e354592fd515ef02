# benchmarks/harness/layer_times.py: the time of one step of a side by kind of layer.
"""The rows are convolutions by filter size, matrix products, the rest of the operations (norms, activations, pools, loss,
optimizer, packing), and the host: the time of the step in which no operation runs. Together they are the time of the step.

An operation of the CPU is timed by torch.profiler, where it includes the call of the operator. torch.profiler times
CUDA's kernels, torch.ocl.record those of ocl. A kernel of ocl belongs to the convolution with the same number of
multiply-adds. ocl fuses activations and residual additions into convolutions, so their time is in that row.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from benchmarks.harness.side import Side

REST, PRODUCTS, HOST = "the rest", "matrix products", "host"
Times = dict[str, float]  # Row of the table -> milliseconds of one step.
FORWARD = (
    "aten::mkldnn_convolution",
    "aten::cudnn_convolution",
    "aten::_slow_conv2d_forward",
    "aten::_conv_depthwise2d",
)
CONVOLUTIONS = ("conv_forward", "conv_data", "conv_weight", "winograd", "depthwise")  # kinds of launches of ocl


class Layers:
    """The convolutions of a network: the name of each kind and its number of operations (a multiply-add counts as 2)."""

    def __init__(self, model: nn.Module, example: torch.Tensor) -> None:
        # (input shape, filter shape) -> name of the kind.
        self.names: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        self.flops: dict[str, list[float]] = defaultdict(list)  # Name of the kind -> operations of each of its layers.

        def seen(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            w: Any = module.weight
            name = f"{w.shape[2]}x{w.shape[3]}"
            name += " depthwise" if w.shape[1] == 1 and output.shape[1] > 1 else ""
            self.names[tuple(inputs[0].shape), tuple(w.shape)] = name
            self.flops[name].append(2.0 * output.numel() * w[0].numel())

        hooks = [m.register_forward_hook(seen) for m in model.modules() if isinstance(m, nn.Conv2d)]
        with torch.no_grad():
            model(example)
        for hook in hooks:
            hook.remove()

    def of_flops(self, flops: float) -> str:
        """The kind with a layer whose number of operations is nearest."""
        return min(self.flops, key=lambda name: min(abs(flops / own - 1) for own in self.flops[name]))

    def operations(self, row: str) -> float:
        """The operations of a row of the table in one step. 0 if they are not known."""
        direction, _, kind = row.partition(" ")
        flops = sum(self.flops[kind]) if kind in self.flops else 0.0
        # Backward has two products per layer. The first layer of the network needs no data gradient.
        if direction == "backward" and flops:
            flops = 2 * flops - (self.flops[kind][0] if kind == next(iter(self.flops)) else 0.0)
        return flops


def measure(side: Side) -> dict[str, Any]:
    """Times one step without recording ("plain_ms") and one with ("rows"), whose sum is the time of the recorded step.
    "flops" are the operations of the rows of convolutions."""
    layers = Layers(side.host_model, side.example)
    plain = side.timed()
    record = launches_of_ocl if side.device.type == "ocl" else operators
    times, seconds = record(side, layers)
    times[HOST] = 1e3 * seconds - sum(times.values())
    return {"plain_ms": 1e3 * plain, "rows": times, "flops": {row: layers.operations(row) for row in times}}


def operators(side: Side, layers: Layers) -> tuple[Times, float]:
    """The operators of PyTorch in one step, and the seconds of this step."""
    on_cuda = side.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with profile(activities=activities, record_shapes=True) as profiler:
        seconds = side.timed()
    times: Times = defaultdict(float)
    for event in profiler.key_averages(group_by_input_shape=True):
        row, shapes = REST, event.input_shapes
        if event.key in FORWARD:
            row = "forward " + layers.names[tuple(shapes[0]), tuple(shapes[1])]
        elif event.key == "aten::convolution_backward":
            row = "backward " + layers.names[tuple(shapes[1]), tuple(shapes[2])]
        elif event.key in ("aten::addmm", "aten::mm"):
            row = PRODUCTS
        elif not event.key.startswith("aten::"):
            continue  # No operator: kernels, which belong to their operators, and marks of the profiler.
        times[row] += (event.self_device_time_total if on_cuda else event.self_cpu_time_total) / 1e3
    return times, seconds


def launches_of_ocl(side: Side, layers: Layers) -> tuple[Times, float]:
    """The kernels of ocl in one step, and the seconds of this step."""
    with torch.ocl.record(timing=True) as launches:  # type: ignore[attr-defined]
        seconds = side.timed()
    times: Times = defaultdict(float)
    for launch in launches:
        row = REST
        if launch.kind in CONVOLUTIONS:
            backward = "convolution_backward" in launch.origin
            row = ("backward " if backward else "forward ") + layers.of_flops(launch.flops)
        elif launch.kind == "gemm":
            row = PRODUCTS
        times[row] += launch.time_us / 1e3
    return times, seconds
