"""The nodes whose embeddings alone are wanted: a table of ids, streamed."""

from __future__ import annotations

from collections.abc import Iterator

from embertide.readers.dialect import Dialect
from embertide.readers.ids import IdKind, id_column, to_ids
from embertide.readers.nodes import NodeBatch
from embertide.readers.sources import Sources
from embertide.readers.splits import TARGET_BYTES, Split
from embertide.readers.table import BATCH_ROWS, Table, read_table, split_table
from embertide.spec.targets import TargetTable
from embertide.storage.protocol import Storage

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
    """The ids of a split, in order, at most ``batch_rows`` a batch.

    Raises:
        InputError: names object, row and value of the first bad id.
    """
    table = _table(targets, ids)
    for (array,), where in read_table(storage, table, split, batch_rows):
        yield NodeBatch(to_ids(array, table.columns[0], ids, where), where)


def _table(targets: TargetTable, ids: IdKind | None) -> Table:
    column = id_column(f"{FIELD}.idColumn", targets.id_column, ids)
    written = targets.dialect.model_dump() if targets.dialect is not None else {}
    dialect = Dialect(header=targets.header, separator=targets.separator, **written)
    return Table(FIELD, targets, targets.format, (column,), dialect)
