"""Modules for ``embertide export --explain``, which reads this file by its name."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.pyg import pyg


class Net(nn.Module):
    """Two convolutions; PyG's ``edge_attr`` is a weight for each edge, ``mask`` is left out."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(dim, 16)
        self.conv2 = pyg.SAGEConv(16, 4)

    def forward(self, x, edge_index, edge_attr=None, mask=None):
        h = self.conv1(x, edge_index, edge_attr).relu()  # line of conv1
        return self.conv2(h, edge_index)  # line of conv2


class Normed(Net):
    """With batch norms, whose statistics a state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([pyg.BatchNorm(4), torch.nn.BatchNorm1d(4)])

    def forward(self, x, edge_index):
        first, second = self.norms
        return second(first(super().forward(x, edge_index)))


class Branches(Net):
    """An ``if`` on numbers, which is refused while it is recorded."""

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index)
        return self.conv2(-h if h.sum() > 0 else h, edge_index)


class UnknownArgument(Net):
    """An argument of no known role."""

    def forward(self, x, edge_index, pe):
        return self.conv1(x + pe, edge_index)


class Global(Net):
    """Another number at each call, which shows in the proof alone."""

    calls = 0

    def forward(self, x, edge_index):
        Global.calls += 1
        return self.conv1(x, edge_index) * Global.calls


class Table(nn.Module):
    """A table beside features of a width that nothing shows but the convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(31, 8)
        self.conv = pyg.SAGEConv(8, 4)

    def forward(self, node_id, edge_index):
        return self.conv(self.emb(node_id), edge_index)


class Typed(nn.Module):
    """Two relations with features of edges along one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.SAGEConv((6, 5), 4),
                ("item", "of", "user"): pyg.GATConv((5, 6), 4, edge_dim=3, add_self_loops=False),
            }
        )

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        return self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)


class Lazy(nn.Module):
    """Parameters without a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(-1, 4)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Rows(nn.Module):
    """No edges are read."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 4)

    def forward(self, x, edge_index):
        return self.lin(x).relu()


class InGraph(nn.Module):
    """Features and weights in a graph of DGL's, by names of the module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = load_dgl().nn.pytorch.GraphConv(8, 4)

    def forward(self, g):
        return self.conv(g, g.ndata["feat"], edge_weight=g.edata["w"])


class Inner(nn.Module):
    """Plain torch alone, which can be scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.lin(x)


def scripted() -> nn.Module:
    """A module without Python code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(Inner())
