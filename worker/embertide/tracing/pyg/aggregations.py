"""How PyG's modules aggregate messages: one way, several side by side, scaled by degrees."""

from __future__ import annotations

from typing import Any

import torch

from embertide.models.convs.shared.aggregation import REDUCES, aggregation_kind
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.user_code import here, refuse

_MADE_OF_THEM = ("std", "softmax", "powermean")
_SMALLEST = 1e-5
"""Variances up to it have a standard deviation of zero (torch_geometric.nn.aggr.StdAggregation)."""


def aggregated(edges: Edges, message: Any, aggr: Any, scope: Called, name: str) -> Any:
    """[N, ...] of messages [E, ...], by one of PyG's aggregations.

    Args:
        aggr: ``aggr_module`` of a MessagePassing, or a part of it.
        scope, name: of the module that does it.

    Raises:
        ModelError: the aggregation is not known.
    """
    kind = aggregation_kind(aggr)
    if kind in REDUCES:
        return edges.aggregate(message, REDUCES[kind], scope)
    if kind == "std":
        spread = edges.aggregate(message, "var", scope)
        return torch.where(spread > _SMALLEST, spread.clamp(min=_SMALLEST).sqrt(), 0.0)
    if kind == "softmax":
        return edges.aggregate(message * edges.softmax(message * aggr.t), "sum", scope)
    if kind == "powermean":
        return _power_mean(edges, message, aggr, scope)
    if kind == "multi" and not hasattr(aggr, "multihead_attn"):
        return aggr.combine([aggregated(edges, message, part, scope, name) for part in aggr.aggrs])
    if kind == "degreescaler":
        total = aggregated(edges, message, aggr.aggr, scope, name)
        return _scaled(edges.degree("in").view(-1, *[1] * (total.dim() - 1)), total, aggr)
    known = ", ".join(part for part in (*REDUCES, *_MADE_OF_THEM) if part != "add")
    raise refuse(
        here(),
        f"{name} aggregates by {type(aggr).__name__}; known are {known}, and several joined but by"
        " attention",
    )


def _power_mean(edges: Edges, message: Any, aggr: Any, scope: Called) -> Any:
    """torch_geometric.nn.aggr.PowerMeanAggregation."""
    p, bounds = aggr.p, {"min": aggr.min_value, "max": aggr.max_value}
    if isinstance(p, (int, float)) and p == 1:
        return edges.aggregate(message, "mean", scope)
    mean = edges.aggregate(message.clamp(**bounds).pow(p), "mean", scope)
    return mean.clamp(**bounds).pow(1.0 / p)


def _scaled(degree: Any, total: Any, aggr: Any) -> Any:
    """PNA's scalers (torch_geometric.nn.aggr.DegreeScalerAggregation), side by side."""
    least = degree.clamp(min=1)
    factors = {
        "amplification": lambda: (degree + 1).log() / aggr.avg_deg_log,
        "attenuation": lambda: aggr.avg_deg_log / (least + 1).log(),
        "linear": lambda: degree / aggr.avg_deg_lin,
        "inverse_linear": lambda: aggr.avg_deg_lin / least,
    }
    parts = [total if scaler == "identity" else total * factors[scaler]() for scaler in aggr.scaler]
    return torch.cat(parts, dim=-1)
