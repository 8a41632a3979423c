"""Features that are a history: of several rows of an id, the last one counts.

Which rows do not is found once, by the process that lists the inputs, from two columns; splits
leave them out as they do the deleted rows of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from embertide.errors import InputError
from embertide.io.readers.columns import Column, refuse_nulls
from embertide.io.readers.ids import IdKind, id_column, to_ids
from embertide.io.readers.layout import pack_rows, unpack_kept
from embertide.io.readers.splits import Split
from embertide.io.readers.table import BATCH_ROWS, Table, read_table
from embertide.io.readers.types import holds_text, plain
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import FeatureInput


def order_column(name: str) -> Column:
    """The column that says which row is the last."""
    return Column("features.latestBy", name, "order")


def without_earlier(
    storage: Storage, features: FeatureInput, ids: IdKind, splits: Sequence[Split]
) -> list[Split]:
    """The splits without the rows that are not the last of their id, by ``latestBy``.

    Raises:
        InputError: names a row without an id or a place in the order, or the id that has two last
            rows; or objects whose columns are of different types.
    """
    assert features.id_column is not None, "checked"
    assert features.latest_by is not None, "the caller saw it"
    order = order_column(features.latest_by)
    columns = (id_column("features.idColumn", features.id_column, ids), order)
    table = Table("features", features, features.format, columns)
    names = list[Any]()
    times = list[Any]()
    places = [np.empty((0, 2), np.int64)]
    for number, split in enumerate(splits):
        for (some_names, some_times), where in read_table(storage, table, split, BATCH_ROWS):
            names.append(pa.array(to_ids(some_names, columns[0], ids, where)))
            times.append(_in_order(some_times, order, where, times))
            rows = np.arange(len(some_times)) if where.rows is None else where.rows
            places.append(np.stack([np.full(len(rows), number), where.first_row + rows], axis=1))
    if not names:
        return list(splits)
    codes = _codes(pa.chunked_array(names).combine_chunks())
    ranks = pc.rank(pa.chunked_array(times), tiebreaker="dense").to_numpy().astype(np.int64)
    at = np.lexsort((ranks, codes))
    same = codes[at][1:] == codes[at][:-1]
    is_last = np.append(~same, True)
    ties = np.flatnonzero(same & is_last[1:] & (ranks[at][1:] == ranks[at][:-1]))
    where_from = np.concatenate(places)
    if len(ties):
        raise _tie(features, splits, where_from[at[ties[0] : ties[0] + 2]], len(ties))
    return _without(splits, where_from[np.sort(at[~is_last])])


def _in_order(array: Any, column: Column, where: Where, before: Sequence[Any]) -> Any:
    array = plain(array)
    refuse_nulls(array, column, where)
    if holds_text(array.type):
        array = array.cast(pa.large_binary())
    if pa.types.is_floating(array.type) and (wrong := np.isnan(array.to_numpy())).any():
        raise InputError(
            f"{where.row(int(np.argmax(wrong)))}: {column} is NaN; fill it in or drop the row"
        )
    if before and before[0].type != array.type:
        raise InputError(
            f"{where.uri}: {column} holds {array.type}, but {before[0].type} in the first object;"
            " write it with one type"
        )
    return array


def _codes(names: Any) -> npt.NDArray[np.int64]:
    """[n] a number for each different id."""
    encoded = pc.dictionary_encode(names)
    return np.asarray(encoded.indices.to_numpy(), np.int64)


def _tie(
    features: FeatureInput, splits: Sequence[Split], two: npt.NDArray[np.int64], count: int
) -> InputError:
    first, second = (Where(splits[number].uri, row).row(0) for number, row in two.tolist())
    return InputError(
        f"{features.location}: {count} id{'s have' if count > 1 else ' has'} two last rows by"
        f" {features.latest_by!r} (features.latestBy), such as that of {first} and {second}; keep"
        " one of them, or name a column that tells them apart"
    )


def _without(splits: Sequence[Split], earlier: npt.NDArray[np.int64]) -> list[Split]:
    """The splits without some rows: pairs of a split's number and a row of its object, in order."""
    found = []
    for number, split in enumerate(splits):
        size = split.stop - split.start
        kept = unpack_kept(split.deleted, size) if split.deleted else np.ones(size, np.bool_)
        first, last = np.searchsorted(earlier[:, 0], [number, number + 1])
        kept[earlier[first:last, 1] - split.start] = False
        gone = split.start + np.flatnonzero(~kept)
        text, count = pack_rows(gone, split.start, split.stop)
        found.append(replace(split, deleted=text, deleted_rows=count))
    return found
