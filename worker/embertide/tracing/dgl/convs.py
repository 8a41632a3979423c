"""DGL's convolutions that are known as a whole."""

from __future__ import annotations

import math
from typing import Any

from embertide.models.options import dgl, dgl_edges, dgl_filters
from embertide.tracing.record.known_convs import Conv

_ATTENTION = {
    "negative_slope": lambda m: m.leaky_relu.negative_slope,
    "residual": lambda m: m.res_fc is not None,
}


def _lstm(m: Any) -> str:
    lstm = m._aggre_type == "lstm"
    return "aggregator_type='lstm', which depends on the order of edges" if lstm else ""


def _moments(m: Any) -> bool:
    """Aggregators of PNAConv that no step has."""
    return any(one.startswith("moment") for one in m.towers[0].aggregators)


def _attention_bias(m: Any) -> bool:
    """Where there is a projected residual, it has the bias."""
    return m.bias is not None or getattr(m.res_fc, "bias", None) is not None


def _sage_bias(m: Any) -> bool:
    """``gcn`` has a bias of its own, the others have it in fc_self."""
    own = m.bias if m._aggre_type == "gcn" else m.fc_self.bias
    return own is not None


DGL: dict[str, Conv] = {
    "GraphConv": Conv(
        dgl.DglGcn,
        told={"weight": lambda m: m.weight is not None},
        after=("_activation",),
        matrix="weight",
        x="feat",
        weight="edge_weight",
    ),
    "SAGEConv": Conv(
        dgl.DglSage,
        bias="",
        told={"bias": _sage_bias, "aggregator_type": lambda m: m._aggre_type},
        after=("activation", "norm"),
        problem=_lstm,
        x="feat",
        weight="edge_weight",
    ),
    "GATConv": Conv(
        dgl.DglGat,
        bias="",
        told={**_ATTENTION, "bias": _attention_bias},
        x="feat",
        weight="edge_weight",
        after=("activation",),
    ),
    "GATv2Conv": Conv(
        dgl.DglGatv2,
        bias="fc_src.bias",
        told=_ATTENTION,
        x="feat",
        after=("activation",),
    ),
    "EdgeGATConv": Conv(
        dgl_edges.DglEdgeGat,
        told={
            "negative_slope": lambda m: m.leaky_relu.negative_slope,
            "residual": lambda m: m.res_fc is not None,
            "edge_feats": lambda m: m.fc_edge.in_features,
            "num_heads": lambda m: m._num_heads,
        },
        x="feat",
        features="edge_feat",
        columns="edge_feats",
        projection="fc_edge",
        after=("activation",),
    ),
    "DotGatConv": Conv(dgl.DglDotGat, bias="", x="feat", one_frame=True),
    "AGNNConv": Conv(dgl_filters.DglAgnn, bias="", x="feat"),
    "APPNPConv": Conv(dgl_filters.DglAppnp, bias="", x="feat", weight="edge_weight"),
    "SGConv": Conv(
        dgl_filters.DglSg,
        bias="fc.bias",
        x="feat",
        weight="edge_weight",
        by_messages=lambda m: m.norm is not None,
    ),
    "TAGConv": Conv(
        dgl_filters.DglTag, bias="lin.bias", after=("_activation",), x="feat", weight="edge_weight"
    ),
    "ChebConv": Conv(
        dgl_filters.DglCheb,
        bias="linear.bias",
        x="feat",
        given={
            "lambda_max": "without it, the largest eigenvalue is computed from the whole graph, and"
            " another one for each: give it that of training, as lambda_max=[1.9] of what"
            " dgl.laplacian_lambda_max says, or its bound, [2.0]"
        },
        after=("activation",),
    ),
    "PNAConv": Conv(
        dgl_filters.DglPna,
        told={
            "aggregators": lambda m: m.towers[0].aggregators,
            "scalers": lambda m: m.towers[0].scalers,
            "delta": lambda m: m.towers[0].delta,
            "bias": lambda _m: True,
        },
        bias="",
        x="node_feat",
        features="edge_feat",
        projection="edge_feat_size",
        by_messages=_moments,
    ),
    "GCN2Conv": Conv(
        dgl_filters.DglGcn2,
        # With layer=1, what makes the module's own share of the weights.
        told={"layer": lambda _m: 1, "lambda_": lambda m: math.exp(m.beta) - 1.0},
        earlier="feat_0",
        after=("_activation",),
        x="feat",
        weight="edge_weight",
    ),
}
"""By class."""
