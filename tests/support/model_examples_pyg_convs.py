"""More convolutions of PyG, each with its model.yaml: examples of docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, arange, nn

from tests.support.model_example import Example
from tests.support.pyg import pyg


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GraphConv(5, 8), pyg.GraphConv(8, 4, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


GRAPH = """
library: pyg
layers:
  - {conv: graph, activation: relu}
  - {conv: graph, aggr: mean}
"""


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.TransformerConv(5, 4, heads=3)
        self.conv2 = pyg.TransformerConv(12, 4, heads=2, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


TRANSFORMER = """
library: pyg
layers:
  - {conv: transformer, heads: 3, activation: relu}
  - {conv: transformer, heads: 2, concat: false}
"""


class Agnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 8)
        self.prop1, self.prop2 = pyg.AGNNConv(requires_grad=False), pyg.AGNNConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.prop2(self.prop1(self.lin(x).relu(), edge_index), edge_index)


AGNN = """
library: pyg
layers:
  - {conv: linear, prefix: lin, activation: relu}
  - {conv: agnn}
  - {conv: agnn}
"""


class Le(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.LEConv(5, 8), pyg.LEConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


LE = """
library: pyg
layers:
  - {conv: le, activation: relu}
  - {conv: le}
"""


class Fa(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.convs = nn.ModuleList([pyg.FAConv(8, eps=0.3) for _ in range(2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x_0 = self.lin1(x).relu()
        for conv in self.convs:
            x = conv(x, x_0, edge_index)
        return self.lin2(x)


FA = """
library: pyg
layers:
  - {conv: linear, prefix: lin1, activation: relu}
  - {conv: fa, x_0: 0, eps: 0.3}
  - {conv: fa, x_0: 0, eps: 0.3}
  - {conv: linear, prefix: lin2}
"""


class Pna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        degrees = arange(12)  # how many nodes of the training set have each number of edges
        ways = {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
        }
        self.conv1 = pyg.PNAConv(5, 8, deg=degrees, towers=2, **ways)
        self.conv2 = pyg.PNAConv(8, 4, deg=degrees, towers=2, divide_input=True, **ways)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


PNA = """
library: pyg
layers:
  - conv: pna
    aggregators: [mean, min, max, std]
    scalers: [identity, amplification, attenuation]
    activation: relu
  - conv: pna
    aggregators: [mean, min, max, std]
    scalers: [identity, amplification, attenuation]
    divide_input: true
"""

EXAMPLES = {
    "graph": Example(Graph, GRAPH, weighted=True, on_grids=False),
    "transformer": Example(Transformer, TRANSFORMER),
    "le": Example(Le, LE, weighted=True),
    "fa": Example(Fa, FA),
    "pna": Example(Pna, PNA),
    "agnn": Example(Agnn, AGNN),
}
