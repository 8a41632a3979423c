"""A store without tensors, which runs with tensors on disk, or in host memory, are planned with.

It counts what goes there and back, and what its tensors take. Parts in memory are ghosts. A tensor
is gone over block by block from its first row on: the first block stands for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels import scratch
from embertide.kernels.ghosts import Ledger, ghost
from embertide.kernels.store import Tally

T = TypeVar("T")


@dataclass
class GhostStore(Tally):
    """Tensors that are there, and what would go there and back.

    Attributes:
        ledger: of the parts in memory.
        staged: tensors are in host memory beside a GPU, which copies both ways at a time; else on
            disk.
    """

    ledger: Ledger
    staged: bool = False
    _tensors: dict[int, GhostTensor] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Tensors that there are."""
        return len(self._tensors)

    def empty(self, rows: float, width: int, panel: int | None = None) -> GhostTensor:
        """A tensor to be written; its columns are all in a panel by default."""
        made = GhostTensor(self, rows, width, min(panel or width, width))
        self._tensors[id(made.data)] = made
        self.hold(made.size)
        return made

    def room(self, rows: float, width: int) -> torch.Tensor:
        """A part in memory."""
        return ghost(self.ledger, (rows, width))

    def of(self, tensor: torch.Tensor) -> GhostTensor:
        """The tensor of ours whose ``data`` another one is."""
        return self._tensors[id(tensor)]

    def forget(self, tensor: GhostTensor) -> None:
        """The tensor is closed."""
        del self._tensors[id(tensor.data)]
        self.hold(-tensor.size)

    def mover(self) -> GhostMover:
        """What has the next part in memory, and the last one."""
        return GhostMover(self)


class GhostTensor:
    """A tensor that is stored; see :class:`embertide.kernels.store.StoredTensor`."""

    def __init__(self, store: GhostStore, rows: float, width: int, panel: int) -> None:
        self.rows, self.width, self.panel, self._store = rows, width, panel, store
        panels = -(-width // panel) if panel else 0
        self._panel_bytes = FLOAT_BYTES * rows * panel
        self.size = panels * self._panel_bytes
        self.data = ghost(store.ledger, (rows, width), counted=False)

    def close(self) -> None:
        """It is there no more."""
        self._store.forget(self)

    def read_columns(self, first: int, last: int) -> torch.Tensor:
        """Some columns; panels are read whole."""
        panels = -(-last // self.panel) - first // self.panel
        self._store.moved(read=panels * self._panel_bytes)
        return self._store.room(self.rows, last - first)

    def write_columns(self, _first: int, _values: torch.Tensor) -> None:
        """A panel."""
        self._store.moved(written=self._panel_bytes)

    def read_rows(self, first: float, last: float) -> torch.Tensor:
        """A block."""
        self._store.moved(read=0.0 if first else self.size)
        return self._store.room(last - first, self.width)

    def write_rows(self, first: float, _values: torch.Tensor) -> None:
        """A block."""
        self._store.moved(written=0.0 if first else self.size)

    def host_rows(self, first: float, last: float) -> torch.Tensor:
        """See :meth:`read_rows`."""
        return self.read_rows(first, last)

    def set_host_rows(self, first: float, values: torch.Tensor) -> None:
        """See :meth:`write_rows`."""
        self.write_rows(first, values)

    def blocks(self, columns: int) -> Iterator[tuple[float, float]]:
        """First and last of some rows at a time."""
        return few_blocks(self.rows, max(1, scratch.CHUNK_BYTES // (FLOAT_BYTES * columns)))

    def wait(self) -> None:
        """All is there."""

    def settle(self) -> None:
        """All is where it stays."""


def few_blocks(rows: float, step: int) -> Iterator[tuple[float, float]]:
    """First and last row of as many blocks as are in memory at a time, at least one: what is
    written, computed and read."""
    for first in (0, step, 2 * step):
        if first < max(rows, 1):
            yield first, min(first + step, rows)


class GhostMover(AbstractContextManager["GhostMover"]):
    """Has parts in memory as long as they are read ahead, or written."""

    def __init__(self, store: GhostStore) -> None:
        self._store, self._writing = store, None

    _writing: Any

    def __exit__(self, *_: object) -> None:
        self._writing = None

    def ahead(self, reads: Iterable[Callable[[], T]], *, after_writes: bool = False) -> Iterator[T]:
        """The next part is there while one is used; ``after_writes`` it takes the memory of the
        last one, unless the store has both at a time."""
        coming: deque[T] = deque()
        for read in reads:
            coming.append(self._in_turn(read) if after_writes else read())
            if len(coming) > 1:
                yield coming.popleft()
        while coming:
            yield coming.popleft()

    def _in_turn(self, read: Callable[[], T]) -> T:
        ledger = self._store.ledger
        if self._store.staged:
            return read()
        before, self._writing = ledger.alive, None
        values = read()
        self._writing = ghost(ledger, (max(0.0, before - ledger.alive),), torch.uint8)
        return values

    def write(self, call: Callable[[T], None], values: T) -> None:
        """Values are there until the next ones are written."""
        self._writing = None
        call(values)
        self._writing = values
