"""Parquet: what the statistics of row groups say of the ids that their rows have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embertide.io.readers.parquet import leaf_columns, opened
from embertide.io.storage.protocol import ObjectInfo, Storage


@dataclass(frozen=True)
class GroupBounds:
    """A row group: how many rows it has, and the least and the greatest of their ids; None where
    its statistics do not say."""

    rows: int
    ids: tuple[int, int] | None


def group_bounds(storage: Storage, info: ObjectInfo, stored: str | None) -> list[GroupBounds]:
    """The row groups of an object, by its end alone.

    Args:
        stored: the name under which it has the ids; None: rows are numbered.
    """
    with opened(storage, info, [], [], 0) as (file, _raw):
        metadata = file.metadata
    leaves = [] if stored is None else leaf_columns(metadata, [stored])
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        GroupBounds(group.num_rows, _bounds(group.column(leaves[0])) if leaves else None)
        for group in groups
    ]


def _bounds(chunk: Any) -> tuple[int, int] | None:
    """The least and the greatest value of a column of whole numbers, if its statistics say so."""
    known = chunk.statistics
    if known is None or not known.has_min_max or known.null_count != 0:
        return None
    low, high = known.min, known.max
    return (low, high) if type(low) is int and type(high) is int and low <= high else None
