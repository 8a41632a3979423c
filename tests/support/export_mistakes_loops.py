"""Modules that change edges as no program can say, each with one mistake.

Its line ends in a comment. Read as a user's file is: by its path.
"""

import torch
from torch import nn
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    degree,
    remove_self_loops,
    scatter,
)

from tests.support.pyg import pyg


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GraphConv(5, 3)
        self.gine = pyg.GINEConv(nn.Linear(5, 3), edge_dim=3)
        self.lin = nn.Linear(3, 3)


class Uncounted(Base):
    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index)  # Uncounted
        return self.conv(x, edge_index)


class Miscounted(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * degree(edge_index[1], 9).sum()  # Miscounted


class Twice(Base):
    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))  # Twice
        return self.conv(x, edge_index)


class Weights(Base):
    def forward(self, x, edge_index, edge_weight):
        edge_index, w = add_remaining_self_loops(edge_index, edge_weight, 1.0, x.size(0))
        edge_index, w = add_remaining_self_loops(edge_index, w, 2.0, x.size(0))  # Weights
        return self.conv(x, edge_index, w)


class Filled(Base):
    def forward(self, x, edge_index, edge_weight):
        n = x.size(0)
        edge_index, w = add_self_loops(edge_index, edge_weight, "mean", n)  # Filled
        return self.conv(x, edge_index, w)


class Kept(Base):
    def forward(self, x, edge_index, edge_attr):
        n = x.size(0)
        edge_index, e = add_remaining_self_loops(edge_index, edge_attr, 1.0, n)  # Kept
        return self.gine(x, edge_index, e)


class Computed(Base):
    def forward(self, x, edge_index, edge_attr):
        e = self.lin(edge_attr)
        edge_index, e = add_self_loops(edge_index, e, num_nodes=x.size(0))  # Computed
        return self.gine(x, edge_index, e)


class ToSources(Base):
    def forward(self, x, edge_index):
        row, col = edge_index
        return scatter(x[col], row, 0, x.size(0))  # ToSources


class Median(Base):
    def forward(self, x, edge_index):
        row, col = edge_index
        return scatter(x[row], col, 0, x.size(0), "mul")  # Median


class Other(Base):
    def forward(self, x, edge_index):
        both, _ = remove_self_loops(edge_index.flip(0))  # Other
        return self.conv(x, both)


class Mixed(Base):
    def forward(self, x, edge_index):
        own, _ = remove_self_loops(edge_index)
        message = x[own[0]] - x[edge_index[0]][: own.size(1)]  # Mixed
        return scatter(message, own[1], 0, x.size(0))


class AnyEdge(Base):
    def forward(self, x, edge_index):
        if (degree(edge_index[1], x.size(0)) == 0).any():  # AnyEdge
            return x
        return self.conv(x, edge_index)


class Laplacian(Base):
    def __init__(self):
        super().__init__()
        self.conv = pyg.ChebConv(5, 3, 2, normalization=None)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)  # Laplacian


class Ends(Base):
    def forward(self, x, edge_index):
        return torch.relu(x[edge_index[0]])  # Ends
