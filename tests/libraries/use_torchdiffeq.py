# tests/libraries/use_torchdiffeq.py: a neural ODE of torchdiffeq, with steps of fixed size.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("torchdiffeq", "odeint with rk4, a compiled right-hand side")
def rk4(side: Side) -> Tensors:
    from torchdiffeq import odeint

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            times = torch.linspace(0.0, 1.0, 5, device=x.device)
            return odeint(lambda t, y: self.layers(y) * torch.cos(t), x, times, method="rk4")

    return steps_of(Flow(), [torch.randn(6, 4)], side)
