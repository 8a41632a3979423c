"""Rows of a version by the keys of their ids: those within a range, in bounded memory.

All parts together ascend by key, and so do the rows of each. Where the manifest has the first and
last key of a part, a reader of some keys leaves the other parts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import format_of
from embertide.io.versions.keys import Key, KeyRange, from_hex, key_words
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import read_part, stored_part
from embertide.io.versions.rows import Batch
from embertide.kernels.hashing import Words

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
        stored = stored_part(storage, folder_uri, part)
        batches = format_of(stored).batches_near(stored, width, kind, keys)
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
