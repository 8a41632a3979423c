"""From ids in files to dense ids 0..N-1, and back.

``int64`` and ``string`` ids are spread over the ranks by hash: each rank keeps the sorted
hashes of one range, so none ever holds all ids. A node's dense id is its position in hash
order over the whole graph, hence the same on every grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.errors import InputError
from embertide.grid import RowRanges
from embertide.kernels.hashing import Words, hash_integers, hash_strings, string_buffers
from embertide.primitives.exchange import Channel, Exchange

Ids = npt.NDArray[np.int64] | Any
"""``np.int64 [k]``, or an arrow array of k strings."""
Dense = npt.NDArray[np.int64]


class NodeIds(Protocol):
    """N nodes and the two directions of their ids."""

    @property
    def count(self) -> int:
        """N, the number of nodes."""

    @property
    def collective(self) -> bool:
        """Whether :meth:`find` and :meth:`original` are collective: every rank must call."""

    def find(self, ids: Ids) -> Dense:
        """[k] dense ids; -1 for an unknown id. Collective where :attr:`collective`."""

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """[rows] ids in files of our sub-range's rows, and one stable 64-bit key each.

        Collective where :attr:`collective`.
        """


@dataclass(frozen=True)
class DenseIds:
    """Ids that are dense already."""

    count: int
    rank: int
    collective: bool = False

    def find(self, ids: Ids) -> Dense:
        """The ids themselves; -1 outside 0..N-1."""
        assert isinstance(ids, np.ndarray)
        if len(ids) == 0 or (ids.min() >= 0 and ids.max() < self.count):
            return ids
        return np.where((ids >= 0) & (ids < self.count), ids, -1)

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """([rows] int64 ids, [rows] the same as uint64 keys) of our sub-range."""
        ids = np.arange(*ranges.worker(self.rank), dtype=np.int64)
        return ids, ids.view(np.uint64)


class HashedIds:
    """Ids spread over the ranks by hash. Collective: every rank must call.

    Args:
        batches: this rank's share of all ids, any order.
        kind: ``int64`` or ``string``.
        describe: what the ids are, for messages ("features of node 'item'").

    Raises:
        InputError: an id occurs twice.
    """

    collective = True

    def __init__(self, exchange: Exchange, batches: list[Ids], kind: str, describe: str) -> None:
        self._channel = exchange.channel("world", "idmap")
        self._kind = kind
        high, low, ids = self._collect(batches)
        order = np.lexsort((low, high))
        self._high, self._low = high[order], low[order]
        self._ids = ids.take(pa.array(order))
        self._refuse_duplicates(describe)
        counts = exchange.all_objects(len(order))
        self.count = sum(counts)
        self._first = sum(counts[: exchange.grid.rank])

    def _collect(self, batches: list[Ids]) -> tuple[Words, Words, pa.Array]:
        """Send every id to the rank that owns its hash; hash words and ids that are ours.

        Collective: every rank must call.
        """
        ids = _concatenate(batches, self._kind)
        high, low = self._hash(ids)
        order, counts = self._by_owner(high)
        highs = self._send(high[order], counts)
        lows = self._send(low[order], counts)
        return highs, lows, send_ids(self._channel, ids.take(pa.array(order)), counts)

    def _hash(self, ids: pa.Array) -> tuple[Words, Words]:
        if self._kind == "string":
            return hash_strings(ids)
        return hash_integers(np.ascontiguousarray(ids.to_numpy(zero_copy_only=False)))

    def _by_owner(self, high: Words) -> tuple[npt.NDArray[np.int64], list[int]]:
        """Order by owner of the hash range, and how many each owner gets."""
        world = self._channel.grid.world
        owner = ((high >> np.uint64(32)) * np.uint64(world)) >> np.uint64(32)
        owner = owner.astype(np.uint16 if world < 2**16 else np.int64)
        return np.argsort(owner, kind="stable"), np.bincount(owner, minlength=world).tolist()

    def _send(self, words: Words, counts: list[int]) -> Words:
        """All-to-all of 64-bit words, joined in rank order. Collective: every rank must call."""
        return np.concatenate(self._all_to_all(words.view(np.int64), counts)).view(np.uint64)

    def _all_to_all(self, words: npt.NDArray[np.int64], counts: list[int]) -> list[Dense]:
        """Send each rank its run of ``words``; what each sent us, in rank order.

        Collective: every rank must call.
        """
        tensor = torch.from_numpy(words).to(self._channel.device)
        received = self._channel.all_to_all(tensor.split(counts))
        return [words.cpu().numpy() for words in received]

    def _refuse_duplicates(self, describe: str) -> None:
        """Raise on every rank where any has a duplicate. Collective: every rank must call."""
        same = (self._high[1:] == self._high[:-1]) & (self._low[1:] == self._low[:-1])
        twice = np.flatnonzero(same)
        found = [str(self._ids[int(at)].as_py()) for at in twice[:1]]
        by_rank = self._channel.exchange.all_objects((len(twice), found))
        total = sum(count for count, _ in by_rank)
        if total:
            first = min(name for _, names in by_rank for name in names)
            raise InputError(
                f"{describe}: {total} duplicate row{'s' if total > 1 else ''};"
                f" id {first!r} occurs more than once. Keep one row per id."
            )

    def find(self, ids: Ids) -> Dense:
        """[k] dense ids; repeated ids are looked up once. Collective: every rank must call."""
        column = ids if isinstance(ids, pa.Array) else pa.array(ids)
        encoded = column.dictionary_encode()
        high, low = self._hash(encoded.dictionary)
        order, counts = self._by_owner(high)
        high_words = self._all_to_all(high[order].view(np.int64), counts)
        low_words = self._all_to_all(low[order].view(np.int64), counts)
        found = [self._local(h, lo) for h, lo in zip(high_words, low_words, strict=True)]
        replies = self._all_to_all(np.concatenate(found), [len(reply) for reply in found])
        dense = np.empty(len(order), np.int64)
        dense[order] = np.concatenate(replies)
        position: Dense = encoded.indices.to_numpy(zero_copy_only=False)
        return dense[position]

    def _local(self, high: Dense, low: Dense) -> Dense:
        """Dense ids of hashes in our range; -1 where there is none."""
        wanted, check = high.view(np.uint64), low.view(np.uint64)
        if len(self._high) == 0:
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._high, wanted), len(self._high) - 1)
        while True:
            # Two ids with equal high halves are next to each other; step past the wrong ones.
            wrong = (self._high[at] == wanted) & (self._low[at] != check)
            step = wrong & (at + 1 < len(self._high))
            if not step.any():
                break
            at = at + step
        known = (self._high[at] == wanted) & (self._low[at] == check)
        return np.where(known, at + self._first, -1)

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """Receive the ids of our sub-range, and their keys, from the owners of their hashes.

        Collective: every rank must call.
        """
        last = self._first + len(self._ids)
        cuts = np.clip(np.array(ranges.workers), self._first, last)
        counts = np.diff(cuts).tolist()
        ids = send_ids(self._channel, self._ids, counts)
        if self._kind == "string":
            return ids, self._send(self._high, counts)
        numbers = np.ascontiguousarray(ids.to_numpy(zero_copy_only=False))
        return numbers, numbers.view(np.uint64)


def _concatenate(batches: list[Ids], kind: str) -> pa.Array:
    wanted = pa.large_string() if kind == "string" else pa.int64()
    arrays = [pa.array(b) if isinstance(b, np.ndarray) else b for b in batches]
    return pa.concat_arrays([pa.array([], wanted), *[a.cast(wanted) for a in arrays]])


def send_ids(channel: Channel, ids: pa.Array, counts: list[int]) -> pa.Array:
    """Send consecutive runs of ids (int64 or strings) to all ranks; those received, in rank order.

    Collective: every rank must call.
    """

    def swap(values: npt.NDArray[np.generic], sizes: list[int]) -> npt.NDArray[np.generic]:
        tensor = torch.from_numpy(values).to(channel.device)
        return torch.cat(channel.all_to_all(tensor.split(sizes))).cpu().numpy()

    if pa.types.is_int64(ids.type):
        return pa.array(swap(np.array(ids.to_numpy(zero_copy_only=False)), counts))
    offsets, data = string_buffers(ids)
    data = data[offsets[0] : offsets[-1]].copy()
    ends = np.cumsum(counts)
    sizes = np.diff(np.concatenate([[0], offsets[ends] - offsets[0]])).tolist()
    lengths = swap(np.diff(offsets), counts)
    text = swap(data, sizes)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(bounds), pa.py_buffer(text))
