# tests/libraries/use_schedulefree.py: AdamWScheduleFree around a compiled network.
import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, loss_of, parameters, program


@program("schedulefree", "AdamWScheduleFree: train, step, eval")
def adamw(side: Side) -> Tensors:
    from schedulefree import AdamWScheduleFree

    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 4)).to(side.device)
    x, call = torch.randn(6, 8).to(side.device), side.compiled(model)
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
