"""Loaded rows on their way to their owners in batches: how many of each go where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.owners import split_by_owner
from embertide.layouts import Layout
from embertide.primitives.exchange import Channel

LANDED_ROWS = 1 << 18
"""That are found, read and counted at a time."""
_NUMBER_BYTES = 8
"""Of a row's number, and of how many rows a batch has for a worker."""


def few(parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The parts' rows, in order, ``LANDED_ROWS`` at a time."""
    for part in parts:
        yield from part.split(LANDED_ROWS)


@dataclass(frozen=True)
class Batches:
    """What travels across hosts: in each round a batch of every worker's loaded rows.

    Attributes:
        channel: of the world axis.
        slices: of the result's columns; one for whole rows.
        rounds: of the worker that loaded most.
        rows: of a batch.
        value_bytes: of each value of them.
    """

    channel: Channel
    slices: ColumnSlices
    rounds: int
    rows: int
    value_bytes: int

    def sent(self, ranges: RowRanges, ids: torch.Tensor, layout: Layout) -> torch.Tensor:
        """[rounds, workers] rows of ours that each worker gets.

        Args:
            ids: [n] their nodes, as loaded.
            layout: in which their owners hold them.
        """
        bounds = ranges.workers if layout == "rows" else ranges.partitions
        owners = len(bounds) - 1
        found = np.zeros((self.rounds, owners), np.int64)
        for batch, loaded in zip(found, ids.split(self.rows), strict=False):
            for some in few([loaded]):
                batch += split_by_owner(some, bounds)[1]
        return torch.from_numpy(found).repeat_interleave(self.channel.axis.size // owners, 1)

    def received(self, places: Sequence[torch.Tensor]) -> torch.Tensor:
        """[rounds, workers] rows of each worker that go to these places.

        Args:
            places: parts of them, [k, 2] loader and row.
        """
        workers = self.channel.axis.size
        found = np.zeros(self.rounds * workers, np.int64)
        for some in few(places):
            loader, row = some.numpy().T
            batch = (row // self.rows).astype(np.int64)
            found += np.bincount(batch * workers + loader, minlength=len(found))
        return torch.from_numpy(found).view(self.rounds, workers)

    def count(self, sent: torch.Tensor, received: torch.Tensor) -> None:
        """Count what is told of all batches, the numbers of rows, and their values.

        Args:
            sent: as of :meth:`sent`.
            received: as of :meth:`received`.
        """
        channel, others = self.channel, self.channel.axis.others()
        told = _NUMBER_BYTES * self.rounds
        channel.count([told] * len(others), told * len(others))
        own = _NUMBER_BYTES + self.value_bytes * self._columns(channel.axis.index)
        for out, into in zip(sent.tolist(), received.tolist(), strict=True):
            messages = [
                size
                for i in others
                for size in (_NUMBER_BYTES * out[i], self.value_bytes * out[i] * self._columns(i))
            ]
            channel.count(messages, own * sum(into[i] for i in others))

    def _columns(self, rank: int) -> int:
        return self.slices.size(rank % self.slices.count)
