"""Modules that no program can say, each with one mistake; its line ends in a comment.

Read as a user's file is: by its path.
"""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(5, 3)
        self.lin = nn.Linear(3, 3)


class Branch(Base):
    def forward(self, x, edge_index):
        if x.sum() > 0:  # Branch
            x = -x
        return self.conv(x, edge_index)


class Item(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * x.max().item()  # Item


class InPlace(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        h[:, 0] = 0  # InPlace
        return h


class Hidden(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        view = h.view(-1, 3)
        h.mul_(2)
        return self.lin(view)


class Dropout(Base):
    def forward(self, x, edge_index):
        return F.dropout(self.conv(x, edge_index), 0.5)  # Dropout


class Batches(Base):
    def __init__(self):
        super().__init__()
        self.norm = pyg.GraphNorm(3)

    def forward(self, x, edge_index):
        batch = torch.zeros(len(x), dtype=torch.int64)
        return self.norm(self.conv(x, edge_index), batch)  # Batches


class Pooling(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) - x.amax(dim=0)[:3]  # Pooling


class Statistic(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) - x.mean(dim=0)[:3]  # Statistic


class Pooled(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).mean(dim=0)  # Pooled


class Picked(Base):
    def forward(self, x, edge_index):
        order = torch.arange(len(x)).flip(0)
        return self.conv(x, edge_index)[order]  # Picked


class Loops(Base):
    def forward(self, x, edge_index):
        both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        return self.conv(x, both)  # Loops


class Rows(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + torch.arange(len(x)).view(-1, 1)  # Rows


class Unknown(Base):
    def forward(self, x, edge_index):
        return torch.logcumsumexp(self.conv(x, edge_index), dim=1)  # Unknown


class Lstm(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.SAGEConv(5, 3, aggr="median")

    def forward(self, x, edge_index):
        return self.own(x, edge_index)  # Lstm


class EdgeFeatures(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.GATConv(5, 3, edge_dim=1)

    def forward(self, x, edge_index, edge_weight):
        return self.own(x, edge_index, edge_weight.view(-1, 1))  # EdgeFeatures


class Table(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 5)

    def forward(self, x, edge_index):
        return self.conv(self.table.weight[: len(x)], edge_index)  # Table


class Random(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * torch.rand(3)


class Message(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return torch.logcumsumexp(x_j, dim=1) - x_i  # Message


class Raises(Base):
    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index)[:, :2])  # Raises


class Several(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h, [self.lin(h), h]


class NoGraph(Base):
    def forward(self, x):
        return self.lin(x)


class Arguments(Base):
    def forward(self, x, edge_index, temperature):
        return self.conv(x, edge_index) / temperature
