"""Looking up a few numbers per node at the worker that owns the node."""

from __future__ import annotations

import numpy as np
import torch

from embertide.grid import Axis, RowRanges
from embertide.primitives.exchange import Exchange
from embertide.telemetry.recorder import Label


def split_by_owner(
    nodes: torch.Tensor, bounds: tuple[int, ...]
) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Order node ids by owning range.

    Returns:
        order [k] (stable), how many each range owns, and the row within its owner [k], ordered.
    """
    owners = len(bounds) - 1
    if owners == 1:
        return torch.arange(len(nodes)), [len(nodes)], nodes - bounds[0]
    owner = np.searchsorted(np.array(bounds), nodes.numpy(), side="right") - 1
    # numpy sorts 16-bit keys by radix.
    owner = owner.astype(np.uint16) if owners < 2**16 else owner
    order = torch.from_numpy(np.argsort(owner, kind="stable"))
    counts = np.bincount(owner, minlength=owners)
    starts = torch.from_numpy(np.repeat(np.array(bounds[:-1]), counts))
    return order, counts.tolist(), nodes[order] - starts


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
