"""Rows of a version by the keys of their ids: those within a range, in bounded memory.

All parts together ascend by key, and so do the rows of each. Where the manifest has the first and
last key of a part, a reader of some keys leaves the other parts alone; within a part it looks for
the row groups by bisection.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embertide.kernels.hashing import Words
from embertide.readers.npy import read_header, read_rows
from embertide.storage.protocol import Storage
from embertide.versions.keys import Key, KeyRange, from_hex, key_at, key_words
from embertide.versions.part_sinks import ID_COLUMN, VECTOR_COLUMN
from embertide.versions.parts import PartDigest
from embertide.versions.reading import (
    Batch,
    batch_rows,
    find_object,
    ids_of,
    read_ids,
    read_part,
    readable,
    values_of,
)

KeyedBatch = tuple[Words, Batch]
"""Keys [n, w], and the rows that they are of."""


def bounds_of(part: PartDigest) -> tuple[Key, Key] | None:
    """The first and the last key of a part; None where its manifest does not have them."""
    if not part.first_key:
        return None
    return from_hex(part.first_key), from_hex(part.last_key)


def may_have(part: PartDigest, keys: KeyRange) -> bool:
    """Whether a part may have rows within a range."""
    bounds = bounds_of(part)
    return part.rows > 0 and (bounds is None or keys.overlaps(*bounds))


def rows_within(
    storage: Storage, folder_uri: str, part: PartDigest, width: int, kind: str, keys: KeyRange
) -> Iterator[KeyedBatch]:
    """A part's rows whose keys are in a range, in batches of about 8 MiB.

    Args:
        folder_uri: the version's objects are below it.
        width: D, the length of an embedding.
        kind: of the ids: ``dense``, ``int64`` or ``string``.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    bounds = bounds_of(part)
    if bounds is not None and keys.covers(*bounds):
        batches = read_part(storage, folder_uri, part, width)
    else:
        batches = _read_near(storage, folder_uri, part, width, kind, keys)
    for ids, values in batches:
        words = key_words(ids, kind)
        inside = keys.mask(words)
        if inside.all():
            yield words, (ids, values)
        elif inside.any():
            yield words[inside], (taken(ids, inside), values[inside])


def taken(ids: Any, mask: Any) -> Any:
    """The ids where a mask [n] is true."""
    return ids[mask] if isinstance(ids, np.ndarray) else ids.filter(pa.array(mask))


def _read_near(
    storage: Storage, folder_uri: str, part: PartDigest, width: int, kind: str, keys: KeyRange
) -> Iterator[Batch]:
    """The rows of a part from just before a range to just after it."""
    if part.ids_name is None:
        yield from _row_groups(storage, f"{folder_uri}/{part.name}", width, kind, keys)
        return
    ids = read_ids(storage, f"{folder_uri}/{part.ids_name}")
    (inside,) = np.nonzero(keys.mask(key_words(ids, kind)))
    if not len(inside):
        return
    first, last = int(inside[0]), int(inside[-1]) + 1
    with readable(f"{folder_uri}/{part.name}"):
        info = find_object(storage, f"{folder_uri}/{part.name}")
        header = read_header(storage, info)
        for values, _ in read_rows(storage, info, header, first, last, batch_rows(width)):
            yield ids[first : first + len(values)], values.astype(np.float32, copy=False)
            first += len(values)


def _row_groups(
    storage: Storage, uri: str, width: int, kind: str, keys: KeyRange
) -> Iterator[Batch]:
    with readable(uri):
        info = find_object(storage, uri)
        with storage.open(uri, info) as raw:
            file = pq.ParquetFile(pa.PythonFile(raw, mode="r"), pre_buffer=False)
            groups = list(groups_within(file, kind, keys))
            for batch in file.iter_batches(batch_rows(width), groups, use_threads=False):
                yield ids_of(batch.column(ID_COLUMN)), values_of(batch.column(VECTOR_COLUMN), width)


def groups_within(file: Any, kind: str, keys: KeyRange) -> range:
    """The row groups of a part that may have rows within a range, by a few look-ups of ids."""
    groups = range(file.metadata.num_row_groups)

    def first_key(group: int) -> Key:
        ids = file.read_row_group(group, [ID_COLUMN], use_threads=False).column(0)
        return key_at(key_words(ids_of(ids.chunk(0).slice(0, 1)), kind), 0)

    low = 0 if keys.low is None else bisect.bisect_right(groups, keys.low, key=first_key) - 1
    high = (
        len(groups) if keys.high is None else bisect.bisect_left(groups, keys.high, key=first_key)
    )
    return range(max(0, low), high)
