"""From ids in files to dense ids 0..N-1, and back.

``int64`` and ``string`` ids are spread over the ranks by hash: each rank keeps the sorted
hashes of one range, so none ever holds all ids. A node's dense id is its position in hash
order over the whole graph, hence the same on every grid.

Held for each of a rank's ids: int64 8 bytes, the hash, of which the id can be had back; strings
20 bytes and the text, the hash and where the text is among those received. The directory of the
hashes takes about 1 byte more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.errors import InputError
from embertide.graph.exchange import Buffers, Channel, Exchange, Pending
from embertide.graph.node_ids import Dense
from embertide.grid import RowRanges
from embertide.kernels import ids as kernel
from embertide.kernels.arrow import to_numpy
from embertide.kernels.csr import id_type
from embertide.kernels.hashing import Words, hash_bytes, string_buffers, unhash_integers
from embertide.kernels.ids import Ids, IdTable
from embertide.kernels.pages import Pages

T = TypeVar("T")
ROUND_IDS = 1 << 20
"""How many ids a rank sends, or asks others for, at a time."""


class HashedIds:
    """Ids spread over the ranks by hash. Collective: every rank must call.

    One worker has them all and looks them up by itself, in any of its threads.

    Args:
        batches: this rank's share of all ids, any order; on one worker strings are kept as they
            are, not copied.
        kind: ``int64`` or ``string``.
        describe: what the ids are, for messages ("features of node 'item'").

    Raises:
        InputError: an id occurs twice.
    """

    def __init__(
        self, exchange: Exchange, batches: Sequence[Ids], kind: str, describe: str
    ) -> None:
        self.collective = exchange.grid.world > 1
        self._channel = exchange.channel("world", "idmap")
        self._width = 2 if kind == "string" else 1
        words, self._texts = self._collect([_large(as_ids(batch, kind)) for batch in batches])
        self._words, self._order = kernel.sort_words(words, self._width)
        del words
        self._refuse_duplicates(describe)
        counts = exchange.all_objects(len(self._words))
        self.count = sum(counts)
        self._first = sum(counts[: exchange.grid.rank])
        self._table = IdTable(self._words)
        self._kind = np.int32 if id_type(self.count) is torch.int32 else np.int64

    def _collect(self, batches: list[Ids]) -> tuple[list[Words], list[pa.Array]]:
        """Hashes of the ids that are ours, and the strings, in the same order.

        Sends every id to the rank that owns its hash, a part of a batch at a time.
        Collective: every rank must call.
        """
        if self._channel.grid.world == 1:
            return [kernel.hash_ids(ids) for ids in batches], batches if self._width == 2 else []
        words: list[Words] = []
        texts: list[pa.Array] = []
        pages = Pages()
        parts = [part for ids in batches for part in cut([ids])]
        for number in range(max(self._channel.exchange.all_objects(len(parts)))):
            (ids,) = parts[number] if number < len(parts) else [self._nothing()]
            hashes = kernel.hash_ids(ids)
            order, counts = _by_owner(hashes, self._channel.grid.world)
            words += [_kept(some, pages) for some in self._all_to_all(hashes[order], counts)]
            if self._width == 2:
                texts += send_strings(self._channel, kernel.take_strings([ids], order), counts)
        return words, texts

    def _nothing(self) -> Ids:
        if self._width == 1:
            return np.empty(0, np.int64)
        return kernel.strings(np.zeros(1, np.int64), np.empty(0, np.uint8))

    def _all_to_all(self, words: Words, counts: list[int]) -> list[Words]:
        """Send each rank its run of ``words``; what each sent us, in rank order.

        Collective: every rank must call.
        """
        received = self._channel.all_to_all(torch.from_numpy(words.view(np.int64)).split(counts))
        return [as_words(tensor) for tensor in received]

    def _refuse_duplicates(self, describe: str) -> None:
        """Raise on every rank where any has a duplicate. Collective: every rank must call."""
        twice = np.flatnonzero(self._words[1:, 0] == self._words[:-1, 0])
        twice = twice[self._words[twice + 1, -1] == self._words[twice, -1]]
        found = [str(self._ids(int(at), int(at) + 1)[0]) for at in twice[:1]]
        by_rank = self._channel.exchange.all_objects((len(twice), found))
        total = sum(count for count, _ in by_rank)
        if total:
            first = min(name for _, names in by_rank for name in names)
            raise InputError(
                f"{describe}: {total} duplicate row{'s' if total > 1 else ''};"
                f" id {first!r} occurs more than once. Keep one row per id;"
                " in features that are a history, latestBy names the column that says which."
            )

    def _ids(self, start: int, stop: int) -> Ids:
        """Ids of our hashes start..stop."""
        if self._width == 1:
            return unhash_integers(self._words[start:stop, 0])
        return kernel.take_strings(self._texts, self._order[start:stop])

    def given(self) -> Dense | None:
        """[n] dense ids of the batches, where one worker knows them without a look-up: strings'."""
        if self.collective or self._width == 1:
            return None
        return kernel.invert_order(self._order)

    def find(self, ids: Ids, pages: Pages | None = None) -> Dense:
        """[k] dense ids; -1 for an unknown id. Collective on several workers: every rank must call.

        Args:
            pages: where one worker puts them; by default in memory of their own.
        """
        kind = "string" if self._width == 2 else "int64"
        if not self.collective:
            return self._table.find(as_ids(ids, kind), self._first, self._kind, pages)
        ((_, (dense,)),) = self.find_all([(None, [as_ids(ids, kind)])])
        return dense

    def find_all(
        self, batches: Iterable[tuple[T, Sequence[Ids]]]
    ) -> Iterator[tuple[T, list[Dense]]]:
        """Dense ids of each array of each batch, int32 where they fit; -1 for unknown ids.

        On several workers at most ``ROUND_IDS`` are asked for at a time, each once; while one
        round is answered the next is asked. Moves 8 or 16 bytes there and 4 back (8 with 2^31
        nodes and more) for each different id of a round that another rank owns.
        Collective: every rank must go on to the end.
        """
        if self.collective:
            yield from self._find_remote(batches)
            return
        for label, arrays in batches:
            yield label, [self.find(ids) for ids in arrays]

    def _find_remote(
        self, batches: Iterable[tuple[T, Sequence[Ids]]]
    ) -> Iterator[tuple[T, list[Dense]]]:
        """See :meth:`find_all`. Collective: every rank must go on to the end.

        All ranks take the same steps: ask round k, answer round k-1, receive round k-1's answers.
        The ranks' numbers of ids say whether any has more, so that all stop together.
        """
        rounds = cut_rounds(batches, self._kind)
        buffers = RoundBuffers(self._width, id_type(self.count))
        asked: Asked[T] | None = None
        more = True
        while more or asked is not None:
            following = None
            if more:
                following, more = self._ask(next(rounds, None), buffers)
            if asked is not None:
                found = self._answer(asked, buffers)
                yield from asked.round.deliver(found, asked.position) if asked.round else ()
            asked = following if more else None

    def _ask(self, part: Round[T] | None, buffers: RoundBuffers) -> tuple[Asked[T], bool]:
        """Start sending the hashes of a round to their owners, and whether any rank had one.

        Collective: every rank must call.
        """
        channel, others = self._channel, self._channel.axis.others()
        wanted, position = buffers.group(part, channel.grid.world)
        incoming = channel.sizes(torch.tensor([[len(some), part is not None] for some in wanted]))
        counts = incoming[:, 0].tolist()
        counts[channel.axis.index] = 0
        theirs = buffers.asks(counts)
        pending = channel.start([(i, wanted[i]) for i in others], [(i, theirs[i]) for i in others])
        return Asked(part, position, wanted, theirs, pending), bool(incoming[:, 1].any())

    def _answer(self, asked: Asked[T], buffers: RoundBuffers) -> torch.Tensor:
        """Look up what others asked of us; dense ids of the different ones we asked for.

        Collective: every rank must call.
        """
        channel, own = self._channel, self._channel.axis.index
        others = channel.axis.others()
        asked.pending.wait()
        counts = [len(some) for some in asked.wanted]
        found = buffers.found(sum(counts))
        parts, replies = found.split(counts), buffers.replies([len(some) for some in asked.theirs])
        for i in others:
            self._find_words(asked.theirs[i], replies[i])
        pending = channel.start([(i, replies[i]) for i in others], [(i, parts[i]) for i in others])
        self._find_words(asked.wanted[own], parts[own])
        pending.wait()
        return found

    def _find_words(self, hashes: torch.Tensor, dense: torch.Tensor) -> None:
        """Dense ids of hashes that we own, to ``dense``."""
        self._table.find_words(as_words(hashes), self._first, dense.numpy())

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """Receive the ids of our sub-range, and their keys, from the owners of their hashes.

        Strings travel in rounds of ``ROUND_IDS``. Collective: every rank must call.
        """
        cuts = np.clip(np.array(ranges.workers) - self._first, 0, len(self._words))
        counts = np.diff(cuts).tolist()
        keys = np.concatenate(self._all_to_all(self._words[:, 0], counts))
        if self._width == 1:
            numbers = unhash_integers(keys)
            return numbers, numbers.view(np.uint64)
        if self._channel.grid.world == 1:
            return self._ids(0, len(self._words)), keys
        return self._original_strings(cuts), keys

    def digest(self) -> Words:
        """[2] the sum of digests of our ids' hashes, some of them at a time."""
        total = np.zeros(2, np.uint64)
        for first in range(0, len(self._words), ROUND_IDS):
            some = np.ascontiguousarray(self._words[first : first + ROUND_IDS])
            offsets = np.arange(len(some) + 1, dtype=np.int64) * (some.itemsize * self._width)
            total += hash_bytes(offsets, some.reshape(-1).view(np.uint8)).sum(axis=0)
        return total

    def _original_strings(self, cuts: npt.NDArray[np.int64]) -> pa.Array:
        """Texts of our sub-range, received in rounds into their place.

        Collective: every rank must call.
        """
        starts, world = cuts[:-1], len(cuts) - 1
        step = max(1, ROUND_IDS // world)
        incoming = self._channel.sizes(torch.tensor(self._run_sizes(cuts))).numpy()
        row, byte = (np.cumsum([0, *sizes])[:-1] for sizes in incoming.T)
        bounds = np.zeros(incoming[:, 0].sum() + 1, np.int64)
        text = np.empty(incoming[:, 1].sum(), np.uint8)
        for _ in range(0, max(self._channel.exchange.all_objects(int(np.diff(cuts).max()))), step):
            stops = np.minimum(starts + step, cuts[1:])
            runs = [self._order[a:b] for a, b in zip(starts, stops, strict=True)]
            taken = kernel.take_strings(self._texts, np.concatenate(runs))
            pieces = send_strings(self._channel, taken, (stops - starts).tolist())
            for rank, piece in enumerate(pieces):
                offsets, data = string_buffers(piece)
                bounds[row[rank] + 1 :][: len(piece)] = np.diff(offsets)
                text[byte[rank] :][: offsets[-1]] = data
                row[rank] += len(piece)
                byte[rank] += offsets[-1]
            starts = stops
        np.cumsum(bounds, out=bounds)
        return kernel.strings(bounds, text)

    def _run_sizes(self, cuts: npt.NDArray[np.int64]) -> list[list[int]]:
        """Strings and their bytes in each run of our hashes."""
        sizes = []
        for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            runs = [
                self._order[at : min(at + ROUND_IDS, stop)] for at in range(start, stop, ROUND_IDS)
            ]
            lengths = (kernel.string_lengths(self._texts, run) for run in runs)
            sizes.append([stop - start, sum(int(some.sum()) for some in lengths)])
        return sizes


def _kept(words: Words, pages: Pages) -> Words:
    """A copy: what a rank has of its own is a part of all that it sends."""
    copy = pages.take(words.size, np.uint64).reshape(words.shape)
    copy[:] = words
    return copy


def _by_owner(words: Words, world: int) -> tuple[kernel.Order, list[int]]:
    """Order by owner of the hash range, and how many each owner gets."""
    owner = ((words[:, 0] >> np.uint64(32)) * np.uint64(world)) >> np.uint64(32)
    owner = owner.astype(np.uint16 if world < 2**16 else np.int64)
    order = np.argsort(owner, kind="stable").astype(np.uint32)
    return order, np.bincount(owner, minlength=world).tolist()


def as_ids(ids: Ids, kind: str) -> Ids:
    """As the kernels look them up: ``np.int64 [k]``, or strings of either arrow type."""
    if kind == "string":
        array = pa.array(ids) if isinstance(ids, np.ndarray) else ids
        return array if pa.types.is_string(array.type) else _large(array)
    return ids if isinstance(ids, np.ndarray) else to_numpy(ids)


def _large(ids: Ids) -> Ids:
    """Strings as a large_string array, of which any rows can be taken; numbers as they are."""
    return ids if isinstance(ids, np.ndarray) else ids.cast(pa.large_string())


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
