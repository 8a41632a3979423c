"""Convolutions with several options at once that are not the defaults, one of each kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.conv_cases.case import FOLDED, WIDTH, ConvCase


def from_input_pyg(conv: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation, and all arguments have names."""
    return conv(x=x, x_0=x, edge_index=edges, **weights)


def by_name(conv: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """All arguments have names."""
    return conv(x=x, edge_index=edges, **weights)


def _case(make: Any, layer: str, weighted: bool = False, **more: Any) -> ConvCase:
    return ConvCase(make, layer, weighted, **{"forward": by_name, **more})


PYG = {
    "gcn-options": _case(
        lambda n: n.GCNConv(5, 3, improved=True, add_self_loops=False, bias=False),
        "conv: gcn, improved: true, add_self_loops: false, bias: false",
        True,
    ),
    "sage-options": _case(
        lambda n: n.SAGEConv(
            5, 3, aggr="max", normalize=True, root_weight=False, project=True, bias=False
        ),
        "conv: sage, aggr: max, normalize: true, root_weight: false, project: true, bias: false",
    ),
    "graph-options": _case(
        lambda n: n.GraphConv(5, 3, aggr="mean", bias=False),
        "conv: graph, aggr: mean, bias: false",
        True,
    ),
    "gat-options": _case(
        lambda n: n.GATConv(
            5, 3, heads=2, negative_slope=0.4, add_self_loops=False, residual=True, bias=False
        ),
        "conv: gat, negative_slope: 0.4, add_self_loops: false, residual: true, bias: false",
    ),
    "gatv2-options": _case(
        lambda n: n.GATv2Conv(
            5, 3, heads=2, concat=False, negative_slope=0.4, residual=True, share_weights=True
        ),
        "conv: gatv2, concat: false, negative_slope: 0.4, residual: true, share_weights: true",
    ),
    "transformer-options": _case(
        lambda n: n.TransformerConv(5, 3, heads=2, concat=False, beta=True, bias=False),
        "conv: transformer, heads: 2, concat: false, beta: true, bias: false",
    ),
    "agnn-options": _case(
        lambda n: n.AGNNConv(add_self_loops=False),
        "conv: agnn, add_self_loops: false",
        more=WIDTH,
    ),
    "appnp-options": _case(
        lambda n: n.APPNP(2, 0.3, add_self_loops=False),
        "conv: appnp, K: 2, alpha: 0.3, add_self_loops: false",
        True,
        more=WIDTH,
    ),
    "sg-options": _case(
        lambda n: n.SGConv(5, 3, K=2, add_self_loops=False, bias=False),
        "conv: sg, K: 2, add_self_loops: false, bias: false",
        True,
    ),
    "ssg-options": _case(
        lambda n: n.SSGConv(5, 3, 0.3, K=2, add_self_loops=False),
        "conv: ssg, alpha: 0.3, K: 2, add_self_loops: false",
        True,
    ),
    "lg-options": _case(
        lambda n: n.LGConv(normalize=False), "conv: lg, normalize: false", True, more=WIDTH
    ),
    "tag-options": _case(
        lambda n: n.TAGConv(5, 3, K=2, normalize=False, bias=False),
        "conv: tag, K: 2, normalize: false, bias: false",
        True,
    ),
    "cheb-options": _case(
        lambda n: n.ChebConv(5, 3, K=3, normalization="rw", bias=False),
        "conv: cheb, K: 3, normalization: rw, bias: false",
        True,
    ),
    "arma-options": _case(
        lambda n: n.ARMAConv(5, 3, 2, 2, act=nn.ELU(0.7), bias=False),
        "conv: arma, num_layers: 2, act: {kind: elu, slope: 0.7}, bias: false",
        True,
    ),
    "gcn2-options": _case(
        lambda n: n.GCN2Conv(5, 0.3, theta=0.4, layer=2, shared_weights=False),
        "conv: gcn2, x_0: input, alpha: 0.3, theta: 0.4, layer: 2",
        True,
        forward=from_input_pyg,
    ),
    "le-options": _case(lambda n: n.LEConv(5, 3, bias=False), "conv: le, bias: false", True),
    # FAConv demands weights where it does not normalise, and only there.
    "fa-options": _case(
        lambda n: n.FAConv(5, eps=0.3, add_self_loops=False),
        "conv: fa, x_0: input, eps: 0.3, add_self_loops: false",
        forward=from_input_pyg,
    ),
    "pna-options": _case(
        lambda n: n.PNAConv(
            6,
            4,
            ["mean", "std", "max"],
            ["identity", "attenuation"],
            torch.tensor([0, 3, 5, 2]),
            towers=2,
            divide_input=True,
            pre_layers=2,
            act="elu",
            act_kwargs={"alpha": 0.7},
        ),
        "conv: pna, aggregators: [mean, std, max], scalers: [identity, attenuation],"
        " divide_input: true, act: {kind: elu, slope: 0.7}",
    ),
}


def with_lambda(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """DGL's ChebConv asks for the largest eigenvalue where it is not given."""
    return conv(graph, x, lambda_max=[2.0])


def from_input_dgl(conv: Any, graph: Any, x: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation."""
    return conv(graph, x, feat_0=x, **weights)


def edges_by_name(conv: Any, graph: Any, x: Tensor, features: Tensor) -> Tensor:
    """The features of edges have a name."""
    return conv(graph, x, edge_feat=features).flatten(1)


_ZERO = {"allow_zero_in_degree": True}

DGL = {
    "gcn-options": ConvCase(
        lambda n: n.GraphConv(5, 3, norm="right", bias=False, activation=torch.tanh, **_ZERO),
        "conv: gcn, norm: right, bias: false, activation: tanh",
        True,
    ),
    "sage-options": ConvCase(
        lambda n: n.SAGEConv(5, 3, "gcn", bias=False, norm=nn.LayerNorm(3), activation=nn.ELU()),
        "conv: sage, aggregator_type: gcn, bias: false, activation: elu, layer_norm: true,"
        " order: [activation, layer_norm]",
    ),
    "gat-options": ConvCase(
        lambda n: n.GATConv(5, 3, 2, negative_slope=0.4, residual=True, bias=False, **_ZERO),
        "conv: gat, negative_slope: 0.4, residual: true, bias: false, edge_weight: true",
        True,
    ),
    "gatv2-options": ConvCase(
        lambda n: n.GATv2Conv(5, 3, 2, negative_slope=0.4, share_weights=True, **_ZERO),
        "conv: gatv2, negative_slope: 0.4, share_weights: true",
    ),
    "edge-gat-options": ConvCase(
        lambda n: n.EdgeGATConv(
            5, 3, 3, 2, negative_slope=0.4, residual=False, bias=False, **_ZERO
        ),
        "conv: edge_gat, negative_slope: 0.4, residual: false, bias: false",
        features=3,
        forward=edges_by_name,
    ),
    "dotgat-options": ConvCase(
        lambda n: n.DotGatConv(5, 3, 2, **_ZERO), "conv: dotgat, num_heads: 2"
    ),
    "agnn-options": ConvCase(lambda n: n.AGNNConv(**_ZERO), "conv: agnn", more=WIDTH),
    "appnp-options": ConvCase(
        lambda n: n.APPNPConv(2, 0.3),
        "conv: appnp, k: 2, alpha: 0.3, edge_weight: true",
        True,
        more=WIDTH,
    ),
    "sg-options": ConvCase(
        lambda n: n.SGConv(5, 3, k=2, bias=False, cached=True, **_ZERO),
        "conv: sg, k: 2, bias: false",
    ),
    "pna-options": ConvCase(
        lambda n: n.PNAConv(
            6, 4, ["mean", "max", "std"], ["identity", "attenuation"], 2.5, num_towers=2
        ),
        "conv: pna, aggregators: [mean, max, std], scalers: [identity, attenuation], delta: 2.5",
        tolerance=FOLDED,
    ),
    "tag-options": ConvCase(
        lambda n: n.TAGConv(5, 3, k=2, bias=False, activation=torch.relu),
        "conv: tag, k: 2, bias: false, activation: relu, edge_weight: true",
        True,
    ),
    "cheb-options": ConvCase(
        lambda n: n.ChebConv(5, 3, 3, bias=False, activation=torch.relu),
        "conv: cheb, k: 3, bias: false, activation: relu",
        forward=with_lambda,
    ),
    "gcn2-options": ConvCase(
        lambda n: n.GCN2Conv(5, 2, alpha=0.3, lambda_=0.4, bias=False, **_ZERO),
        "conv: gcn2, feat_0: input, layer: 2, alpha: 0.3, lambda_: 0.4, bias: false,"
        " edge_weight: true",
        True,
        forward=from_input_dgl,
    ),
}
