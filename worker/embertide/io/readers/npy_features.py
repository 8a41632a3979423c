"""Features in npy: one array of values and, unless rows are numbered, one of ids beside it.

Values and ids are paired object by object in order of uri; a split is a row range of a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.errors import InputError
from embertide.io.readers.columns import Column, Int64s
from embertide.io.readers.feature_schema import RECURSIVE_FIELD, feature_objects
from embertide.io.readers.ids import IdKind, Ids, id_column, to_ids
from embertide.io.readers.npy import (
    Header,
    check_columns,
    npy_file,
    read_header,
    read_npy,
    rows_of,
    split_rows,
)
from embertide.io.readers.npy_rows import some_rows_of, spans_of_rows
from embertide.io.readers.objects import list_objects, naming_others
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import Split, map_objects
from embertide.io.readers.table import with_bases
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.manifest import FeatureInput

Pair = tuple[ObjectInfo, ObjectInfo | None]


def split_npy_features(
    storage: Storage, features: FeatureInput, target_bytes: int, ids: IdKind | None
) -> list[Split]:
    """Splits of all pairs, in order of uri and row.

    Raises:
        ObjectMissing: there are no values or no ids.
        InputError: values and ids do not match, or have a wrong type or shape.
    """
    pairs = _pair(storage, features)
    objects = [values for values, _ in pairs]

    def look(pair: Pair) -> list[Split]:
        with naming_others(objects, pair[0], "npy", RECURSIVE_FIELD):
            return _split_pair(storage, features.key, target_bytes, ids, pair)

    return with_bases(map_objects(pairs, look))


def _pair(storage: Storage, features: FeatureInput) -> list[Pair]:
    values = feature_objects(Sources(storage), features)
    if features.ids_uri is None:
        return [(info, None) for info in values]
    ids = list_objects(
        storage, features.ids_uri, features.recursive, RECURSIVE_FIELD, features.include
    )
    if len(values) != len(ids):
        raise InputError(
            f"{features.location} has {len(values)} objects but {features.ids_uri} has {len(ids)}; "
            "every array of features needs one array of ids, in the same order"
        )
    return list(zip(values, ids, strict=True))


def _split_pair(
    storage: Storage, key: str | None, target_bytes: int, ids: IdKind | None, pair: Pair
) -> list[Split]:
    values, ids_info = pair
    header = read_header(storage, values, key)
    _check_values(values.uri, header)
    splits = split_rows(values, header, target_bytes)
    if ids_info is None:
        return splits
    ids_header = read_header(storage, ids_info)
    if ids_header.in_archive:
        raise InputError(f"{ids_info.uri} must be npy alone (idsUri); save it with numpy.save")
    check_columns(ids_info.uri, ids_header, [_ids_column(ids)])
    if len(ids_header.shape) != 1 or ids_header.rows != header.rows:
        raise InputError(
            f"{ids_info.uri} has shape {list(ids_header.shape)}; it must be [{header.rows}], one "
            f"id for each row of {values.uri}"
        )
    return [
        replace(split, ids_uri=ids_info.uri, ids_size=ids_info.size, ids_etag=ids_info.etag)
        for split in splits
    ]


def _ids_column(ids: IdKind | None) -> Column:
    return id_column("features.idsUri", 0, ids)


def _check_values(uri: str, header: Header) -> None:
    if header.dtype.kind not in "iufb":
        raise InputError(f"{uri} holds {header.dtype}; features must be numbers")
    if len(header.shape) != 2:
        raise InputError(
            f"{uri} has shape {list(header.shape)}; features must be [rows, width], "
            "also when width is 1"
        )


def read_npy_features(
    storage: Storage,
    ids: IdKind,
    split: Split,
    width: int,
    batch_rows: int,
    count: int | None,
    wanted: Int64s | None = None,
) -> Iterator[tuple[Ids, npt.NDArray[Any], Where]]:
    """Batches of (ids, values ``[n, width]`` of the array's type, where) of a split, in order.

    Args:
        wanted: ids, ascending, of numbered rows, which alone are read; None: all are.
    """
    some = None
    if wanted is not None:
        first, last = np.searchsorted(wanted, [split.base + split.start, split.base + split.stop])
        some = wanted[first:last] - split.base
    spans_of = None if some is None else partial(spans_of_rows, split, some)
    with npy_file(storage, split, spans_of) as (file, header):
        _check_values(split.uri, header)
        if header.width != width:
            raise InputError(
                f"{split.uri} has width {header.width}, but the features have width {width} (as in"
                " the first object); all objects must have the same"
            )
        if some is not None:
            for rows, where in some_rows_of(file, header, split, some, batch_rows):
                assert where.rows is not None
                yield where.rows + split.base, rows, where
            return
        batches = rows_of(file, header, split, batch_rows)
        if split.ids_info is None:
            for rows, where in batches:
                yield row_numbers(split, where, len(rows), count), rows, where
            return
        column, info = _ids_column(ids), split.ids_info
        of_ids = replace(split, uri=info.uri, object_size=info.size, etag=info.etag, array=None)
        named = read_npy(storage, [column], of_ids, batch_rows)
        for (rows, where), ((array,), ids_where) in zip(batches, named, strict=True):
            yield to_ids(array, column, ids, ids_where, count), rows, where


def read_row_ids(storage: Storage, ids: IdKind, split: Split, batch_rows: int) -> Iterator[Ids]:
    """Batches of the ids beside the rows of a split, in order.

    Raises:
        InputError: names the row of the first null, or of one that is no id of that kind.
    """
    assert split.ids_info is not None
    if split.start == split.stop:
        return
    column, info = _ids_column(ids), split.ids_info
    of_ids = replace(split, uri=info.uri, object_size=info.size, etag=info.etag, array=None)
    for (array,), where in read_npy(storage, [column], of_ids, batch_rows):
        yield to_ids(array, column, ids, where)


def row_numbers(split: Split, where: Where, rows: int, count: int | None) -> Int64s:
    """Dense ids of rows that are numbered through all objects; InputError beyond ``count``."""
    first = split.base + where.first_row
    if count is not None and first + rows > count:
        extra = max(0, count - first)
        raise InputError(
            f"{where.row(extra)}: this is feature row {first + extra} (from 0) of all, but count "
            f"is {count}; correct count, or the features"
        )
    return np.arange(first, first + rows, dtype=np.int64)
