"""Models that read features of edges, each with its model.yaml: examples of docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.model_example import Example
from tests.support.model_examples_dgl import dgl
from tests.support.pyg import pyg


class Gine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GINEConv(nn.Linear(5, 8), edge_dim=3)
        self.conv2 = pyg.GATConv(8, 4, heads=2, edge_dim=3, fill_value="max")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


GINE = """
library: pyg
layers:
  - {conv: gine, edge_dim: 3, activation: relu}
  - {conv: gat, edge_dim: 3, fill_value: max}
"""


class DglGine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 3)
        function = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))
        self.conv = dgl.nn.GINEConv(function, learn_eps=True)

    def forward(self, graph: Any, x: Tensor, edge_feat: Tensor) -> Tensor:
        return self.conv(graph, self.lin(x).relu(), edge_feat)


DGL_GINE = """
library: dgl
layers:
  - {conv: linear, prefix: lin, activation: relu}
  - {conv: gine, mlp: [linear, relu, linear]}
"""


class EdgeGat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        zero = {"allow_zero_in_degree": True}
        self.layers = nn.ModuleList(
            [dgl.nn.EdgeGATConv(5, 3, 4, 2, **zero), dgl.nn.EdgeGATConv(8, 3, 4, 3, **zero)]
        )

    def forward(self, graph: Any, x: Tensor, edge_feat: Tensor) -> Tensor:
        h = self.layers[0](graph, x, edge_feat).flatten(1).relu()
        return self.layers[1](graph, h, edge_feat).mean(1)


EDGE_GAT = """
library: dgl
layers:
  - {conv: edge_gat, activation: relu}
  - {conv: edge_gat, concat: false}
"""

PYG = {"gine": Example(Gine, GINE, features=3)}
DGL = {
    "gine": Example(DglGine, DGL_GINE, features=3),
    "edge_gat": Example(EdgeGat, EDGE_GAT, features=3),
}
