"""The example's model: two layers of GraphSAGE, as PyTorch Geometric has them."""

from __future__ import annotations

import torch
from torch_geometric.nn import SAGEConv


class Archive(torch.nn.Module):
    """Embeddings of binary and source packages."""

    def __init__(self, width: int = 64, hidden: int = 64, out: int = 64) -> None:
        super().__init__()
        self.conv1 = SAGEConv(width, hidden)
        self.conv2 = SAGEConv(hidden, out)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return [N, out]; in training the edges are a sparse matrix, which is faster."""
        embeddings: torch.Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return embeddings
