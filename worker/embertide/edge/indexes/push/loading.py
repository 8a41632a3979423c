"""A version's parts into a table: those that are there already are left out, failures retried.

The rows of a part are added in order, so a part is there when its last row is.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from embertide.edge.indexes.push.protocol import Index, Table, TableSpec
from embertide.edge.indexes.rows import Shaped, Shaper
from embertide.errors import StoreUnavailable
from embertide.io.readers.pool import read_ahead
from embertide.io.storage.protocol import Storage
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import last_id, read_part

_ATTEMPTS = 6
_PAUSE_SECONDS = 0.5
_AHEAD_BYTES = 24 << 20
"""Bytes of rows that are read while the index takes others."""

_log = logging.getLogger("embertide")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The rows of a version that a table gets.

    Attributes:
        uri: of the version.
        shaper: makes of them what is written.
    """

    storage: Storage
    uri: str
    parts: list[PartDigest]
    dim: int
    shaper: Shaper

    def rows_of(self, part: PartDigest) -> Iterator[Shaped]:
        """The rows of a part."""
        for batch in read_part(self.storage, self.uri, part, self.dim):
            yield self.shaper.shape(batch)


def load(
    index: Index,
    table: Table,
    spec: TableSpec,
    source: Source,
    *,
    begun: bool,
    on_rows: Callable[[int], None],
) -> None:
    """Add the rows of all parts that are not there.

    Args:
        begun: whether an earlier push may have added some.
        on_rows: called with the rows that are there now and were not.

    Raises:
        StoreUnavailable: the index failed at each attempt.
    """
    for part in source.parts:
        if not part.rows or (begun and _is_there(index, table, source, part)):
            on_rows(part.rows)
            continue
        retried(index, lambda part=part: _append(index, table, spec, source, part))  # type: ignore[misc]
        on_rows(part.rows)


def _append(index: Index, table: Table, spec: TableSpec, source: Source, part: PartDigest) -> None:
    rows = read_ahead([source.rows_of(part)], 1, lambda shaped: shaped.values.nbytes, _AHEAD_BYTES)
    with closing(rows):
        index.append(table, spec, rows)


def retried(index: Index, action: Callable[[], None]) -> None:
    """Do it, again after errors that may pass.

    Raises:
        StoreUnavailable: it failed at each attempt.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if attempt > 1:
                index.reconnect()
            action()
            return
        except index.transient as error:
            _log.warning("the index failed (attempt %d of %d): %s", attempt, _ATTEMPTS, error)
            if attempt == _ATTEMPTS:
                raise StoreUnavailable(
                    f"the index failed at each of {_ATTEMPTS} attempts: {error}; push again, which"
                    " goes on where this ended"
                ) from error
            time.sleep(_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1))


def _is_there(index: Index, table: Table, source: Source, part: PartDigest) -> bool:
    shaped = source.shaper.shape_ids(last_id(source.storage, source.uri, part))
    return bool(index.rows(table, shaped.to_pylist()))
