"""Edge lists, streamed: parquet, csv, tsv and npy give the same batches of checked edges.

One process divides the input into splits (`split_edges`), `assign_splits` says which rank reads
which, and each reads its own in batches (`read_edges`): memory does not depend on the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embertide.readers.columns import (
    Column,
    Float32s,
    IdKind,
    Ids,
    id_column,
    to_ids,
    to_weights,
)
from embertide.readers.splits import TARGET_BYTES, Split
from embertide.readers.table import BATCH_ROWS, Table, read_table, split_table
from embertide.readers.text import Dialect
from embertide.readers.where import Where
from embertide.spec.manifest import EdgeInput
from embertide.storage.protocol import Storage

EndKinds = tuple[IdKind, IdKind]
"""The kinds of ids of sources and of destinations."""
EndCounts = tuple[int | None, int | None]


@dataclass(frozen=True)
class EdgeBatch:
    """Some edges, in the order of the input.

    ``source`` and ``destination`` are ``np.int64 [n]``, perhaps read-only, or
    ``pa.LargeStringArray`` for string ids; ``weight`` is ``np.float32 [n]`` or None; ``where``
    names rows for errors.
    """

    source: Ids
    destination: Ids
    weight: Float32s | None
    where: Where

    def __len__(self) -> int:
        return len(self.source)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        weight = 0 if self.weight is None else self.weight.nbytes
        return int(self.source.nbytes + self.destination.nbytes) + weight


def split_edges(
    storage: Storage,
    edges: EdgeInput,
    target_bytes: int = TARGET_BYTES,
    ids: EndKinds | None = None,
) -> list[Split]:
    """Splits of an edge list, about ``target_bytes`` each, in order of uri and row.

    Columns are checked in every object (their types too, where the format has types; against
    the kinds of ``ids`` if given).

    Raises:
        ObjectMissing: there are no objects under ``edges.uri``.
        InputError: an object is unreadable, or a column is missing or has a wrong type.
    """
    return split_table(storage, _table(edges, ids or (None, None)), target_bytes)


def read_edges(
    storage: Storage,
    edges: EdgeInput,
    ids: EndKinds,
    split: Split,
    batch_rows: int = BATCH_ROWS,
    counts: EndCounts = (None, None),
) -> Iterator[EdgeBatch]:
    """The edges of a split, each exactly once and in order, at most ``batch_rows`` a batch.

    ``counts`` are the nodes of the source type and the destination type, where they are known and
    ids are dense.

    Raises:
        InputError: names object, row, column and value of the first bad edge.
    """
    table = _table(edges, ids)
    source, destination, *weight = table.columns
    for arrays, where in read_table(storage, table, split, batch_rows):
        yield EdgeBatch(
            to_ids(arrays[0], source, ids[0], where, counts[0]),
            to_ids(arrays[1], destination, ids[1], where, counts[1]),
            to_weights(arrays[2], weight[0], where) if weight else None,
            where,
        )


def _table(edges: EdgeInput, ids: tuple[IdKind | None, IdKind | None]) -> Table:
    # Between two node types, an id that is not there may well be one of the other type.
    source, destination = (
        ("", "")
        if edges.relation.within
        else (f", node type {edges.source_type!r}", f", node type {edges.destination_type!r}")
    )
    columns = [
        id_column(f"columns.source{source}", edges.columns.source, ids[0]),
        id_column(f"columns.destination{destination}", edges.columns.destination, ids[1]),
    ]
    if edges.columns.weight is not None:
        columns.append(Column("columns.weight", edges.columns.weight, "number"))
    dialect = Dialect(edges.header, edges.separator)
    return Table("edges", edges.uri, edges.format, tuple(columns), edges.recursive, dialect)
