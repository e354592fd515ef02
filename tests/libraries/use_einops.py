# tests/libraries/use_einops.py: layers and functions of einops in a small network.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("einops", "rearrange, reduce, repeat and layers in a network")
def layers(side: Side) -> Tensors:
    from einops import rearrange, reduce, repeat
    from einops.layers.torch import Rearrange

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.split = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
            self.layer, self.last = nn.Linear(48, 32), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = torch.tanh(self.layer(self.split(x)))
            doubled = repeat(tokens, "b n c -> b (two n) c", two=2)
            heads = rearrange(doubled, "b n (h d) -> (b h) n d", h=4)
            mixed = rearrange(heads.softmax(-1) * heads, "(b h) n d -> b n (h d)", h=4)
            return self.last(reduce(mixed, "b n c -> b c", "mean"))

    return steps_of(Patches(), [torch.randn(2, 3, 16, 16)], side)
