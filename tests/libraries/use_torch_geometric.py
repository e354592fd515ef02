# tests/libraries/use_torch_geometric.py: graph convolutions and attention of torch_geometric.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("torch_geometric", "GCNConv, GATConv, global_mean_pool")
def gcn_gat(side: Side) -> Tensors:
    from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

    class Graphs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(8, 16), GATConv(16, 4, heads=2)

        def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return global_mean_pool(self.second(self.first(x, edges).relu(), edges), batch, 2)

    edges = torch.stack([torch.arange(20), torch.arange(20).mul(7).add(3).remainder(20)])
    return steps_of(Graphs(), [torch.randn(20, 8), edges, torch.arange(20).div(10, rounding_mode="floor")], side)
