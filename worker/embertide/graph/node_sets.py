"""Sets of nodes that all ranks have."""

from __future__ import annotations

import numpy as np
import torch

from embertide.graph.exchange import Exchange


def any_rank(exchange: Exchange, rows: torch.Tensor, primitive: str) -> torch.Tensor:
    """[N] bool, what any rank has set of [N] bool. Collective: every rank must call.

    Sends N / 8 bytes to each of the other ranks.

    Args:
        primitive: under which the transfers are counted.
    """
    if exchange.grid.world == 1:
        return rows
    packed = torch.from_numpy(np.packbits(rows.numpy()))
    every = exchange.channel("world", primitive).all_gather(packed)
    joined = np.bitwise_or.reduce([some.numpy() for some in every])
    return torch.from_numpy(np.unpackbits(joined, count=len(rows)).astype(bool))
