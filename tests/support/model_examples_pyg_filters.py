"""Filters and propagation of PyG, each with its model.yaml: examples of docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, arange, cat, nn

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


class Sg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SGConv(5, 4, K=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


SG = """
library: pyg
layers:
  - {conv: sg, K: 2}
"""


class Ssg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SSGConv(5, 4, alpha=0.1, K=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


SSG = """
library: pyg
layers:
  - {conv: ssg, alpha: 0.1, K: 3}
"""


class Appnp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.prop = pyg.APPNP(K=10, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.prop(self.lin2(self.lin1(x).relu()), edge_index, edge_weight)


APPNP = """
library: pyg
layers:
  - {conv: linear, prefix: lin1, activation: relu}
  - {conv: linear, prefix: lin2}
  - {conv: appnp, K: 10, alpha: 0.1}
"""


class Tag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.TAGConv(5, 8), pyg.TAGConv(8, 4, K=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


TAG = """
library: pyg
layers:
  - {conv: tag, activation: relu}
  - {conv: tag}
"""


class Cheb(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.ChebConv(5, 8, K=2), pyg.ChebConv(8, 4, K=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


CHEB = """
library: pyg
layers:
  - {conv: cheb, activation: relu}
  - {conv: cheb}
"""


class Gcn2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 4)])
        self.convs = nn.ModuleList([pyg.GCN2Conv(8, 0.1, 0.5, layer) for layer in (1, 2)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, x_0, edge_index, edge_weight).relu()
        return self.lins[1](x)


GCN2 = """
library: pyg
layers:
  - {conv: linear, prefix: lins.0, activation: relu}
  - {conv: gcn2, x_0: 0, alpha: 0.1, theta: 0.5, layer: 1, activation: relu}
  - {conv: gcn2, x_0: 0, alpha: 0.1, theta: 0.5, layer: 2, activation: relu}
  - {conv: linear, prefix: lins.1}
"""


class Arma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.ARMAConv(5, 8, num_stacks=3, num_layers=2, shared_weights=True)
        self.conv2 = pyg.ARMAConv(8, 4, num_stacks=3, num_layers=2, act=None)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


ARMA = """
library: pyg
layers:
  - {conv: arma, num_layers: 2, shared_weights: true, activation: relu}
  - {conv: arma, act: null}
"""


class Lg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.LGConv(), pyg.LGConv()])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        one = self.convs[0](x, edge_index, edge_weight)
        return cat([x, one, self.convs[1](one, edge_index, edge_weight)], dim=1)


LG = """
library: pyg
input_width: 5
layers:
  - {conv: lg}
  - {conv: lg}
  - {conv: jumping_knowledge, mode: cat, layers: [input, 0, 1]}
"""


class LightGcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = pyg.LightGCN(num_nodes=37, embedding_dim=5, num_layers=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        self.model.embedding.weight.data = x  # the job's features are the rows of the table
        return self.model.get_embedding(edge_index, edge_weight)


LIGHTGCN = """
library: pyg
layers:
  - {conv: lightgcn}
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
    "sg": Example(Sg, SG, weighted=True, on_grids=False),
    "ssg": Example(Ssg, SSG, weighted=True, on_grids=False),
    "appnp": Example(Appnp, APPNP, weighted=True, on_grids=False),
    "tag": Example(Tag, TAG, weighted=True),
    "cheb": Example(Cheb, CHEB, weighted=True),
    "gcn2": Example(Gcn2, GCN2, weighted=True, on_grids=False),
    "arma": Example(Arma, ARMA, weighted=True),
    "lg": Example(Lg, LG, weighted=True, on_grids=False),
    "lightgcn": Example(LightGcn, LIGHTGCN, weighted=True, on_grids=False),
}
