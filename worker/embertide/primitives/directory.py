"""Looking up a few numbers per node at the worker that owns the node."""

from __future__ import annotations

import torch

from embertide.grid import Axis, RowRanges
from embertide.metrics import Label
from embertide.primitives.exchange import Exchange


def split_by_owner(
    nodes: torch.Tensor, bounds: tuple[int, ...]
) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Order node ids by owning range.

    Returns:
        order [k] (stable), how many each range owns, and the row within its owner [k], ordered.
    """
    edges = torch.tensor(bounds, dtype=torch.int64)
    owner = torch.searchsorted(edges, nodes, right=True) - 1
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=len(bounds) - 1).tolist()
    return order, counts, nodes[order] - edges[owner[order]]


def look_up(
    exchange: Exchange,
    label: Label,
    ranges: RowRanges,
    values: torch.Tensor,
    nodes: torch.Tensor,
) -> torch.Tensor:
    """Values of any nodes from a table that is spread in the ``rows`` layout.

    Every worker must call. Moves 8 bytes per node out and a row of ``values`` back.

    Args:
        values: [N/(P*M)] or [N/(P*M), k], our sub-range's part, on the CPU.
        nodes: [n] int64 dense ids, any order.
    """
    axis: Axis = exchange.grid.world_axis
    order, counts, rows = split_by_owner(nodes, ranges.workers)
    device = exchange.device
    asked = exchange.all_to_all(label, axis, list(rows.to(device).split(counts)))
    answers = [values.to(device)[theirs] for theirs in asked]
    found = torch.cat(exchange.all_to_all(label, axis, answers)).cpu()
    result = torch.empty_like(found)
    result[order] = found
    return result
