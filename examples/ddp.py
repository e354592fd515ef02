# examples/ddp.py: trains a small network with several processes: torchrun --nproc-per-node 2 examples/ddp.py
"""Each process takes a share of the samples. DistributedDataParallel averages the gradients. Rank 0 prints the loss."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ocl_compile  # noqa: F401  (registers the device)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32, help="samples of each process")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    arguments = parser.parse_args()

    ocl = torch.get_device_module("ocl")
    ocl.set_device(int(os.environ["LOCAL_RANK"]) % ocl.device_count())
    dist.init_process_group()
    torch.manual_seed(0)
    model: nn.Module = DistributedDataParallel(Network().to("ocl"))
    if arguments.compile:
        model.compile(backend="ocl")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    torch.manual_seed(1 + dist.get_rank())
    for step in range(arguments.steps):
        x = torch.randn(arguments.batch, 16)
        labels = x[:, :4].argmax(1)  # what the network learns
        loss = nn.functional.cross_entropy(model(x.to("ocl")), labels.to("ocl"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == arguments.steps - 1:
            mean = loss.detach()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {mean.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
