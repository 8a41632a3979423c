"""Modules of which a sample shows what they do not: columns, features of edges, categories."""

import torch
from torch import nn

from tests.support.pyg import pyg


class Plain(nn.Module):
    """Nothing shows how many columns x has; it needs 4."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.conv = pyg.SAGEConv(3, 2)

    def forward(self, x, edge_index):
        return self.conv(x @ self.weight, edge_index)


class Buyers(nn.Module):
    """Categories of users, numbers of items."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(6, 3)
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.SAGEConv((3, 2), 4),
                ("item", "of", "user"): pyg.SAGEConv((2, 3), 4),
            }
        )

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict | {"user": self.emb(x_dict["user"][:, 0])}, edge_index_dict)
