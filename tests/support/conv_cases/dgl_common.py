"""DGL's convolutions that most models have: every option."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.support.conv_cases.case import ConvCase, Make

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
