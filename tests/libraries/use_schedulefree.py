# tests/libraries/use_schedulefree.py: AdamWScheduleFree around a compiled network.
import torch
from torch import nn

from tests.libraries.harness import STEPS, Tensors, compiled, loss_of, parameters

LIBRARY, WHAT = "schedulefree", "AdamWScheduleFree: train, step, eval"


def run(device: str) -> Tensors:
    from schedulefree import AdamWScheduleFree

    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 4)).to(device)
    x, call = torch.randn(6, 8).to(device), compiled(model, device)
    optimizer = AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(call(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    optimizer.eval()
    with torch.no_grad():
        return [call(x), *losses, *parameters(model)]
