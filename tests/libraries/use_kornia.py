# tests/libraries/use_kornia.py: differentiable filters, colours and a warp of kornia.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("kornia", "gaussian_blur2d, sobel, rgb_to_lab, warp_affine behind a convolution")
def filters(side: Side) -> Tensors:
    import kornia

    class Filters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1)
            self.shift = nn.Parameter(torch.tensor([[[1.0, 0.1, 0.5], [-0.1, 1.0, 0.25]]]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            blurred = kornia.filters.gaussian_blur2d(self.first(x).sigmoid(), (5, 5), (1.5, 1.5))
            edges = kornia.filters.sobel(kornia.color.rgb_to_lab(blurred) / 100)
            return kornia.geometry.transform.warp_affine(edges, self.shift.expand(len(x), -1, -1), (16, 16))

    return steps_of(Filters(), [torch.rand(2, 3, 16, 16)], side)
