"""How the neighbours' rows become one, by the words that PyG has for it."""

from __future__ import annotations

from typing import Any

from embertide.kernels.segments import Reduce
from embertide.models.builder import ProgramBuilder

LINEAR = ("add", "sum", "mean")
"""Those that a product may stand before or after."""
REDUCES: dict[str, Reduce] = {
    "add": "sum",
    "sum": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
    "var": "var",
}
"""The libraries' names of what one reduction makes."""
_REDUCE = REDUCES | {"std": "var"}
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
    lines = ("out = mul(s, w)",) if edge_weight else ("out = same(s)",)
    return aggregate_messages(b, x, lines, b.widths[x], aggr, edge_weight=edge_weight)


def aggregate_messages(
    b: ProgramBuilder,
    x: str,
    lines: tuple[str, ...],
    width: int,
    aggr: str,
    *,
    target: str | None = None,
    params: tuple[str, ...] = (),
    edge_weight: bool = False,
    edge_features: int = 0,
) -> str:
    """The same for messages that are lines of operations; a node without any has zeros."""
    total = b.message(
        x,
        lines,
        width,
        reduce=_REDUCE[aggr],
        target=target,
        params=params,
        edge_weight=edge_weight,
        edge_features=edge_features,
    )
    return _root(b, total) if aggr == "std" else total


def _root(b: ProgramBuilder, variance: str) -> str:
    """PyG's standard deviation: what is below the smallest is zero."""
    lines = (
        f"a = gt(x0, {_SMALLEST})",
        f"b = clamp(x0, {_SMALLEST})",
        "c = sqrt(b)",
        "out = where(a, c, 0.0)",
    )
    return b.row_wise((variance,), lines, (), b.widths[variance])


def aggregation_kind(aggr: Any) -> str:
    """What one of PyG's aggregation modules does, by its class, such as ``MeanAggregation``."""
    return type(aggr).__name__.removesuffix("Aggregation").lower()


def are_steps(aggr: Any) -> bool:
    """Whether every aggregation of a live module is one that steps have, side by side."""
    if hasattr(aggr, "aggrs"):
        return aggr.mode == "cat" and all(map(are_steps, aggr.aggrs))
    return aggregation_kind(aggr) in (*REDUCES, "std")


def aggregates_otherwise(module: Any) -> bool:
    """Whether a live module aggregates by what no step has, such as softmax."""
    return not are_steps(module.aggr_module)
