"""Looking up a few numbers per node at the rank that owns the node."""

from __future__ import annotations

import numpy as np
import torch

from embertide.grid import RowRanges
from embertide.kernels.owners import split_by_owner
from embertide.primitives.exchange import Channel
from embertide.primitives.in_place import WindowRows, shown

LOCATED_ROWS = 1 << 20
"""Loaded rows of which a rank tells the owners at a time where they are."""


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
    requested = channel.all_to_all(rows.split(counts))
    found = torch.cat(channel.all_to_all([values[theirs] for theirs in requested]))
    result = torch.empty_like(found)
    result[order] = found
    return result


def look_up_in_place(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """As :func:`look_up`, of ranks that read each other's tables; counts nothing.

    Collective: every rank must call.
    """
    window = WindowRows(np.array(ranges.workers, np.int64))
    with shown(channel, [values]) as (seen,):
        return seen.window(window).index_select(0, window.of_nodes(nodes))
