"""Tables of nodes, ids only, streamed: the authoritative list of them, where the manifest names
one, and those whose embeddings alone are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embertide.io.readers.dialect import Dialect
from embertide.io.readers.ids import IdKind, Ids, id_column, to_ids
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import BATCH_ROWS, Table, read_table, split_table
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import NodeTable
from embertide.spec.targets import TargetTable

IdTable = NodeTable | TargetTable


@dataclass(frozen=True)
class NodeBatch:
    """Ids of some nodes: ``np.int64 [n]`` or an arrow array of strings; ``where`` names rows."""

    ids: Ids
    where: Where

    def __len__(self) -> int:
        return len(self.ids)


def split_nodes(
    storage: Storage,
    nodes: IdTable,
    target_bytes: int = TARGET_BYTES,
    ids: IdKind | None = None,
    sources: Sources | None = None,
) -> list[Split]:
    """Splits of a table of nodes, about ``target_bytes`` each, in order of uri and row.

    Raises:
        ObjectMissing: there are no objects of the table.
        InputError: an object is unreadable, or the column is missing or has a wrong type.
    """
    return split_table(storage, _table(nodes, ids), target_bytes, sources)


def read_nodes(
    storage: Storage, nodes: IdTable, ids: IdKind, split: Split, batch_rows: int = BATCH_ROWS
) -> Iterator[NodeBatch]:
    """The ids of a split, in order, at most ``batch_rows`` a batch.

    Raises:
        InputError: names object, row and value of the first bad id.
    """
    table = _table(nodes, ids)
    for (array,), where in read_table(storage, table, split, batch_rows):
        yield NodeBatch(to_ids(array, table.columns[0], ids, where), where)


def _table(nodes: IdTable, ids: IdKind | None) -> Table:
    if isinstance(nodes, TargetTable):
        field = "inference.targets.table"
        column = id_column(f"{field}.idColumn", nodes.id_column, ids)
        written = nodes.dialect.model_dump() if nodes.dialect is not None else {}
        dialect = Dialect(header=nodes.header, separator=nodes.separator, **written)
        return Table(field, nodes, nodes.format, (column,), dialect)
    name = 0 if nodes.format == "npy" else nodes.id_column
    column = id_column("table.idColumn", name, ids)
    return Table("table", nodes, nodes.format, (column,))
