# examples/compare_devices.py: trains one step of a network on every OpenCL device and on the CPU; prints errors and times.
"""python examples/compare_devices.py --batch 16

The errors are those of the outputs and of all gradients against the same step in fp64 on the CPU, as a share of the largest
value. The rows of the CPU are ordinary PyTorch without torch.compile."""

import argparse
import copy
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import torch_ocl_compile  # noqa: F401  (registers the device "ocl")


def network():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.GELU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.LayerNorm(32 * 8 * 8), nn.Linear(32 * 8 * 8, 10)),
    )


def measure(model, x, device, repeats):
    """Returns outputs, gradients, and the seconds of the first step and of the fastest later one."""
    model, x = copy.deepcopy(model).to(device), x.to(device)
    parameters = list(model.parameters())

    @torch.compile(backend="ocl", disable=device == "cpu")
    def loss_of(x):
        out = model(x)
        return nn.functional.cross_entropy(out, torch.arange(len(x), device=device) % 10), out

    seconds = []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        loss, out = loss_of(x)
        gradients = torch.autograd.grad(loss, parameters)
        if device != "cpu":
            torch.ocl.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return [out.detach()], gradients, seconds[0], min(seconds[1:])


def error(tensors, exact):
    """The largest difference of the tensors from the exact ones, each as a share of the largest exact value."""
    pairs = zip(tensors, exact, strict=True)
    return max(((t.cpu().double() - e).abs().max() / e.abs().max().clamp_min(1e-6)).item() for t, e in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, x = network(), torch.randn(args.batch, 3, 32, 32)
    exact_out, exact_gradients, *_ = measure(copy.deepcopy(model).double(), x.double(), "cpu", 1)

    table = Table("device", "name", "first step", "step", "error of outputs", "error of gradients")
    devices = {f"ocl:{i}": torch.ocl.get_device_name(i) for i in range(torch.ocl.device_count())}
    for device, name in {**devices, "cpu": "PyTorch"}.items():
        out, gradients, first, later = measure(model, x, device, args.repeats)
        errors = error(out, exact_out), error(gradients, exact_gradients)
        table.add_row(device, name, f"{first:.2f} s", f"{1000 * later:.2f} ms", *(f"{e:.1e}" for e in errors))
    Console().print(table)


if __name__ == "__main__":
    main()
