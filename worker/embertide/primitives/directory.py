"""Looking up a few numbers per node at the rank that owns the node."""

from __future__ import annotations

import numpy as np
import torch

from embertide.grid import RowRanges
from embertide.primitives.exchange import Channel


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
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """Values of any nodes from a table that is spread in the ``rows`` layout.

    Sends 8 bytes per node and receives a row of ``values`` for it.
    Collective: every rank must call.

    Args:
        channel: of the world axis.
        values: [N/(P*M)] or [N/(P*M), k] of our sub-range's nodes, on the CPU.
        nodes: [n] int64 dense ids, any order.
    """
    order, counts, rows = split_by_owner(nodes, ranges.workers)
    device = channel.device
    requested = channel.all_to_all(rows.to(device).split(counts))
    replies = [values.to(device)[theirs] for theirs in requested]
    found = torch.cat(channel.all_to_all(replies)).cpu()
    result = torch.empty_like(found)
    result[order] = found
    return result
