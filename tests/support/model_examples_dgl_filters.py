"""Filters and propagation of DGL, each with its model.yaml: examples of docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.model_example import FOLDED, Example
from tests.support.model_examples_dgl import dgl


class Agnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(5, 8)
        self.layers = nn.ModuleList(
            [dgl.nn.AGNNConv(1.0, learn, allow_zero_in_degree=True) for learn in (False, True)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = self.proj(x).relu()
        return self.layers[1](graph, self.layers[0](graph, h))


AGNN = """
library: dgl
layers:
  - {conv: linear, prefix: proj, activation: relu}
  - {conv: agnn}
  - {conv: agnn}
"""


class Sg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dgl.nn.SGConv(5, 4, k=2, cached=True, allow_zero_in_degree=True)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, x)


SG = """
library: dgl
layers:
  - {conv: sg, k: 2}
"""


class Appnp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 4)])
        self.propagate = dgl.nn.APPNPConv(k=10, alpha=0.1)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.propagate(graph, self.layers[1](self.layers[0](x).relu()))


APPNP = """
library: dgl
layers:
  - {conv: linear, prefix: layers.0, activation: relu}
  - {conv: linear, prefix: layers.1}
  - {conv: appnp, k: 10, alpha: 0.1}
"""


class Tag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([dgl.nn.TAGConv(5, 8), dgl.nn.TAGConv(8, 4, k=3)])

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.layers[1](graph, self.layers[0](graph, x).relu())


TAG = """
library: dgl
layers:
  - {conv: tag, activation: relu}
  - {conv: tag, k: 3}
"""


class Cheb(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [dgl.nn.ChebConv(5, 8, 3), dgl.nn.ChebConv(8, 4, 3, activation=None)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.layers[1](graph, self.layers[0](graph, x, [2]), [2])


CHEB = """
library: dgl
layers:
  - {conv: cheb, k: 3, activation: relu}    # ChebConv's own, unless activation=None
  - {conv: cheb, k: 3}
"""


class Gcn2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.layers = nn.ModuleList(
            [dgl.nn.GCN2Conv(8, layer, allow_zero_in_degree=True) for layer in (1, 2)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = feat_0 = self.fc1(x).relu()
        for layer in self.layers:
            h = layer(graph, h, feat_0).relu()
        return self.fc2(h)


GCN2 = """
library: dgl
layers:
  - {conv: linear, prefix: fc1, activation: relu}
  - {conv: gcn2, feat_0: 0, layer: 1, activation: relu}
  - {conv: gcn2, feat_0: 0, layer: 2, activation: relu}
  - {conv: linear, prefix: fc2}
"""


class Pna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(5, 8)
        scalers = ["identity", "amplification", "attenuation"]
        self.conv = dgl.nn.PNAConv(8, 4, ["mean", "max", "std"], scalers, delta=2.5, num_towers=2)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, self.proj(x).relu())


PNA = """
library: dgl
layers:
  - {conv: linear, prefix: proj, activation: relu}
  - conv: pna
    aggregators: [mean, max, std]
    scalers: [identity, amplification, attenuation]
    delta: 2.5
"""

EXAMPLES = {
    "pna": Example(Pna, PNA, tolerance=FOLDED),
    "agnn": Example(Agnn, AGNN, on_grids=False),
    "sg": Example(Sg, SG, on_grids=False),
    "appnp": Example(Appnp, APPNP, on_grids=False),
    "tag": Example(Tag, TAG, on_grids=False),
    "cheb": Example(Cheb, CHEB),
    "gcn2": Example(Gcn2, GCN2),
}
