# benchmarks/layers.py: the time of a network by kind of layer, for eager PyTorch (oneDNN) and ocl in the same run.
"""python benchmarks/layers.py --models resnet50,vgg16 --modes inference,training

Both sides run the same step alternately in one process: eager under torch.profiler, ocl under
torch.ocl.record(timing=True). The table has the fastest of --rounds for each side. Its rows are convolutions by
filter size, matrix products, and the rest: norms, activations, pools, loss, optimizer, packing. GFLOP/s count the
operations of direct convolution. A launch of ocl is counted in the row of the convolution that has the same number
of multiply-adds. ocl fuses activations and residual additions into convolutions, so their time is in that row; for
eager it is in the rest.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from torch_ocl_compile.bench.side import Side

Times = dict[str, float]  # Row of the table -> milliseconds of one step.


class Layers:
    """The convolutions of a network: the name of each kind and its number of operations (a multiply-add counts as 2)."""

    def __init__(self, model: nn.Module, example: torch.Tensor) -> None:
        # (input shape, filter shape) -> name of the kind.
        self.names: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        self.flops: dict[str, list[float]] = defaultdict(list)  # Name of the kind -> operations of each of its layers.

        def seen(module: nn.Conv2d, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            w = module.weight
            name = f"{w.shape[2]}x{w.shape[3]}"
            name += " depthwise" if module.groups > 1 and w.shape[1] == 1 else ""
            self.names[tuple(inputs[0].shape), tuple(w.shape)] = name
            self.flops[name].append(2.0 * output.numel() * w[0].numel())

        hooks = [m.register_forward_hook(seen) for m in model.modules() if isinstance(m, nn.Conv2d)]
        with torch.no_grad():
            model(example)
        for hook in hooks:
            hook.remove()

    def of_flops(self, flops: float) -> str:
        return min(self.flops, key=lambda name: min(abs(flops / own - 1) for own in self.flops[name]))


def eager_times(side: Side, layers: Layers) -> Times:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        side.step()
    times: Times = defaultdict(float)
    for event in profiler.key_averages(group_by_input_shape=True):
        row, shapes = "the rest", event.input_shapes
        if event.key in ("aten::mkldnn_convolution", "aten::_slow_conv2d_forward", "aten::_conv_depthwise2d"):
            row = "forward " + layers.names[tuple(shapes[0]), tuple(shapes[1])]
        elif event.key == "aten::convolution_backward":
            row = "backward " + layers.names[tuple(shapes[1]), tuple(shapes[2])]
        elif event.key in ("aten::addmm", "aten::mm"):
            row = "matrix products"
        times[row] += event.self_cpu_time_total / 1e3
    return times


def ocl_times(side: Side, layers: Layers) -> Times:
    with torch.ocl.record(timing=True) as launches:
        side.step()
        side.synchronize()
    times: Times = defaultdict(float)
    for launch in launches:
        row = "the rest"
        if launch.kind in ("conv_forward", "conv_data", "conv_weight", "winograd", "depthwise"):
            backward = "convolution_backward" in launch.origin
            row = ("backward " if backward else "forward ") + layers.of_flops(launch.flops)
        elif launch.kind == "gemm":
            row = "matrix products"
        times[row] += launch.time_us / 1e3
    return times


def report(name: str, mode: str, args: argparse.Namespace) -> None:
    sides = {side: Side(side, name, mode, args.batch, args.size, args.ocl_device) for side in ("eager", "ocl")}
    layers = Layers(sides["eager"].model, sides["eager"].example)
    measure = {"eager": eager_times, "ocl": ocl_times}
    best: dict[str, Times] = {}
    for side in sides.values():  # The first step compiles.
        side.timed()
    for _ in range(args.rounds):
        for key, side in sides.items():
            side.timed()
            times = measure[key](side, layers)
            if key not in best or sum(times.values()) < sum(best[key].values()):
                best[key] = times
    rows = sorted(set(best["eager"]) | set(best["ocl"]), key=lambda row: -best["eager"].get(row, 0.0))
    print(
        f"\n{name} {mode:22s} {'eager ms':>9s} {'ocl ms':>9s} {'ratio':>6s} {'eager GFLOP/s':>14s} {'ocl GFLOP/s':>12s}"
    )
    for row in [*rows, "all"]:
        eager, ocl = (sum(t.values()) if row == "all" else t.get(row, 0.0) for t in (best["eager"], best["ocl"]))
        direction, _, kind = row.partition(" ")
        flops = sum(layers.flops[kind]) if kind in layers.flops else 0.0
        # Backward has two products per layer; the first layer of the network needs no data gradient.
        if direction == "backward":
            flops = 2 * flops - (layers.flops[kind][0] if kind == next(iter(layers.flops)) else 0.0)
        line = f"  {row:26s} {eager:9.1f} {ocl:9.1f} {eager / ocl if ocl else float('nan'):6.2f}"
        if flops and eager and ocl:
            line += f" {flops / eager / 1e6:14.0f} {flops / ocl / 1e6:12.0f}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["resnet50", "vgg16"])
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["inference", "training"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="image height and width")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ocl-device", default="ocl:0")
    args = parser.parse_args()
    for name in args.models:
        for mode in args.modes:
            report(name, mode, args)


if __name__ == "__main__":
    main()
