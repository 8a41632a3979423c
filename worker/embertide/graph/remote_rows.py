"""Rows of a tensor by the dense ids of their nodes, wherever they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from embertide.graph.exchange import Channel
from embertide.graph.node_ids import Dense
from embertide.grid import RowRanges


def fetch_rows(
    channel: Channel, ranges: RowRanges, rows: torch.Tensor, wanted: Dense
) -> torch.Tensor:
    """[n, D] float32 on the CPU: the rows of some nodes, in their order.

    Each row is sent once to a worker, however often it is wanted: 4 D bytes, and 4 for its number,
    or 8 where there are more than 2^31 nodes. Collective: every rank must call.

    Args:
        channel: of the axis of all ranks.
        ranges: which worker owns which nodes.
        rows: [N/(P*M), D] those of our sub-range.
        wanted: [n] dense ids; repeated ones are allowed.
    """
    nodes, places = np.unique(wanted, return_inverse=True)
    bounds = np.searchsorted(nodes, ranges.workers)
    kind = np.int32 if ranges.nodes <= 2**31 else np.int64
    asked = [
        torch.from_numpy((nodes[start:stop] - ranges.workers[rank]).astype(kind))
        for rank, (start, stop) in enumerate(pairwise(bounds))
    ]
    requests = channel.all_to_all(asked)
    staging = channel.staging
    answers = [
        staging.download(rows[staging.indices(numbers.long(), rows)]).float()
        for numbers in requests
    ]
    found = torch.cat(channel.all_to_all(answers))
    return found[torch.from_numpy(places.reshape(-1))]
