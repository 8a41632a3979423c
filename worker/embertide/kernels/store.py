"""Where tensors are that don't fit where layers are computed, whatever it is: a disk, host memory.

Parts of them are brought to where layers are computed: on disk by :mod:`embertide.kernels.scratch`,
in host memory beside a GPU by :mod:`embertide.kernels.host_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

import torch

T = TypeVar("T")


class StoredTensor(Protocol):
    """A float32 tensor [rows, width], panel by panel; a panel is some columns of all rows.

    Attributes:
        panel: columns of a panel; the last panel may have fewer, and is stored as wide as others.
        data: its values on the CPU: [rows, width] of a single panel, else [rows, panels, panel].
            For a few rows here and there, after :meth:`wait`.
    """

    rows: int
    width: int
    panel: int
    data: torch.Tensor

    def close(self) -> None:
        """Give the room back; the values may not be used any more."""

    def read_columns(self, first: int, last: int) -> torch.Tensor:
        """[rows, last - first] some columns, where layers are computed."""

    def write_columns(self, first: int, values: torch.Tensor) -> None:
        """Set the columns of a panel from number ``first`` on; [rows, columns of the panel]."""

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, where layers are computed."""

    def write_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on; [k, width]."""

    def host_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, in host memory; any thread may call."""

    def set_host_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on, from host memory; [k, width]."""

    def blocks(self, columns: int) -> Iterator[tuple[int, int]]:
        """First and last of some rows at a time, of so many columns; at least once."""

    def wait(self) -> None:
        """All rows and columns that were written are there, for who reads ``data``."""

    def settle(self) -> None:
        """What was written to ``data`` is where it stays."""


class Mover(Protocol):
    """Reads the next part and writes the last one while a part is computed.

    All is done when its context is left, also by an error.
    """

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for what is under way."""

    def ahead(self, reads: Iterable[Callable[[], T]], *, after_writes: bool = False) -> Iterator[T]:
        """What each call returns, in order; the next one is read while the caller uses it.

        Args:
            after_writes: it takes the memory of the write that goes on meanwhile.
        """

    def write(self, call: Callable[[T], None], values: T) -> None:
        """Have values written, which nothing changes any more."""


class Tally:
    """What went to a store and back, and what its tensors take.

    Attributes:
        written, read: bytes so far.
        held, most: bytes that its tensors have now, and the most that they had.
    """

    written: float = 0
    read: float = 0
    held: float = 0
    most: float = 0

    def hold(self, size: float) -> None:
        """Count bytes that are there from now on, or, below 0, no more."""
        self.held += size
        self.most = max(self.most, self.held)

    def moved(self, *, written: float = 0, read: float = 0) -> None:
        """Count bytes that go there, and that come from there."""
        self.written += written
        self.read += read


class Store(Protocol):
    """Tensors that are there, and what went there and back.

    Attributes:
        written, read: bytes so far.
        most: the most bytes that its tensors had.
    """

    written: float
    read: float
    most: float

    @property
    def count(self) -> int:
        """Tensors that there are."""

    def empty(self, rows: int, width: int, panel: int | None = None) -> StoredTensor:
        """A tensor to be written.

        Args:
            panel: columns of a panel; by default all.
        """

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] float32, uninitialised, where layers are computed."""

    def of(self, tensor: torch.Tensor) -> StoredTensor:
        """The tensor of ours whose ``data`` begins where another one does."""

    def moved(self, *, written: float = 0, read: float = 0) -> None:
        """Count bytes that went there, and that came from there."""

    def mover(self) -> Mover:
        """What reads and writes parts beside the layers."""
