"""Convolutions that read features of edges: every option, and examples for docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.conv_cases.case import ConvCase, Example
from tests.support.dgl_library import dgl
from tests.support.pyg import pyg

K = 3
"""Features of each edge, where a module does not need as many as nodes have."""


def with_eps(conv: Any, *given: Any) -> Tensor:
    """The module's forward, with the eps that ``model.yaml`` says."""
    conv.eps.data.fill_(0.25)
    return conv(*given)


_ATTENTION = {
    f"{conv}-edges-{name}": ConvCase(
        lambda n, module=module, more=more: getattr(n, module)(5, 4, heads=2, edge_dim=K, **more),
        f"conv: {conv}, edge_dim: {K}{options}",
        features=K,
        on_grids=name == "mean",
    )
    for conv, module in (("gat", "GATConv"), ("gatv2", "GATv2Conv"))
    for name, more, options in (
        ("mean", {}, ""),
        ("number", {"fill_value": 0.5}, ", fill_value: 0.5"),
        *((fill, {"fill_value": fill}, f", fill_value: {fill}") for fill in ("add", "min", "max")),
        ("mul", {"fill_value": "mul"}, ", fill_value: mul"),
        ("no-loops", {"add_self_loops": False}, ", add_self_loops: false"),
        (
            "all",
            {"concat": False, "residual": True, "negative_slope": 0.6},
            ", concat: false, residual: true, negative_slope: 0.6, fill_value: mean",
        ),
    )
}

_TRANSFORMER = {
    f"transformer-edges-{name}": ConvCase(
        lambda n, more=more: n.TransformerConv(5, 4, edge_dim=K, **more),
        f"conv: transformer, edge_dim: {K}{options}",
        features=K,
        on_grids=name == "beta",
    )
    for name, more, options in (
        ("one-head", {}, ""),
        ("average", {"heads": 3, "concat": False}, ", heads: 3, concat: false"),
        ("beta", {"heads": 2, "beta": True}, ", heads: 2, beta: true"),
    )
}

_GINE = {
    f"gine-{aggr}": ConvCase(
        lambda n, aggr=aggr: n.GINEConv(nn.Linear(5, 4), eps=0.3, edge_dim=K, aggr=aggr),
        f"conv: gine, edge_dim: {K}, aggr: {aggr}",
        features=K,
    )
    for aggr in ("add", "sum", "max", "mean", "min", "var", "std")
} | {
    "gine-as-wide-as-nodes": ConvCase(
        lambda n: n.GINEConv(nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4))),
        "conv: gine, mlp: [linear, relu, linear]",
        features=5,
    ),
    "gine-eps": ConvCase(
        lambda n: n.GINEConv(nn.Linear(5, 4), eps=0.3, train_eps=True),
        "conv: gine, eps: 0.25",
        features=5,
        forward=with_eps,
    ),
}

PYG = _ATTENTION | _TRANSFORMER | _GINE

_ZERO = {"allow_zero_in_degree": True}

DGL = {
    f"edge-gat-{name}": ConvCase(
        lambda n, more=more: n.EdgeGATConv(5, K, 4, 2, **_ZERO, **more),
        f"conv: edge_gat{options}",
        features=K,
    )
    for name, more, options in (
        ("default", {}, f", edge_feats: {K}, num_heads: 2"),
        ("plain", {"residual": False, "bias": False}, ", residual: false, bias: false"),
        ("no-residual", {"residual": False}, ", residual: false"),
        ("slope", {"negative_slope": 0.6, "bias": False}, ", negative_slope: 0.6, bias: false"),
    )
} | {
    "edge-gat-average": ConvCase(
        lambda n: n.EdgeGATConv(5, K, 4, 2, **_ZERO),
        "conv: edge_gat, concat: false",
        features=K,
        forward=lambda conv, *given: conv(*given).mean(1),
    ),
    "gine": ConvCase(
        lambda n: n.GINEConv(nn.Linear(5, 4), init_eps=0.3), "conv: gine", features=5
    ),
    "gine-learnt": ConvCase(
        lambda n: n.GINEConv(nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4)), 0.3, True),
        "conv: gine, mlp: [linear, relu, linear]",
        features=5,
    ),
    "gine-eps": ConvCase(
        lambda n: n.GINEConv(nn.Linear(5, 4), init_eps=0.25),
        "conv: gine, eps: 0.25",
        features=5,
        forward=with_eps,
    ),
}  # fmt: skip


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

PYG_EXAMPLES = {"gine": Example(Gine, GINE, features=3)}
DGL_EXAMPLES = {
    "gine": Example(DglGine, DGL_GINE, features=3),
    "edge_gat": Example(EdgeGat, EDGE_GAT, features=3),
}
