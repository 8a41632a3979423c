"""Ids sent between ranks: rounds of bounded size, whatever the readers' batches are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.graph.buffers import Buffers
from embertide.graph.exchange import Channel
from embertide.graph.node_ids import Dense
from embertide.graph.pending import Pending
from embertide.kernels import ids as kernel
from embertide.kernels.hashing import Words, string_buffers
from embertide.kernels.ids import Ids

T = TypeVar("T")

ROUND_IDS = 1 << 20
"""How many ids a rank sends, or asks others for, at a time."""


@dataclass
class Round(Generic[T]):
    """Ids that are asked for together, a part of one batch; ``last`` of it or not.

    Attributes:
        dense: [k] results of the batch's arrays, joined.
        at: where this round's begin there.
    """

    label: T
    arrays: list[Ids]
    lengths: list[int]
    dense: Dense
    at: int
    last: bool

    def deliver(
        self, found: torch.Tensor, position: torch.Tensor
    ) -> Iterator[tuple[T, list[Dense]]]:
        """Keep what was found, each id's at its position; the whole batch once it is complete."""
        ours = torch.from_numpy(self.dense[self.at : self.at + len(position)])
        torch.index_select(found, 0, position, out=ours)
        if self.last:
            yield self.label, np.split(self.dense, np.cumsum(self.lengths)[:-1])


@dataclass
class Asked(Generic[T]):
    """A round in flight.

    Attributes:
        position: [k] place of each id among the different ones that were asked for.
        wanted: [u, width] hashes of those that each rank owns.
        theirs: [n, width] hashes that each rank asks us for; none of ours.
    """

    round: Round[T] | None
    position: torch.Tensor
    wanted: list[torch.Tensor]
    theirs: list[torch.Tensor]
    pending: Pending


class RoundBuffers:
    """Memory that rounds use again; what a round keeps until it is answered, two take in turn.

    Args:
        width: words of a hash.
        kind: of dense ids.
    """

    def __init__(self, width: int, kind: torch.dtype) -> None:
        words, places, dense = (
            torch.empty(0, dtype=dtype) for dtype in (torch.int64, torch.int32, kind)
        )
        self._width, self._number = width, 0
        self._hashes, self._room = Buffers(1, words), Buffers(1, places)
        self._unique, self._position = Buffers(2, words), Buffers(2, places)
        self._asks, self._replies, self._found = (
            Buffers(2, words),
            Buffers(1, dense),
            Buffers(1, dense),
        )

    def group(self, part: Round[T] | None, owners: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The next round's different hashes by owner, each [u, width], and its ids' positions."""
        self._number += 1
        arrays = part.arrays if part else []
        size = sum(len(ids) for ids in arrays)
        hashes, unique = (
            buffers.take(self._number, size * self._width).view(size, self._width)
            for buffers in (self._hashes, self._unique)
        )
        at = 0
        for ids in arrays:
            kernel.hash_ids(ids, as_words(hashes[at : at + len(ids)]))
            at += len(ids)
        position, room = self._position.take(self._number, size), self._room.take(0, 2 * size)
        counts = kernel.group_words(
            as_words(hashes),
            owners,
            as_words(unique),
            position.numpy(),
            room.numpy().view(np.uint32),
        )
        return list(unique[: sum(counts)].split(counts)), position

    def asks(self, counts: list[int]) -> list[torch.Tensor]:
        """[count, width] for the hashes that each rank asks us for in the round grouped last."""
        words = self._asks.take(self._number, sum(counts) * self._width)
        return list(words.view(sum(counts), self._width).split(counts))

    def replies(self, counts: list[int]) -> list[torch.Tensor]:
        """[count] for our answer to each rank."""
        return list(self._replies.take(0, sum(counts)).split(counts))

    def found(self, count: int) -> torch.Tensor:
        """[count] for what we are answered."""
        return self._found.take(0, count)


def cut_rounds(
    batches: Iterable[tuple[T, Sequence[Ids]]], kind: type[np.int32] | type[np.int64]
) -> Iterator[Round[T]]:
    """Batches cut into rounds, with results of a kind; one without ids has a round as well."""
    for label, arrays in batches:
        lengths = [len(ids) for ids in arrays]
        dense, at = np.empty(sum(lengths), kind), 0
        for part in cut(arrays):
            size = sum(len(ids) for ids in part)
            yield Round(label, part, lengths, dense, at, at + size == len(dense))
            at += size


def as_words(tensor: torch.Tensor) -> Words:
    """The same memory as hashes."""
    return tensor.numpy().view(np.uint64)


def cut(arrays: Sequence[Ids]) -> Iterator[list[Ids]]:
    """Slices of the arrays, joined ``ROUND_IDS`` long but the last; one at least."""
    part: list[Ids] = []
    room = ROUND_IDS
    for ids in arrays:
        at = 0
        while len(ids) - at > room:
            yield [*part, ids[at : at + room]]
            part, at, room = [], at + room, ROUND_IDS
        part.append(ids[at:])
        room -= len(ids) - at
    yield part


def send_strings(channel: Channel, ids: pa.Array, counts: list[int]) -> list[pa.Array]:
    """Send consecutive runs of large_strings to all ranks; what each sent us, in rank order.

    Moves 8 bytes and the text of each. Collective: every rank must call.
    """
    own = channel.axis.index

    def swap(values: npt.NDArray[Any], sizes: list[int]) -> list[npt.NDArray[Any]]:
        parts = [part.numpy() for part in channel.all_to_all(torch.from_numpy(values).split(sizes))]
        # A part of all that we send, which would stay for as long as this one does.
        parts[own] = parts[own].copy()
        return parts

    offsets, data = string_buffers(ids)
    ends = np.cumsum([0, *counts])
    sizes = np.diff(offsets[ends]).tolist()
    lengths = swap(np.diff(offsets), counts)
    texts = swap(np.array(data[offsets[0] : offsets[-1]]), sizes)
    return [
        kernel.strings(np.concatenate([[0], np.cumsum(length)]), text)
        for length, text in zip(lengths, texts, strict=True)
    ]
