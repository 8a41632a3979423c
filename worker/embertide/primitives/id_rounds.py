"""Ids on their way between ranks: rounds of bounded size, whatever the readers' batches are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.kernels import ids as kernel
from embertide.kernels.hashing import Words, string_buffers
from embertide.kernels.ids import Ids
from embertide.kernels.memory import Reused
from embertide.primitives.exchange import Channel
from embertide.primitives.node_ids import Dense
from embertide.primitives.pending import Pending

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
        self, found: torch.Tensor, position: npt.NDArray[np.int32]
    ) -> Iterator[tuple[T, list[Dense]]]:
        """Keep what was found, each id's at its position; the whole batch once it is complete."""
        ours = torch.from_numpy(self.dense[self.at : self.at + len(position)])
        torch.index_select(found, 0, torch.from_numpy(position), out=ours)
        if self.last:
            yield self.label, np.split(self.dense, np.cumsum(self.lengths)[:-1])


@dataclass
class Asked(Generic[T]):
    """A round under way.

    Attributes:
        position: [k] place of each id among the different ones that were asked for.
        counts: how many of those each rank owns.
        theirs: [n, width] hashes that each rank asks us for.
    """

    round: Round[T] | None
    position: npt.NDArray[np.int32]
    counts: list[int]
    theirs: list[torch.Tensor]
    pending: Pending


class RoundArrays:
    """Memory that rounds take in turn.

    Attributes:
        passing: of arrays that one step of a round is done with.
    """

    def __init__(self) -> None:
        self.passing = Reused()
        self._staying = Reused(), Reused()

    def next(self) -> Reused:
        """Of arrays that a round keeps until it is answered, when the next one was asked."""
        self._staying = self._staying[::-1]
        return self._staying[0]


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


def hash_round(part: Round[T] | None, width: int, reused: Reused) -> Words:
    """[k, width] hashes of a round's ids."""
    arrays = part.arrays if part else []
    hashes = reused.take("hashes", (sum(len(ids) for ids in arrays), width), np.uint64)
    at = 0
    for ids in arrays:
        kernel.hash_ids(ids, hashes[at : at + len(ids)])
        at += len(ids)
    return hashes


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

    def swap(values: npt.NDArray[Any], sizes: list[int]) -> list[npt.NDArray[Any]]:
        return [part.numpy() for part in channel.all_to_all(torch.from_numpy(values).split(sizes))]

    offsets, data = string_buffers(ids)
    ends = np.cumsum([0, *counts])
    sizes = np.diff(offsets[ends]).tolist()
    lengths = swap(np.diff(offsets), counts)
    texts = swap(np.array(data[offsets[0] : offsets[-1]]), sizes)
    return [
        kernel.strings(np.concatenate([[0], np.cumsum(length)]), text)
        for length, text in zip(lengths, texts, strict=True)
    ]
