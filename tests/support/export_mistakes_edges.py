"""Modules with features of edges that no program can say, each with one mistake.

Its line ends in a comment. Read as a user's file is: by its path.
"""

import torch
from torch import nn

from tests.support.pyg import pyg


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = pyg.GATConv(5, 3, edge_dim=3)
        self.conv = pyg.GINEConv(nn.Linear(5, 3), edge_dim=3)
        self.lin = nn.Linear(3, 3)


class Plain(Base):
    def forward(self, x, edge_index):
        return self.own(x, edge_index)


class Computed(Base):
    def forward(self, x, edge_index, edge_attr):
        return self.own(x, edge_index, self.lin(edge_attr))  # Computed


class Weight(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.GATv2Conv(5, 3, edge_dim=1)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        return self.own(x, edge_index, edge_weight.view(-1, 1))  # Weight


class Constant(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.TransformerConv(5, 3, edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        ones = torch.ones(edge_attr.shape)
        return self.own(x, edge_index, ones)  # Constant


class Filled(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.GATConv(5, 3, edge_dim=3, fill_value=torch.ones(3))

    def forward(self, x, edge_index, edge_attr):
        return self.own(x, edge_index, edge_attr)  # Filled


class Columns(Base):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 5)
        self.conv = pyg.GINEConv(nn.Linear(5, 3))

    def forward(self, x, edge_index, edge_attr):
        h = self.lin(edge_attr)  # Columns
        return self.conv(x, edge_index, h)


class Mixed(Base):
    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr.view(-1, len(edge_attr)).t())  # Mixed


class AllEdges(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x, edge_index, edge_attr):
        edge_attr = self.norm(edge_attr)  # AllEdges
        return self.conv(x, edge_index, edge_attr)


class OverEdges(Base):
    def forward(self, x, edge_index, edge_attr):
        edge_attr = edge_attr - edge_attr.prod(dim=0)  # OverEdges
        return self.conv(x, edge_index, edge_attr)


class Median(Base):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GINEConv(nn.Linear(5, 3), edge_dim=3, aggr="median")

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr)  # Median


class OwnAggregate(pyg.MessagePassing):
    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)  # OwnAggregate

    def message(self, x_j, edge_attr):
        return x_j * edge_attr[:, :1]

    def aggregate(self, inputs, index):
        return inputs


class Unread(Base):
    def forward(self, x, edge_index, edge_attr):
        return self.own(x, edge_index) + edge_attr.median()  # Unread


class Unknown(Base):
    def __init__(self):
        super().__init__()
        self.own = pyg.GATConv(5, 3)

    def forward(self, x, edge_index, efeats):
        return self.conv(x, edge_index, efeats)


class Numbered(Base):
    def forward(self, x, edge_index, edge_type, edge_attr):
        return self.conv(x, edge_index, edge_attr)
