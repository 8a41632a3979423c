"""What a format of parts does: rows into objects, front to back (S3 cannot seek), and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from embertide.io.storage.protocol import Storage
from embertide.io.versions.keys import KeyRange
from embertide.io.versions.rows import ID_COLUMN, Batch, Ids
from embertide.io.versions.sinks import HashedSink


class Sink(Protocol):
    """Takes rows in order."""

    def write(self, ids: Any, values: npt.NDArray[Any]) -> None:
        """Append n rows: their ids and values ``[n, D]``."""

    def finish(self) -> None:
        """All rows were written."""


@dataclass(frozen=True)
class PartShape:
    """What a part will have, as far as its bytes depend on it.

    Attributes:
        ids_kind: ``int64`` or ``string``.
        dtype: of the values.
        width: D, the length of an embedding; 0 for ids alone.
        rows: n.
    """

    ids_kind: str
    dtype: np.dtype[Any]
    width: int
    rows: int


@dataclass(frozen=True)
class StoredPart:
    """Where a complete part is.

    Attributes:
        uri: of the object with its rows.
        size: of that object, in bytes.
        ids_uri: of the object with their ids; None where both are in the first one.
        ids_size: of that object, in bytes.
    """

    storage: Storage
    uri: str
    size: int
    ids_uri: str | None = None
    ids_size: int = 0


class PartFormat(ABC):
    """A file format of parts.

    Batches have about 8 MiB. All that reads raises OutputError, which names the object, where one
    is missing or damaged.
    """

    @abstractmethod
    def sinks(self, create: Callable[[str], HashedSink], shape: PartShape) -> list[Sink]:
        """Where each batch of rows is written: the sinks of one part.

        Args:
            create: opens an object of the part by its suffix, such as ``.npy``. The first one has
                the rows; the ids may be in a second one.
        """

    @abstractmethod
    def table(self, part: StoredPart) -> Any:
        """All rows as a table, in the published dtype."""

    @abstractmethod
    def batches(self, part: StoredPart, width: int) -> Iterator[Batch]:
        """All rows in order, in batches."""

    @abstractmethod
    def ids(self, part: StoredPart) -> Ids:
        """All ids in order."""

    @abstractmethod
    def batches_near(
        self, part: StoredPart, width: int, kind: str, keys: KeyRange
    ) -> Iterator[Batch]:
        """The rows of a range of keys, and perhaps some before and after it; rows ascend by key.

        Args:
            kind: of the ids: ``dense``, ``int64`` or ``string``.
        """

    def rows_with(self, part: StoredPart, wanted: Any) -> Any:
        """The rows with one of the ids, as a table.

        Args:
            wanted: ``[k]`` ids as an arrow array.
        """
        table = self.table(part)
        return table.filter(pc.is_in(table[ID_COLUMN], wanted))

    def last_id(self, part: StoredPart) -> Ids:
        """The id of the last row, as an array of one; the part has rows."""
        ids = self.ids(part)
        return ids[-1:] if isinstance(ids, np.ndarray) else ids.slice(len(ids) - 1)
