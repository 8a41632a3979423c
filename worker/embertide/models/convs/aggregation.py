"""How the neighbours' rows become one, by the words that PyG has for it."""

from __future__ import annotations

from typing import Literal

from embertide.models.builder import ProgramBuilder

Aggr = Literal["add", "sum", "mean", "max", "min", "var", "std"]

LINEAR = ("add", "sum", "mean")
"""Those that a product may stand before or behind."""
_SMALLEST = 1e-5
"""Variances below it count as none (torch_geometric.nn.aggr.StdAggregation)."""


def aggregate(b: ProgramBuilder, x: str, aggr: str, *, edge_weight: bool = False) -> str:
    """Rows of ``x`` over in-edges, each times its weight where weights count.

    ``min``, ``var`` and ``std`` go the general way of messages.
    """
    match aggr:
        case "add" | "sum":
            return b.aggregate(x, edge_weight=edge_weight)
        case "mean":
            return b.aggregate(x, norm="in", edge_weight=edge_weight)
        case "max":
            return b.aggregate(x, reduce="max", edge_weight=edge_weight)
        case "std":
            return _root(b, aggregate(b, x, "var", edge_weight=edge_weight))
    lines = ("out = mul(s, w)",) if edge_weight else ("out = same(s)",)
    reduce: Literal["min", "var"] = "min" if aggr == "min" else "var"
    return b.message(x, lines, b.widths[x], reduce=reduce, edge_weight=edge_weight)


def _root(b: ProgramBuilder, variance: str) -> str:
    """PyG's standard deviation: what is below the smallest is zero."""
    lines = (
        f"a = gt(x0, {_SMALLEST})",
        f"b = clamp(x0, {_SMALLEST})",
        "c = sqrt(b)",
        "out = where(a, c, 0.0)",
    )
    return b.row_wise((variance,), lines, (), b.widths[variance])
