"""Convolutions of the libraries that `embertide export` writes as messages, by what they do.

Each is made for 5 columns of nodes, or 6, and 3 of edges, with options that are not the defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

WITHOUT_EDGES = (
    *("GINConv", "EdgeConv", "FeaStConv", "FiLMConv", "SimpleConv", "SuperGATConv"),
    *("ClusterGCNConv", "MFConv", "MixHopConv", "EGConv", "GatedGraphConv"),
    "WLConvContinuous",
)
"""Those whose forward takes no features of edges."""

PYG: dict[str, Callable[[Any], nn.Module]] = {
    "GINConv": lambda c: c.GINConv(nn.Linear(5, 3), eps=0.3),
    "GINEConv": lambda c: c.GINEConv(nn.Linear(5, 3), edge_dim=3, aggr="max"),
    "NNConv": lambda c: c.NNConv(5, 3, nn.Linear(3, 15), aggr="mean"),
    "CGConv": lambda c: c.CGConv(5, dim=3, batch_norm=True),
    "ResGatedGraphConv": lambda c: c.ResGatedGraphConv(5, 3, edge_dim=3, bias=False),
    "GMMConv": lambda c: c.GMMConv(5, 3, 3, 2, separate_gaussians=True),
    "GENConv": lambda c: c.GENConv(5, 3, aggr="mean", edge_dim=3),
    "PDNConv": lambda c: c.PDNConv(5, 3, 3, 4, add_self_loops=False, normalize=False),
    "PNAConv": lambda c: c.PNAConv(
        5,
        4,
        ["mean", "std", "min", "max", "sum", "var"],
        ["identity", "amplification", "attenuation", "linear", "inverse_linear"],
        torch.tensor([0, 3, 5, 2]),
        edge_dim=3,
        towers=2,
        pre_layers=2,
    ),
    "EdgeConv": lambda c: c.EdgeConv(nn.Linear(10, 3)),
    "FeaStConv": lambda c: c.FeaStConv(5, 3, 2, add_self_loops=False),
    "FiLMConv": lambda c: c.FiLMConv(5, 3, act=None),
    "SimpleConv": lambda c: c.SimpleConv(aggr="mean", combine_root="cat"),
    "SuperGATConv": lambda c: c.SuperGATConv(5, 3, heads=2, concat=False, add_self_loops=False),
    "ClusterGCNConv": lambda c: c.ClusterGCNConv(5, 3, diag_lambda=0.3, bias=False),
    "MFConv": lambda c: c.MFConv(5, 3, max_degree=4, aggr="mean"),
    "MixHopConv": lambda c: c.MixHopConv(5, 3, powers=[0, 2]),
    "EGConv": lambda c: c.EGConv(5, 8, ["symnorm", "max", "std"], num_heads=2, num_bases=3),
    "GatedGraphConv": lambda c: c.GatedGraphConv(6, 2, aggr="mean"),
    "WLConvContinuous": lambda c: c.WLConvContinuous(),
    "GeneralConv": lambda c: c.GeneralConv(
        5, 3, 3, heads=2, attention=True, attention_type="dot_product", directed_msg=False
    ),
}
DGL: dict[str, Callable[[Any], nn.Module]] = {
    "GatedGraphConv": lambda c: c.GatedGraphConv(5, 6, 2, 1),
    "GINConv": lambda c: c.GINConv(nn.Linear(5, 3), "max", init_eps=0.3),
    "GINEConv": lambda c: c.GINEConv(nn.Linear(5, 3), init_eps=0.3),
    "NNConv": lambda c: c.NNConv(5, 3, nn.Linear(3, 15), "mean", residual=True),
    "CFConv": lambda c: c.CFConv(5, 3, 4, 3),
    "GMMConv": lambda c: c.GMMConv(5, 3, 3, 2, "max"),
    "EdgeConv": lambda c: c.EdgeConv(5, 3, batch_norm=False),
    "PNAConv": lambda c: c.PNAConv(
        5,
        5,
        ["moment4", "max", "sum"],
        ["identity", "amplification", "attenuation"],
        2.5,
        edge_feat_size=3,
    ),
    "DGNConv": lambda c: c.DGNConv(
        6,
        4,
        ["dir1-av", "dir2-dx", "mean"],
        ["amplification"],
        2.5,
        num_towers=2,
        edge_feat_size=3,
    ),
}
