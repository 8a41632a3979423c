"""PyG's convolutions that are known as a whole."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from embertide.models.options import pyg, pyg_filters
from embertide.models.options.parts import ActivationOptions
from embertide.tracing.pyg.aggregations import are_steps
from embertide.tracing.record.known_convs import Conv

_WEIGHT = "edge_weight"
_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.LeakyReLU: "leaky_relu",
}


_EDGE_DIM: dict[str, Any] = {
    "features": "edge_attr",
    "columns": "edge_dim",
    "projection": "lin_edge",
    "of_features": frozenset({"edge_dim", "fill_value"}),
}
_PROJECTED = {"edge_dim": lambda m: m.lin_edge.weight.shape[1]}


def _aggregates_otherwise(m: Any) -> bool:
    """By what no step has, such as softmax."""
    return not are_steps(m.aggr_module)


_FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((torch.relu, functional.relu), "relu"),
    **dict.fromkeys((torch.tanh, functional.tanh), "tanh"),
    **dict.fromkeys((torch.sigmoid, functional.sigmoid), "sigmoid"),
    **{functional.elu: "elu", functional.gelu: "gelu", functional.silu: "silu"},
    functional.leaky_relu: "leaky_relu",
}


def _activation(act: Any) -> ActivationOptions | None:
    """An activation's module or function; what is not listed is refused by the options."""
    if act is None:
        return None
    slope = getattr(act, "alpha", getattr(act, "negative_slope", None))
    kind: Any = _kind(act) or act
    return ActivationOptions(kind=kind, slope=slope)


def _kind(act: Any) -> str | None:
    """What ``model.yaml`` calls an activation; None of one that it has not."""
    if isinstance(act, nn.Module):
        return _ACTIVATIONS.get(type(act))
    return _FUNCTIONS.get(act)


def _pna_activation(m: Any) -> ActivationOptions | None:
    """That between the Linears of a tower; where none has several, there is none."""
    tower = max((m.pre_nns[0], m.post_nns[0]), key=len)
    return _activation(tower[1]) if len(tower) > 1 else None


def _aggregators(m: Any) -> list[str]:
    """By the names of their classes, such as ``MeanAggregation``."""
    aggr = m.aggr_module.aggr
    several = getattr(aggr, "aggrs", [aggr])
    return [type(one).__name__.removesuffix("Aggregation").lower() for one in several]


def _theta(m: Any) -> float | None:
    """With layer=1, what makes the module's own share of the weights."""
    return None if m.beta == 1.0 else math.exp(m.beta) - 1.0


PYG: dict[str, Conv] = {
    "GCNConv": Conv(pyg.PygGcn, weight=_WEIGHT),
    "SAGEConv": Conv(
        pyg.PygSage,
        bias="lin_l.bias",
        told={
            "aggr": lambda m: "mean" if isinstance(m.aggr, list) else m.aggr,
            "aggrs": lambda m: tuple(m.aggr) if isinstance(m.aggr, list) else None,
        },
        by_messages=_aggregates_otherwise,
    ),
    "GraphConv": Conv(
        pyg.PygGraph, bias="lin_rel.bias", weight=_WEIGHT, by_messages=_aggregates_otherwise
    ),
    "GATConv": Conv(pyg.PygGat, told=_PROJECTED, **_EDGE_DIM),
    "GATv2Conv": Conv(pyg.PygGatv2, bias="lin_l.bias", told=_PROJECTED, **_EDGE_DIM),
    "TransformerConv": Conv(pyg.PygTransformer, bias="lin_key.bias", told=_PROJECTED, **_EDGE_DIM),
    "AGNNConv": Conv(pyg.PygAgnn, bias=""),
    "APPNP": Conv(pyg_filters.PygAppnp, bias="", weight=_WEIGHT),
    "SGConv": Conv(pyg_filters.PygSg, bias="lin.bias", weight=_WEIGHT),
    "SSGConv": Conv(pyg_filters.PygSsg, bias="lin.bias", weight=_WEIGHT),
    "LGConv": Conv(pyg_filters.PygLg, bias="", weight=_WEIGHT),
    "TAGConv": Conv(pyg_filters.PygTag, weight=_WEIGHT),
    "ChebConv": Conv(
        pyg_filters.PygCheb,
        told={"K": lambda m: len(m.lins)},
        weight=_WEIGHT,
        given={"lambda_max": ""},
        by_messages=lambda m: m.normalization is None,
    ),
    "ARMAConv": Conv(
        pyg_filters.PygArma,
        told={"act": lambda m: _activation(m.act)},
        weight=_WEIGHT,
        by_messages=lambda m: m.act is not None and _kind(m.act) is None,
    ),
    "GCN2Conv": Conv(
        pyg_filters.PygGcn2,
        bias="",
        told={"theta": _theta, "layer": lambda m: None if m.beta == 1.0 else 1},
        weight=_WEIGHT,
        earlier="x_0",
    ),
    "LEConv": Conv(pyg.PygLe, bias="lin1.bias", weight=_WEIGHT),
    "FAConv": Conv(pyg_filters.PygFa, bias="", weight=_WEIGHT, earlier="x_0"),
    "PNAConv": Conv(
        pyg_filters.PygPna,
        told={
            "aggregators": _aggregators,
            "scalers": lambda m: m.aggr_module.scaler,
            "act": _pna_activation,
            "bias": lambda _m: True,
        },
        bias="",
        features="edge_attr",
        projection="edge_encoder",
        by_messages=lambda m: not are_steps(m.aggr_module.aggr),
    ),
}
"""By class."""
