"""Modules that give several results at once, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

WIDTH, HIDDEN, CLASSES = 5, 6, 3


class Layers(nn.Module):
    """Two layers; what it returns is chosen by a function of all that there is."""

    def __init__(self, choose: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(WIDTH, HIDDEN), pyg.GCNConv(HIDDEN, CLASSES)
        self.choose = choose

    def forward(self, x, edge_index):
        hidden = self.conv1(x, edge_index).relu()
        return self.choose(x, hidden, self.conv2(hidden, edge_index))


class Heads(nn.Module):
    """Two heads on a trunk, and the attention of the trunk, which has a row for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = pyg.GATConv(WIDTH, HIDDEN, heads=2, concat=False, add_self_loops=False)
        self.user, self.item = nn.Linear(HIDDEN, 4), nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index):
        h = self.trunk(x, edge_index).relu()
        return self.user(h), self.item(h), x[edge_index[0]]
