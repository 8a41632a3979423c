"""Edge lists, streamed: parquet, csv, tsv and npy give the same batches of checked edges.

One process divides the input into splits (`split_edges`), `assign_splits` says which rank reads
which, and each reads its own in batches (`read_edges`): memory does not depend on the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from embertide.errors import InputError
from embertide.footprint import FLOAT_BYTES
from embertide.io.readers.columns import Column, Float32s, Kind, refuse_nulls, to_weights
from embertide.io.readers.dialect import Dialect
from embertide.io.readers.feature_schema import vector_width
from embertide.io.readers.ids import IdKind, Ids, Mask, id_column, to_end_ids
from embertide.io.readers.parquet import UNBUFFERED_BYTES
from embertide.io.readers.pool import readers
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import BATCH_ROWS, Selection, Table, read_table, split_table
from embertide.io.readers.vectors import finite_vectors
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EdgeInput
from embertide.spec.tables import COLUMN_FORMATS

EndKinds = tuple[IdKind, IdKind]
"""The kinds of ids of sources and of destinations."""
EndCounts = tuple[int | None, int | None]
_ENDS_BYTES = 16
"""Bytes of an edge's two ids, as they are read."""
_FIRST_ROWS = 1 << 10
_FETCHED_BYTES = 1 << 30
"""Bytes of splits that are read at once, on machines of many cores."""


@dataclass(frozen=True)
class EdgeBatch:
    """Some edges, in the order of the input.

    ``source`` and ``destination`` are ``np.int64 [n]``, perhaps read-only, or
    an arrow array of strings, of either type; ``weight`` is ``np.float32 [n]`` and ``features`` is
    ``np.float32 [n, K]``, or None; ``where`` names rows for errors. ``beyond`` says which sources,
    and which destinations, are dense ids beyond the last node's; None where none are.
    """

    source: Ids
    destination: Ids
    weight: Float32s | None
    where: Where
    features: Float32s | None = None
    beyond: tuple[Mask | None, Mask | None] = (None, None)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        carried = sum(part.nbytes for part in (self.weight, self.features) if part is not None)
        return int(self.source.nbytes + self.destination.nbytes) + carried


def split_edges(
    storage: Storage,
    edges: EdgeInput,
    target_bytes: int = TARGET_BYTES,
    ids: EndKinds | None = None,
    sources: Sources | None = None,
) -> list[Split]:
    """Splits of an edge list, about ``target_bytes`` each, in order of uri and row.

    Columns are checked in every object (their types too, where the format has types; against
    the kinds of ``ids`` if given).

    Raises:
        ObjectMissing: there are no objects, and they are not optional.
        InputError: an object is unreadable, or a column is missing or has a wrong type.
    """
    return split_table(storage, _table(edges, ids or (None, None)), target_bytes, sources)


def read_edges(
    storage: Storage,
    edges: EdgeInput,
    ids: EndKinds,
    split: Split,
    batch_rows: int = BATCH_ROWS,
    counts: EndCounts = (None, None),
    features: int | None = None,
) -> Iterator[EdgeBatch]:
    """The edges of a split, each exactly once and in order, at most ``batch_rows`` a batch.

    A batch of edges with features has fewer, so that it takes as much memory as one without.
    ``counts`` are the nodes of the source type and the destination type, where they are known and
    ids are dense; ``features`` is `edge_feature_width`'s result (found again when left out).

    Raises:
        InputError: names object, row, column and value of the first bad edge.
    """
    table = _table(edges, ids)
    source, destination, *carried = table.columns
    weights = 0 if edges.columns.weight is None else 1
    width = edge_feature_width(storage, edges) if features is None else features
    rows = max(1, batch_rows * _ENDS_BYTES // (_ENDS_BYTES + FLOAT_BYTES * width))
    for arrays, where in read_table(storage, table, split, rows):
        values = arrays[2 + weights :]
        sources, beyond_sources = to_end_ids(arrays[0], source, ids[0], where, counts[0])
        ends, beyond_ends = to_end_ids(arrays[1], destination, ids[1], where, counts[1])
        yield EdgeBatch(
            sources,
            ends,
            to_weights(arrays[2], carried[0], where) if weights else None,
            where,
            finite_vectors(values, carried[weights:], width, where) if values else None,
            (beyond_sources, beyond_ends),
        )


def count_edges(storage: Storage, edges: EdgeInput, split: Split) -> int:
    """Edges of a split of text, or of some of its rows, that nothing else is read of.

    Any ids are taken.

    Raises:
        InputError: an object is unreadable.
    """
    whole = _table(edges, ("string", "string"))
    counted = whole.columns[:2] if whole.only is None else (whole.only.column,)
    table = replace(whole, columns=counted)
    return sum(len(arrays[0]) for arrays, _ in read_table(storage, table, split, BATCH_ROWS))


def splits_at_once(splits: Sequence[Split], threads: int) -> int:
    """How many of some splits are read at once: by :func:`readers`, as long as 1 GiB holds them."""
    largest = max((split.size for split in splits), default=0)
    at_once = readers(splits, threads)
    return max(1, min(at_once, _FETCHED_BYTES // max(1, min(largest, UNBUFFERED_BYTES))))


def edge_feature_width(storage: Storage, edges: EdgeInput, sources: Sources | None = None) -> int:
    """K, features of every edge; 0 without.

    Raises:
        ObjectMissing: there are no objects.
        InputError: an object is unreadable, or vectors have no width, since there are none.
    """
    if edges.features is None:
        return 0
    columns = _feature_columns(edges)
    if columns[0].kind != "vector":
        return len(columns)
    width = _vector_width(storage, edges, columns[0], sources)
    if width is None:
        raise InputError(
            f"{edges.location} holds no edges, and {columns[0]} does not say how long its vectors"
            " are; write it as a fixed-size list, or name columns"
        )
    if width == 0:
        raise InputError(f"{edges.location}: {columns[0]} holds vectors without values")
    return width + len(columns) - 1


def _vector_width(
    storage: Storage, edges: EdgeInput, column: Column, sources: Sources | None
) -> int | None:
    """The width of a column of vectors; None without edges that tell it."""
    if edges.format in COLUMN_FORMATS and edges.where is None:
        objects = (sources or Sources(storage)).files(edges, "edges")
        return vector_width(storage, objects, column, "edges.recursive")
    table = replace(_table(edges, (None, None)), columns=(column,))
    for split in split_table(storage, table, TARGET_BYTES, sources):
        for (array,), where in read_table(storage, table, split, _FIRST_ROWS):
            refuse_nulls(array, column, where)
            return len(array[0])
    return None


def _feature_columns(edges: EdgeInput) -> list[Column]:
    given = edges.features
    if given is None:
        return []
    columns = [Column("features.columns", name, "number") for name in given.columns or ()]
    if given.vector_column is not None:
        columns.insert(0, Column("features.vectorColumn", given.vector_column, "vector"))
    return columns


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
    columns += _feature_columns(edges)
    written = edges.dialect.model_dump() if edges.dialect is not None else {}
    dialect = Dialect(header=edges.header, separator=edges.separator, **written)
    only = None
    if edges.where is not None:
        kind: Kind = "text" if edges.where.is_text else "integer"
        only = Selection(Column("where.column", edges.where.column, kind), edges.where.equals)
    return Table("edges", edges, edges.format, tuple(columns), dialect, only=only)
