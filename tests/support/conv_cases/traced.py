"""Convolutions of the libraries that `embertide export` writes as messages, by what they do.

Each is made for 5 columns of nodes, or 6, and 3 of edges, with options that are not the defaults.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.conv_cases.case import ConvCase, Forward, Make

EDGES = 3
"""Columns of the edges' features."""


def as_is(conv: Any, *given: Any) -> Tensor:
    """The module's forward."""
    return conv(*given)


def with_directions(conv: Any, graph: Any, x: Tensor, features: Tensor) -> Tensor:
    """DGNConv's forward; columns of the nodes are the directions."""
    return conv(graph, x, features, eig_vec=x[:, :2])


def _case(make: Make, features: int = EDGES, forward: Forward = as_is) -> ConvCase:
    return ConvCase(make, features=features, forward=forward)


PYG = {
    "GINConv": _case(lambda n: n.GINConv(nn.Linear(5, 3), eps=0.3), features=0),
    "GINEConv": _case(lambda n: n.GINEConv(nn.Linear(5, 3), edge_dim=3, aggr="max")),
    "NNConv": _case(lambda n: n.NNConv(5, 3, nn.Linear(3, 15), aggr="mean")),
    "CGConv": _case(lambda n: n.CGConv(5, dim=3, batch_norm=True)),
    "ResGatedGraphConv": _case(lambda n: n.ResGatedGraphConv(5, 3, edge_dim=3, bias=False)),
    "GMMConv": _case(lambda n: n.GMMConv(5, 3, 3, 2, separate_gaussians=True)),
    "GENConv": _case(lambda n: n.GENConv(5, 3, aggr="mean", edge_dim=3)),
    "PDNConv": _case(lambda n: n.PDNConv(5, 3, 3, 4, add_self_loops=False, normalize=False)),
    "PNAConv": _case(
        lambda n: n.PNAConv(
            5,
            4,
            ["mean", "std", "min", "max", "sum", "var"],
            ["identity", "amplification", "attenuation", "linear", "inverse_linear"],
            torch.tensor([0, 3, 5, 2]),
            edge_dim=3,
            towers=2,
            pre_layers=2,
        )
    ),
    "EdgeConv": _case(lambda n: n.EdgeConv(nn.Linear(10, 3)), features=0),
    "FeaStConv": _case(lambda n: n.FeaStConv(5, 3, 2, add_self_loops=False), features=0),
    "FiLMConv": _case(lambda n: n.FiLMConv(5, 3, act=None), features=0),
    "SimpleConv": _case(lambda n: n.SimpleConv(aggr="mean", combine_root="cat"), features=0),
    "SuperGATConv": _case(
        lambda n: n.SuperGATConv(5, 3, heads=2, concat=False, add_self_loops=False), features=0
    ),
    "ClusterGCNConv": _case(
        lambda n: n.ClusterGCNConv(5, 3, diag_lambda=0.3, bias=False), features=0
    ),
    "MFConv": _case(lambda n: n.MFConv(5, 3, max_degree=4, aggr="mean"), features=0),
    "MixHopConv": _case(lambda n: n.MixHopConv(5, 3, powers=[0, 2]), features=0),
    "EGConv": _case(
        lambda n: n.EGConv(5, 8, ["symnorm", "max", "std"], num_heads=2, num_bases=3), features=0
    ),
    "GatedGraphConv": _case(lambda n: n.GatedGraphConv(6, 2, aggr="mean"), features=0),
    "WLConvContinuous": _case(lambda n: n.WLConvContinuous(), features=0),
    "GeneralConv": _case(
        lambda n: n.GeneralConv(
            5, 3, 3, heads=2, attention=True, attention_type="dot_product", directed_msg=False
        )
    ),
}
DGL = {
    "GatedGraphConv": _case(lambda n: n.GatedGraphConv(5, 6, 2, 1), features=0),
    "GINConv": _case(lambda n: n.GINConv(nn.Linear(5, 3), "max", init_eps=0.3), features=0),
    "GINEConv": _case(lambda n: n.GINEConv(nn.Linear(5, 3), init_eps=0.3), features=5),
    "NNConv": _case(lambda n: n.NNConv(5, 3, nn.Linear(3, 15), "mean", residual=True)),
    "CFConv": _case(lambda n: n.CFConv(5, 3, 4, 3)),
    "GMMConv": _case(lambda n: n.GMMConv(5, 3, 3, 2, "max")),
    "EdgeConv": _case(lambda n: n.EdgeConv(5, 3, batch_norm=False), features=0),
    "PNAConv": _case(
        lambda n: n.PNAConv(
            5,
            5,
            ["moment4", "max", "sum"],
            ["identity", "amplification", "attenuation"],
            2.5,
            edge_feat_size=3,
        )
    ),
    "DGNConv": _case(
        lambda n: n.DGNConv(
            6,
            4,
            ["dir1-av", "dir2-dx", "mean"],
            ["amplification"],
            2.5,
            num_towers=2,
            edge_feat_size=3,
        ),
        forward=with_directions,
    ),
}

_AGGREGATORS: dict[str, dict[str, Any]] = {
    "side by side": {"aggr": ["mean", "max"]},
    "joined": {"aggr": ["std", "softmax"], "aggr_kwargs": {"mode": "max"}},
    "projected": {
        "aggr": ["mean", "min"],
        "aggr_kwargs": {"mode": "proj", "mode_kwargs": {"in_channels": 5, "out_channels": 5}},
    },
    "softmax": {"aggr": "softmax", "aggr_kwargs": {"learn": True, "channels": 5}},
    "power mean": {"aggr": "powermean", "aggr_kwargs": {"p": 2.0}},
}
AGGREGATORS = {
    f"sage {name}": _case(lambda n, given=given: n.SAGEConv(5, 3, **given), features=0)
    for name, given in _AGGREGATORS.items()
}
"""Ways to aggregate that ``model.yaml`` does not describe."""
