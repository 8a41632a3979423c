"""Models made with DGL, each with its model.yaml: the examples of docs/model.md.

Classes name ``dgl`` where a model is made, so that the page can be written without it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from embertide.models.dgl_interop import load_dgl, why_no_dgl
from tests.support.model_example import FOLDED, Example

dgl: Any = None if why_no_dgl() else load_dgl()


class Gcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        zero = {"allow_zero_in_degree": True}
        self.layers = nn.ModuleList(
            [dgl.nn.GraphConv(5, 8, norm="right", **zero), dgl.nn.GraphConv(8, 8, **zero)]
        )
        self.norm, self.slopes = nn.LayerNorm(8), nn.PReLU(8)

    def forward(self, graph: Any, x: Tensor, edge_weight: Any = None) -> Tensor:
        h = self.slopes(self.norm(self.layers[0](graph, x, edge_weight=edge_weight)))
        return h + self.layers[1](graph, h, edge_weight=edge_weight).relu()


GCN = """
library: dgl
layers:
  - conv: gcn
    norm: right
    layer_norm: true
    activation: {kind: prelu, prefix: slopes}
  - conv: gcn
    activation: relu
    skip: true                # h + ...: the layer's input, added after the activation
"""


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = dgl.nn.SAGEConv(5, 8, "pool", activation=functional.relu)
        self.conv2 = dgl.nn.SAGEConv(8, 4, "mean")

    def forward(self, graph: Any, x: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(graph, self.conv1(graph, x, edge_weight), edge_weight)


SAGE = """
library: dgl
layers:
  - {conv: sage, aggregator_type: pool, activation: relu}
  - {conv: sage, aggregator_type: mean}
"""


class Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        zero = {"allow_zero_in_degree": True}
        self.gat1 = dgl.nn.GATConv(5, 4, num_heads=3, activation=functional.elu, **zero)
        self.gat2 = dgl.nn.GATConv(12, 4, num_heads=2, residual=True, **zero)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.gat2(graph, self.gat1(graph, x).flatten(1)).mean(1)


GAT = """
library: dgl
layers:
  - {conv: gat, activation: elu}                     # heads joined, as .flatten(1) does
  - {conv: gat, residual: true, concat: false}       # heads averaged, as .mean(1) does
"""


class Gatv2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dgl.nn.GATv2Conv(5, 4, 3, share_weights=True, allow_zero_in_degree=True)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, x).mean(1).tanh()


GATV2 = """
library: dgl
layers:
  - {conv: gatv2, share_weights: true, concat: false, activation: tanh}
"""


class DotGat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dgl.nn.DotGatConv(5, 4, num_heads=3, allow_zero_in_degree=True)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return functional.elu(self.conv(graph, x)).mean(1)


DOTGAT = """
library: dgl
layers:
  - conv: dotgat
    num_heads: 3
    concat: false
    activation: elu
    order: [activation, average]      # each head passes the activation before the mean
"""


class Gin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), nn.Linear(8, 4))
        self.conv = dgl.nn.GINConv(inner, "max", learn_eps=True)

    def forward(self, graph: Any, x: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv(graph, x, edge_weight)


GIN = """
library: dgl
layers:
  - conv: gin
    aggregator_type: max
    mlp: [{linear: "0", bias: false}, relu, {linear: "2"}]
"""


class Propagate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dgl.nn.SGConv(5, 4, k=2, allow_zero_in_degree=True)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, x)


PROPAGATE = """
library: dgl
layers:
  - {conv: propagate, k: 2, norm: in_degree}
  - {conv: linear, prefix: conv.fc}
"""


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.norm = nn.Linear(5, 8), nn.BatchNorm1d(8)
        self.conv = dgl.nn.GraphConv(8, 8, allow_zero_in_degree=True)
        self.head = nn.Linear(8, 4)

    def forward(self, graph: Any, x: Tensor, edge_weight: Any = None) -> Tensor:
        x = self.norm(self.encoder(x)).relu()
        return self.head(self.conv(graph, x, edge_weight=edge_weight).relu())


LINEAR = """
library: dgl
layers:
  - {conv: linear, prefix: encoder, batch_norm: true, activation: relu}
  - {conv: gcn, activation: relu}
  - {conv: linear, prefix: head}
"""


class JumpingKnowledge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = dgl.nn.SAGEConv(5, 8, "mean", activation=functional.relu)
        self.conv2 = dgl.nn.SAGEConv(8, 8, "mean", activation=functional.relu)
        self.join = dgl.nn.JumpingKnowledge("max")

    def forward(self, graph: Any, x: Tensor, edge_weight: Any = None) -> Tensor:
        one = self.conv1(graph, x, edge_weight)
        return self.join([one, self.conv2(graph, one, edge_weight)])


JUMPING_KNOWLEDGE = """
library: dgl
layers:
  - {conv: sage, activation: relu}
  - {conv: sage, activation: relu}
  - {conv: jumping_knowledge, mode: max}
"""

EXAMPLES = {
    "gcn": Example(Gcn, GCN, weighted=True),
    "sage": Example(Sage, SAGE, weighted=True),
    "gat": Example(Gat, GAT),
    "gatv2": Example(Gatv2, GATV2),
    "dotgat": Example(DotGat, DOTGAT),
    "gin": Example(Gin, GIN, weighted=True),
    "propagate": Example(Propagate, PROPAGATE),
    "linear": Example(Linear, LINEAR, weighted=True, tolerance=FOLDED),
    "jumping_knowledge": Example(JumpingKnowledge, JUMPING_KNOWLEDGE, weighted=True),
}
