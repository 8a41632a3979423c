"""Deletes of Iceberg tables, which their Python library reads and does not write."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def positional_deletes(table: Any, rows: Sequence[int]) -> None:
    """Delete rows of the table's only file."""
    from pyiceberg.manifest import DataFileContent

    (task,) = table.scan().plan_files()
    deletes = pa.table({"file_path": [task.file.file_path] * len(rows), "pos": list(rows)})
    _commit(table, deletes, DataFileContent.POSITION_DELETES, None)


def equality_deletes(table: Any, ids: Sequence[int]) -> None:
    """Delete the rows whose first column has one of these values."""
    from pyiceberg.manifest import DataFileContent

    first = table.schema().columns[0]
    column = pa.field(first.name, pa.int64(), metadata={"PARQUET:field_id": str(first.field_id)})
    deletes = pa.table([list(ids)], schema=pa.schema([column]))
    _commit(table, deletes, DataFileContent.EQUALITY_DELETES, [first.field_id])


def append_file(table: Any, path: Path, partition: Sequence[Any]) -> None:
    """Append a file of data that was written elsewhere, with the values of its partition."""
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _FastAppendFiles

    file = _file(table, path, DataFileContent.DATA, partition)
    transaction = table.transaction()
    with _FastAppendFiles(Operation.APPEND, transaction=transaction, io=table.io) as commit:
        commit.append_data_file(file)
    transaction.commit_transaction()


def _commit(table: Any, deletes: pa.Table, content: Any, equality: list[int] | None) -> None:
    """A snapshot with one more manifest, of a file of deletes."""
    from pyiceberg.manifest import ManifestContent, ManifestWriterV2
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _FastAppendFiles

    class Writer(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    class Deletes(_FastAppendFiles):
        def new_manifest_writer(self, spec: Any) -> Writer:
            output = self.new_manifest_output()
            return Writer(spec, self.schema(), output, self._snapshot_id, self._compression)

    path = Path(table.location().removeprefix("file://")) / "data" / f"{uuid.uuid4()}.parquet"
    pq.write_table(deletes, path)
    transaction = table.transaction()
    with Deletes(Operation.OVERWRITE, transaction=transaction, io=table.io) as commit:
        commit.append_data_file(_file(table, path, content, (), equality))
    transaction.commit_transaction()


def _file(
    table: Any,
    path: Path,
    content: Any,
    partition: Sequence[Any],
    equality: list[int] | None = None,
) -> Any:
    from pyiceberg.manifest import DataFile, FileFormat
    from pyiceberg.typedef import Record

    names = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=pq.read_metadata(path).num_rows,
        file_size_in_bytes=path.stat().st_size,
        **{name: {} for name in (*names, "lower_bounds", "upper_bounds")},
        key_metadata=None,
        split_offsets=None,
        equality_ids=equality,
        sort_order_id=None,
    )
    file.spec_id = table.spec().spec_id
    return file
