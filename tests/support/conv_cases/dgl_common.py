"""DGL's convolutions that most models have: every option, and examples for docs/model.md."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.conv_cases.case import FOLDED, ConvCase, Example, Make
from tests.support.dgl_library import dgl

WIDE, NARROW = (5, 12), (12, 4)

Case = partial(ConvCase, on_grids=True)
"""A case that every grid runs, unless it differs in how it is read, not in what is computed."""


def gcn(norm: str, size: tuple[int, int], **more: Any) -> Make:
    return lambda c: c.GraphConv(*size, norm=norm, allow_zero_in_degree=True, **more)


def sage(kind: str, size: tuple[int, int], **more: Any) -> Make:
    return lambda c: c.SAGEConv(*size, kind, **more)


def attention(name: str, size: tuple[int, int, int], **more: Any) -> Make:
    return lambda c: getattr(c, name)(*size, allow_zero_in_degree=True, **more)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 9, bias=False), nn.LayerNorm(9), nn.Tanh(), nn.Dropout(), nn.Linear(9, 4)
    )


def mean_heads(conv: Any, graph: Any, x: torch.Tensor) -> torch.Tensor:
    """The mean of the heads' results."""
    return conv(graph, x).mean(1)


# Of both orders of product and aggregation, grids see one with edge weights and one without.
CASES = {
    **{
        f"gcn-{norm}-{'wide' if size == WIDE else 'narrow'}{'-weighted' * weights}": Case(
            gcn(norm, size),
            f"conv: gcn, norm: {norm}",
            weights,
            on_grids=weights == (size == NARROW),
        )
        for norm in ("both", "right", "left", "none")
        for size in (WIDE, NARROW)
        for weights in (False, True)
    },
    "gcn-default": Case(gcn("both", NARROW), "conv: gcn", True, on_grids=False),
    "gcn-ignores-weights": Case(
        gcn("both", NARROW), "conv: gcn, edge_weight: false", weights_unread=True, on_grids=False
    ),
    "gcn-no-bias": Case(gcn("both", NARROW, bias=False), "conv: gcn, bias: false", on_grids=False),
    "gcn-no-bias-wide": Case(
        gcn("both", WIDE, bias=False), "conv: gcn, bias: false", on_grids=False
    ),
    "gcn-no-weight": Case(gcn("both", (5, 5), weight=False), "conv: gcn, weight: false"),
    **{
        f"sage-{kind}-{'wide' if size == WIDE else 'narrow'}{'-weighted' * weights}": Case(
            sage(kind, size),
            f"conv: sage, aggregator_type: {kind}",
            weights,
            on_grids=weights == (size == NARROW),
        )
        for kind in ("mean", "gcn", "pool")
        for size in (WIDE, NARROW)
        for weights in (False, True)
    },
    "sage-infer-mean": Case(sage("mean", NARROW), "conv: sage", on_grids=False),
    "sage-infer-gcn": Case(sage("gcn", WIDE), "conv: sage", on_grids=False),
    "sage-infer-pool": Case(sage("pool", WIDE), "conv: sage", on_grids=False),
    "sage-gcn-no-bias": Case(
        sage("gcn", WIDE, bias=False), "conv: sage, bias: false", on_grids=False
    ),
    "sage-mean-no-bias": Case(
        sage("mean", WIDE, bias=False), "conv: sage, bias: false", on_grids=False
    ),
    "gat": Case(attention("GATConv", (5, 4, 3)), "conv: gat"),
    "gat-one-head": Case(
        attention("GATConv", (5, 4, 1)), "conv: gat, num_heads: 1", on_grids=False
    ),
    "gat-average": Case(
        attention("GATConv", (5, 4, 3)), "conv: gat, concat: false", forward=mean_heads
    ),
    "gat-slope": Case(
        attention("GATConv", (5, 4, 3), negative_slope=0.7),
        "conv: gat, negative_slope: 0.7",
        on_grids=False,
    ),
    "gat-residual-projected": Case(
        attention("GATConv", (5, 4, 3), residual=True), "conv: gat, residual: true"
    ),
    "gat-residual-projected-no-bias": Case(
        attention("GATConv", (5, 4, 3), residual=True, bias=False),
        "conv: gat, residual: true, bias: false",
        on_grids=False,
    ),
    "gat-residual-same": Case(
        attention("GATConv", (12, 4, 3), residual=True), "conv: gat, residual: true"
    ),
    "gat-no-bias": Case(
        attention("GATConv", (5, 4, 3), bias=False), "conv: gat, bias: false", on_grids=False
    ),
    "gat-weighted": Case(attention("GATConv", (5, 4, 3)), "conv: gat, edge_weight: true", True),
    "gat-average-behind-activation": Case(
        attention("GATConv", (5, 4, 3), activation=functional.elu),
        "conv: gat, concat: false, activation: elu, order: [activation, average]",
        forward=mean_heads,
    ),
    "gatv2": Case(attention("GATv2Conv", (5, 4, 3)), "conv: gatv2, num_heads: 3"),
    "gatv2-average": Case(
        attention("GATv2Conv", (5, 4, 3)), "conv: gatv2, concat: false", forward=mean_heads
    ),
    "gatv2-shared": Case(
        attention("GATv2Conv", (5, 4, 3), share_weights=True),
        "conv: gatv2, share_weights: true",
        on_grids=False,
    ),
    "gatv2-slope-no-bias": Case(
        attention("GATv2Conv", (5, 4, 3), negative_slope=0.6, bias=False),
        "conv: gatv2, negative_slope: 0.6, bias: false",
        on_grids=False,
    ),
    "gatv2-residual-projected": Case(
        attention("GATv2Conv", (5, 4, 3), residual=True), "conv: gatv2, residual: true"
    ),
    "gatv2-residual-same": Case(
        attention("GATv2Conv", (12, 4, 3), residual=True), "conv: gatv2, residual: true"
    ),
    "dotgat": Case(attention("DotGatConv", (5, 4, 3)), "conv: dotgat, num_heads: 3"),
    "dotgat-average": Case(
        attention("DotGatConv", (5, 4, 3)),
        "conv: dotgat, num_heads: 3, concat: false",
        forward=mean_heads,
    ),
    **{
        f"gin-{kind}{'-weighted' * weights}": Case(
            lambda c, kind=kind: c.GINConv(nn.Linear(5, 4), kind, init_eps=0.3),
            f"conv: gin, aggregator_type: {kind}",
            weights,
            on_grids=kind != "mean",
        )
        for kind in ("sum", "mean", "max")
        for weights in (False, True)
    },
    "gin-mlp": Case(
        lambda c: c.GINConv(mlp(), "sum", learn_eps=True, activation=torch.relu),
        "conv: gin, activation: relu,"
        " mlp: [{linear: '0', bias: false}, layer_norm, tanh, {linear: '4'}]",
    ),
}


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
