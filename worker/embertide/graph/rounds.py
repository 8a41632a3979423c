"""In which round each peer's rows arrive.

Every peer sends in every round, its share of the round in proportion to what it still has to
send, so that no peer is waited for alone. Both ends work the shares out from the counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


def share_rounds(counts: Counts, group_rows: int, me: int) -> tuple[Counts, list[Counts]]:
    """Cut what the ranks of an axis request into rounds.

    A round has ``group_rows`` rows of a requester's, fewer in its last. A peer's share is its
    part of what is left, rounded down; the rows that this leaves over come one each from the
    peers that have more, the next one on the axis first.

    Args:
        counts: [ranks, ranks] rows that each rank requests of each.
        me: our index.

    Returns:
        [ranks, rounds + 1] rows of each peer that arrive here before each round, and for each
        rank [its rounds + 1] the same of our rows there.
    """
    size = len(counts)
    ring = (np.arange(size)[:, None] + np.arange(size)) % size
    left = np.take_along_axis(counts, ring, 1)
    total = left.sum(1)
    rounds = -(-total // group_rows)
    most = int(rounds.max(initial=0))
    ours = np.zeros((most + 1, size), np.int64)
    theirs = np.zeros((most + 1, size), np.int64)
    to_us = np.arange(size), (me - np.arange(size)) % size
    for number in range(most):
        room = np.minimum(group_rows, total)
        share = left * room[:, None] // np.maximum(total, 1)[:, None]
        more = share < left
        share += more & (np.cumsum(more, 1) <= (room - share.sum(1))[:, None])
        left -= share
        total -= room
        ours[number + 1] = ours[number] + share[me]
        theirs[number + 1] = theirs[number] + share[to_us]
    by_rank = np.empty((size, int(rounds[me]) + 1), np.int64)
    by_rank[ring[me]] = ours[: rounds[me] + 1].T
    return by_rank, [theirs[: rounds[i] + 1, i].copy() for i in range(size)]


def places_before(cuts: Counts, me: int) -> Counts:
    """[ranks, rounds] slots of each round that peers before fill, the next on the axis first."""
    ring = (me + np.arange(len(cuts))) % len(cuts)
    shares = np.diff(cuts[ring], axis=1)
    before = np.empty_like(shares)
    before[ring] = np.cumsum(shares, axis=0) - shares
    return before
