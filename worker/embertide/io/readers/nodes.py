"""The authoritative list of nodes, where the manifest names one: ids only, streamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embertide.io.readers.ids import IdKind, Ids, id_column, to_ids
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import TARGET_BYTES, Split
from embertide.io.readers.table import BATCH_ROWS, Table, read_table, split_table
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import NodeTable


@dataclass(frozen=True)
class NodeBatch:
    """Ids of some nodes: ``np.int64 [n]`` or an arrow array of strings; ``where`` names rows."""

    ids: Ids
    where: Where

    def __len__(self) -> int:
        return len(self.ids)


def split_nodes(
    storage: Storage,
    nodes: NodeTable,
    target_bytes: int = TARGET_BYTES,
    ids: IdKind | None = None,
    sources: Sources | None = None,
) -> list[Split]:
    """Splits of a node table, about ``target_bytes`` each, in order of uri and row.

    Raises:
        ObjectMissing: there are no objects of the table.
        InputError: an object is unreadable, or the column is missing or has a wrong type.
    """
    return split_table(storage, _table(nodes, ids), target_bytes, sources)


def read_nodes(
    storage: Storage, nodes: NodeTable, ids: IdKind, split: Split, batch_rows: int = BATCH_ROWS
) -> Iterator[NodeBatch]:
    """The ids of a split, see :func:`read_id_table`."""
    return read_id_table(storage, _table(nodes, ids), ids, split, batch_rows)


def read_id_table(
    storage: Storage, table: Table, ids: IdKind, split: Split, batch_rows: int
) -> Iterator[NodeBatch]:
    """The ids of a split of a table with one column, in order, at most ``batch_rows`` a batch.

    Raises:
        InputError: names object, row and value of the first bad id.
    """
    for (array,), where in read_table(storage, table, split, batch_rows):
        yield NodeBatch(to_ids(array, table.columns[0], ids, where), where)


def _table(nodes: NodeTable, ids: IdKind | None) -> Table:
    name = 0 if nodes.format == "npy" else nodes.id_column
    column = id_column("table.idColumn", name, ids)
    return Table("table", nodes, nodes.format, (column,))
