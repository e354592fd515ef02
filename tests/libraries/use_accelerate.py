# tests/libraries/use_accelerate.py: a loop with accelerate's Accelerator.
import os

import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, loss_of, parameters, program


@program("accelerate", "Accelerator: prepare, backward, clip_grad_norm_", wrote="ACCELERATE_TORCH_DEVICE=ocl")
def loop(side: Side) -> Tensors:
    os.environ["ACCELERATE_TORCH_DEVICE"] = side.device
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator()
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(torch.randn(4 * STEPS, 8), batch_size=4)
    model, optimizer, loader = accelerator.prepare(side.compiled(model), optimizer, loader)
    losses = []
    for x in loader:
        optimizer.zero_grad()
        loss = loss_of(model(x))
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    with torch.no_grad():
        return [model(x), *losses, *parameters(model)]
