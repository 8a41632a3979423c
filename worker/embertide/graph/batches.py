"""Loaded rows sent to their owners in batches: how many of each go where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from embertide.kernels.owners import split_by_owner

LANDED_ROWS = 1 << 18
"""Rows that are located, read and counted at a time."""


def few(parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The parts' rows, in order, ``LANDED_ROWS`` at a time."""
    for part in parts:
        yield from part.split(LANDED_ROWS)


def count_batches(
    ids: torch.Tensor, bounds: tuple[int, ...], rows: int, rounds: int
) -> torch.Tensor:
    """[rounds, owners] int64: how many rows of each batch each owner gets.

    Args:
        ids: [n] dense ids of the loaded rows, as loaded.
        bounds: [owners + 1] of the owners' ranges of nodes.
        rows: of a batch.
        rounds: of the worker that loaded most.
    """
    counts = np.zeros((rounds, len(bounds) - 1), np.int64)
    for batch, loaded in zip(counts, ids.split(rows), strict=False):
        for some in few([loaded]):
            batch += split_by_owner(some, bounds)[1]
    return torch.from_numpy(counts)
