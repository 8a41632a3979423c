"""The nodes whose embeddings alone are wanted: a table of ids, streamed."""

from __future__ import annotations

from collections.abc import Iterator

from embertide.io.readers.dialect import Dialect
from embertide.io.readers.ids import IdKind, id_column
from embertide.io.readers.nodes import NodeBatch, read_id_table
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import BATCH_ROWS, Table, split_table
from embertide.io.storage.protocol import Storage
from embertide.spec.targets import TargetTable

FIELD = "inference.targets.table"


def split_targets(
    storage: Storage,
    targets: TargetTable,
    target_bytes: int = TARGET_BYTES,
    ids: IdKind | None = None,
    sources: Sources | None = None,
) -> list[Split]:
    """Splits of a table of targets, about ``target_bytes`` each, in order of uri and row.

    Raises:
        ObjectMissing: there are no objects of the table.
        InputError: an object is unreadable, or the column is missing or has a wrong type.
    """
    return split_table(storage, _table(targets, ids), target_bytes, sources)


def read_targets(
    storage: Storage, targets: TargetTable, ids: IdKind, split: Split, batch_rows: int = BATCH_ROWS
) -> Iterator[NodeBatch]:
    """The ids of a split, see :func:`read_id_table`."""
    return read_id_table(storage, _table(targets, ids), ids, split, batch_rows)


def _table(targets: TargetTable, ids: IdKind | None) -> Table:
    column = id_column(f"{FIELD}.idColumn", targets.id_column, ids)
    written = targets.dialect.model_dump() if targets.dialect is not None else {}
    dialect = Dialect(header=targets.header, separator=targets.separator, **written)
    return Table(FIELD, targets, targets.format, (column,), dialect)
