"""Looking up a few numbers per node at the rank that owns the node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from embertide.graph.exchange import Channel
from embertide.graph.in_place import WindowRows, shared
from embertide.graph.node_ids import Dense
from embertide.grid import RowRanges
from embertide.kernels.counting import count_outside
from embertide.kernels.csr import id_type
from embertide.kernels.owners import split_by_owner

LOCATED_ROWS = 1 << 20
"""Loaded rows of which a rank tells the owners at a time where they are."""


def look_up(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """Values of any nodes from a table that is spread in the ``rows`` layout.

    Sends 4 bytes per node (8 with 2^31 nodes and more) and receives a row of ``values`` for it.
    Collective: every rank must call.

    Args:
        channel: of the world axis.
        values: [N/(P*M)] or [N/(P*M), k] of our sub-range's nodes.
        nodes: [n] dense ids, any order.
    """
    order, counts, rows = split_by_owner(nodes, ranges.workers)
    found = _answers(channel, values, rows.to(id_type(ranges.nodes)).split(counts))
    result = torch.empty_like(found)
    result[order] = found
    return result


def look_up_ascending(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """As :func:`look_up`, of [n] ascending ids, which are in the order of their owners.

    Collective: every rank must call.
    """
    kind, bounds = id_type(ranges.nodes), torch.tensor(ranges.workers, dtype=nodes.dtype)
    ends = torch.searchsorted(nodes, bounds).tolist()
    parts = (nodes[low:high] for low, high in pairwise(ends))
    owners = zip(parts, ranges.workers, strict=False)
    return _answers(channel, values, [(part - first).to(kind) for part, first in owners])


def _answers(
    channel: Channel, values: torch.Tensor, questions: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The owners' rows of the values that each is asked for, in the order of the owners."""
    asked, staging = channel.all_to_all(questions), channel.staging
    found = [values[staging.indices(rows.long(), values)] for rows in asked]
    return torch.cat(channel.all_to_all([staging.download(rows) for rows in found]))


def fetch_rows(
    channel: Channel, ranges: RowRanges, rows: torch.Tensor, wanted: Dense
) -> torch.Tensor:
    """[n, D] on the CPU: the rows of some nodes, in their order, as :func:`look_up` gives them.

    Each row is sent once to a worker, however often it is wanted. Collective: every rank must call.

    Args:
        rows: [N/(P*M), D] those of our sub-range.
        wanted: [n] dense ids; repeated ones are allowed.
    """
    nodes, places = np.unique(wanted, return_inverse=True)
    found = look_up_ascending(channel, ranges, rows, torch.from_numpy(nodes))
    return found[torch.from_numpy(places.reshape(-1))]


def look_up_in_place(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """As :func:`look_up`, of ranks that read each other's tables where they stand.

    Collective: every rank must call.
    """
    window = WindowRows(np.array(ranges.workers, np.int64))
    with shared(channel, [values]) as (seen,):
        found = seen.window(window).index_select(0, window.of_nodes(nodes))
    remote = count_outside(nodes, *ranges.worker(channel.grid.rank))
    channel.read_in_place(remote * found.element_size() * math.prod(found.shape[1:]))
    return found
