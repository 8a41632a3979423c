"""Edges on disk, from when they are read until they are sent to the owners of their destinations.

They are written in pieces of equal size, the ends, weights and features of a piece one after the
other, so that the destinations alone can be read: they are counted before the edges are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.scratch import Scratch, ScratchTensor

PIECE_EDGES = 1 << 18
"""Edges that are written at a time; those that wait for more are in memory."""
_FIRST_PIECES = 16
"""Pieces of the first files."""
_GROWTH = 8
"""A file has an eighth of the pieces before it, so that few have room that is not used."""

_Array = npt.NDArray[np.generic]


def log_bytes(edges: float, edge_bytes: float) -> float:
    """Bytes of the files of so many edges, at most."""
    pieces = edges / PIECE_EDGES + 1
    return (pieces + max(_FIRST_PIECES, pieces / _GROWTH)) * PIECE_EDGES * edge_bytes


@dataclass(frozen=True)
class LoggedEdges:
    """A piece of the edges, on disk.

    Attributes:
        file, row: where it begins; a row of the file has a word of four bytes of each edge.
        count: edges.
        kind: of the ends.
        features: of each edge.
        reverse: the ends that were written as destinations are sources, and those as sources
            destinations.
    """

    file: ScratchTensor
    row: int
    count: int
    kind: np.dtype[np.integer]
    weighted: bool
    features: int = 0
    reverse: bool = False

    def __len__(self) -> int:
        return self.count

    @property
    def destination(self) -> npt.NDArray[np.integer]:
        """[e] read from the disk.

        Raises:
            StorageError: the disk cannot be read.
        """
        return self._end(not self.reverse)

    def turned(self) -> LoggedEdges:
        """The same edges the other way round, in the same file."""
        return replace(self, reverse=not self.reverse)

    def load(self) -> EdgeChunk:
        """The edges, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        ends, weight, features = 2 * self._end_words, None, None
        if self.weighted:
            weight = self._column(ends, 1)[: self.count]
        if self.features:
            values = self._column(ends + self.weighted, self.features)
            features = values.reshape(-1, self.features)[: self.count]
        return EdgeChunk(self._end(self.reverse), self.destination, weight, features)

    @property
    def _end_words(self) -> int:
        return self.kind.itemsize // FLOAT_BYTES

    def _end(self, number: int) -> npt.NDArray[np.integer]:
        """[e] the first or the second end, as they were written."""
        words = self._end_words
        return self._column(number * words, words).view(self.kind)[: self.count]

    def _column(self, first: int, words: int) -> npt.NDArray[np.float32]:
        read: npt.NDArray[np.float32] = (
            self.file.read_rows(self.row + first, self.row + first + words).view(-1).numpy()
        )
        return read


class EdgeLog:
    """Takes edges in any order, and writes them piece by piece. One thread may add at a time.

    Attributes:
        pieces: those that are on disk.
    """

    def __init__(
        self,
        scratch: Scratch,
        kind: np.dtype[np.integer],
        *,
        weighted: bool,
        features: int = 0,
    ) -> None:
        """Edges whose ends are integers of a kind, of 4 or 8 bytes, with K features each."""
        self.pieces: list[LoggedEdges] = []
        self._scratch, self._weighted, self._features = scratch, weighted, features
        self._kind = kind
        self._words = 2 * self._kind.itemsize // FLOAT_BYTES + weighted + features
        self._files: list[ScratchTensor] = []
        self._room = 0
        self._waiting: list[EdgeChunk] = []
        self._count = 0
        self._readers = 1

    def shared(self) -> EdgeLog:
        """This one, for another reader of its pieces, which closes it, too."""
        self._readers += 1
        return self

    def add(self, chunk: EdgeChunk) -> None:
        """Take some edges.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        at = 0
        while at < len(chunk):
            some = chunk.part(slice(at, at + PIECE_EDGES - self._count))
            self._waiting.append(some)
            self._count, at = self._count + len(some), at + len(some)
            if self._count == PIECE_EDGES:
                self._write()

    def finish(self) -> list[LoggedEdges]:
        """All pieces, after the edges that wait were written.

        Raises:
            StorageError: the disk has no room, or cannot be written.
        """
        if self._count:
            self._write()
        return self.pieces

    def close(self) -> None:
        """A reader needs the pieces no more; the last one gives their room back."""
        self._readers -= 1
        while self._files and not self._readers:
            self._files.pop().close()

    def _write(self) -> None:
        file, row = self._place()
        ends = [[c.source for c in self._waiting], [c.destination for c in self._waiting]]
        for number, end in enumerate(ends):
            first = row + number * self._kind.itemsize // FLOAT_BYTES
            self._write_column(file, first, np.concatenate(end).astype(self._kind, copy=False))
        if self._weighted:
            weights = [c.weight for c in self._waiting if c.weight is not None]
            first = row + self._words - self._features - 1
            self._write_column(file, first, np.concatenate(weights))
        if self._features:
            features = [c.features for c in self._waiting if c.features is not None]
            first = row + self._words - self._features
            self._write_column(file, first, np.concatenate(features), self._features)
        self.pieces.append(
            LoggedEdges(file, row, self._count, self._kind, self._weighted, self._features)
        )
        self._waiting, self._count = [], 0

    def _place(self) -> tuple[ScratchTensor, int]:
        """A file with room for a piece, and the row there."""
        if self._room == 0:
            room = max(_FIRST_PIECES, len(self.pieces) // _GROWTH)
            self._files.append(self._scratch.empty(room * self._words, PIECE_EDGES))
            # Last: where there is no room, every thread that adds fails in the same way.
            self._room = room
        file = self._files[-1]
        row = file.rows - self._room * self._words
        self._room -= 1
        return file, row

    def _write_column(self, file: ScratchTensor, row: int, values: _Array, width: int = 1) -> None:
        padded = np.zeros((PIECE_EDGES, width), values.dtype)
        padded[: len(values)] = values.reshape(-1, width)
        words = torch.from_numpy(padded).view(torch.float32)
        file.write_rows(row, words.view(-1, PIECE_EDGES))


@dataclass
class EdgeChunk:
    """Some edges with dense ids.

    Sources and destinations [e]; weights [e] and features [e, K] are float32, or None.
    """

    source: npt.NDArray[np.integer]
    destination: npt.NDArray[np.integer]
    weight: npt.NDArray[np.float32] | None
    features: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def load(self) -> EdgeChunk:
        """The edges, which are in memory already."""
        return self

    def turned(self) -> EdgeChunk:
        """The same edges the other way round, which share their memory."""
        return EdgeChunk(self.destination, self.source, self.weight, self.features)

    def part(self, which: slice | npt.NDArray[np.bool_]) -> EdgeChunk:
        """Some of the edges; those of a slice share memory."""
        weight = None if self.weight is None else self.weight[which]
        features = None if self.features is None else self.features[which]
        return EdgeChunk(self.source[which], self.destination[which], weight, features)


class StoredChunk(Protocol):
    """Some edges that may be on disk; an :class:`EdgeChunk` is one."""

    @property
    def destination(self) -> npt.NDArray[np.integer]:
        """[e] dense ids."""

    def __len__(self) -> int: ...

    def load(self) -> EdgeChunk:
        """The edges, in memory."""

    def turned(self) -> StoredChunk:
        """The same edges the other way round, which are stored once."""
