"""Where the features of dense ids are, by what metadata says: numbers of rows, bounds of ids.

A process that needs some nodes alone reads the row groups, or the ranges of an array, that have
them. Where nothing says which rows these are, all are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from embertide.io.readers.columns import Int64s
from embertide.io.readers.row_groups import GroupBounds, group_bounds
from embertide.io.readers.splits import Split, map_objects
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import FeatureInput


@dataclass(frozen=True)
class Piece:
    """Some rows of a split that are read together.

    Attributes:
        split: has these rows alone.
        of: the split that they are of.
        low, high: the least id that any of the rows has, and the greatest; there may be others
            between them, elsewhere.
    """

    split: Split
    of: Split
    low: int
    high: int

    def may_have(self, ids: Int64s) -> bool:
        """Whether it may have a row of any of some ids, ascending."""
        first, last = np.searchsorted(ids, [self.low, self.high + 1])
        return bool(first < last)


def find_places(
    storage: Storage, features: FeatureInput, splits: Sequence[Split]
) -> list[Piece] | None:
    """The pieces of all splits, in their order; None where metadata does not say which ids they
    have: ids that lie beside arrays, no statistics of a column, rows without an id.

    Reads the end of each parquet object.

    Raises:
        InputError: an object is unreadable.
        InputChanged: it changed since it was listed.
    """
    if features.format == "npy":
        return [_numbered(split, split) for split in splits] if features.by_row_number else None
    objects = [list(group) for _, group in groupby(splits, lambda split: split.uri)]
    found = map_objects(objects, lambda own: _of_object(storage, features, own))
    pieces = list[Piece]()
    for own in found:
        if own is None:
            return None
        pieces += own
    return pieces


def needed(pieces: Sequence[Piece], ids: Int64s) -> list[Split]:
    """The splits of what may have a row of some ids; neighbours within a split are read as one.

    Args:
        ids: ascending.
    """
    found = list[Split]()
    some = [piece for piece in pieces if piece.may_have(ids)]
    for before, piece in zip([None, *some], some, strict=False):
        split = piece.split
        if before is not None and before.of is piece.of and before.split.stop == split.start:
            last = found.pop()
            groups = (*(last.row_groups or ()), *(split.row_groups or ()))
            size = last.size + split.size
            split = replace(last, stop=split.stop, size=size, row_groups=groups)
        found.append(split)
    return found


def _numbered(split: Split, of: Split) -> Piece:
    return Piece(split, of, split.base + split.start, split.base + split.stop - 1)


def _of_object(
    storage: Storage, features: FeatureInput, splits: Sequence[Split]
) -> list[Piece] | None:
    """The pieces of the splits of one parquet object."""
    name = features.id_column
    stored = None if name is None else splits[0].names.get(name, name)
    if name is not None and name in splits[0].constants:
        return None
    bounds, pieces = group_bounds(storage, splits[0].info, stored), list[Piece]()
    for split in splits:
        for piece in _of_split(split, bounds, by_number=name is None):
            if piece is None:
                return None
            pieces.append(piece)
    return pieces


def _of_split(
    split: Split, bounds: Sequence[GroupBounds], *, by_number: bool
) -> Iterator[Piece | None]:
    """A piece for each row group; one for all where the table no longer has some of the rows."""
    groups = [bounds[number] for number in split.row_groups or ()]
    if split.deleted:
        known = [group.ids for group in groups if group.ids is not None]
        whole = len(known) == len(groups)
        lows, highs = zip(*known, strict=True) if known else ((), ())
        yield Piece(split, split, min(lows), max(highs)) if whole and known else None
        return
    start = split.start
    for number, group in zip(split.row_groups or (), groups, strict=True):
        size = max(1, split.size * group.rows // max(1, split.stop - split.start))
        part = replace(split, start=start, stop=start + group.rows, size=size, row_groups=(number,))
        start += group.rows
        if group.rows and by_number:
            yield _numbered(part, split)
        elif group.rows:
            yield None if group.ids is None else Piece(part, split, *group.ids)
