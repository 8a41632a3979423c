"""Modules for graphs with types that no program can say, or not for the graph that is given.

Each has one mistake; its line ends in a comment. Read as a user's file is: by its path.
"""

import torch
from torch import nn

from tests.support.pyg import pyg

USER, ITEM = 5, 4
GRAPH = {"nodes": {"user": USER, "item": ITEM}, "edges": ["user:buys:item", "item:of:user"]}
BUYS, OF, LIKES = ("user", "buys", "item"), ("item", "of", "user"), ("user", "likes", "item")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.buys = pyg.SAGEConv((USER, ITEM), 3)
        self.lin = nn.Linear(USER, ITEM)


class UnknownRelation(nn.Module):
    def __init__(self):
        super().__init__()
        convs = {one: pyg.SAGEConv((USER, ITEM), 3) for one in (BUYS, LIKES)}
        self.conv = pyg.HeteroConv({**convs, OF: pyg.SAGEConv((ITEM, USER), 3)})

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)  # UnknownRelation


class MissingEdges(Base):
    def forward(self, x_dict, edge_index_dict):
        edges = edge_index_dict["user", "likes", "item"]  # MissingEdges
        return self.buys((x_dict["user"], x_dict["item"]), edges)


class MissingType(Base):
    def forward(self, x_dict, edge_index_dict):
        x = x_dict["shop"]  # MissingType
        return self.buys((x_dict["user"], x), edge_index_dict[BUYS])


class MissingFeatures(Base):
    def forward(self, x_dict, edge_index_dict):
        x = x_dict.get("shop")
        return self.buys((x, x_dict["item"]), edge_index_dict[BUYS])  # MissingFeatures


class NoEdges(Base):
    def forward(self, x_dict, edge_index_dict):
        edges = edge_index_dict.get(LIKES)
        return self.buys((x_dict["user"], x_dict["item"]), edges)  # NoEdges


class WrongEnds(Base):
    def forward(self, x_dict, edge_index_dict):
        x = self.lin(x_dict["user"])
        return self.buys((x_dict["user"], x), edge_index_dict[BUYS])  # WrongEnds


class WrongWay(pyg.MessagePassing):
    def forward(self, x_dict, edge_index_dict):
        return self.propagate(edge_index_dict[BUYS], x=(x_dict["item"], x_dict["user"]))  # WrongWay


class Merged(Base):
    def forward(self, x_dict, edge_index_dict):
        return torch.cat([self.lin(x_dict["user"]), x_dict["item"]], dim=0)  # Merged


class TwoSoftmaxes(pyg.MessagePassing):
    def forward(self, x_dict, edge_index_dict):
        return self.propagate(edge_index_dict[BUYS], x=(x_dict["user"], x_dict["item"]))

    def message(self, x_j, index):
        from torch_geometric.utils import softmax

        return softmax(x_j, index) * softmax(-x_j, index)  # TwoSoftmaxes


class ShiftedSoftmax(pyg.MessagePassing):
    def forward(self, x_dict, edge_index_dict):
        return self.propagate(edge_index_dict[BUYS], x=(x_dict["user"], x_dict["item"]))

    def message(self, x_j, index):
        from torch_geometric.utils import softmax

        return (softmax(x_j, index) + 1) * x_j  # ShiftedSoftmax


class Numbered(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.RGCNConv(USER, 3, 2)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


class OtherTypes(Base):
    def forward(self, x_dict, edge_index_dict):
        out = self.buys((x_dict["user"], x_dict["item"]), edge_index_dict[BUYS])
        return {"user": out}
