"""Sums over edges by torch's functions as no program can say, each with one mistake.

Its line ends in a comment. Read as a user's file is: by its path.
"""

import torch
from torch import nn

from tests.support.pyg import pyg


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
        self.conv = pyg.ClusterGCNConv(5, 3, add_self_loops=False)


class Uncounted(Base):
    def forward(self, x, edge_index):
        return self.lin(x) / torch.bincount(edge_index[1]).view(-1, 1)  # Uncounted


class Largest(Base):
    def forward(self, x, edge_index):
        h, (row, col) = self.lin(x), edge_index
        index = col.view(-1, 1).expand(-1, 3)
        return h.scatter_reduce(0, index, h[row], "amax")  # Largest


class Elsewhere(Base):
    def forward(self, x, edge_index):
        h, (row, col) = self.lin(x), edge_index
        return torch.zeros(99, 3, dtype=x.dtype).index_add(0, col, h[row])  # Elsewhere


class ToSources(Base):
    def forward(self, x, edge_index):
        h, (row, col) = self.lin(x), edge_index
        out = torch.zeros_like(h)
        out.index_add_(0, row, h[col])  # ToSources
        return out


class Product(Base):
    def forward(self, x, edge_index):
        h, (row, col) = self.lin(x), edge_index
        index = col.view(-1, 1).expand(-1, 3)
        return torch.zeros_like(h).scatter_reduce(0, index, h[row], "prod")  # Product


class Row(Base):
    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.rand(31, 3))

    def forward(self, x, edge_index):
        row, col = edge_index
        message = self.rows[row]  # Row
        return self.lin(x).index_add(0, col, message)


class Single(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index)  # Single
