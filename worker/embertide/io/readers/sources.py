"""Which files an input consists of: objects under a uri, or those that a table's metadata names.

Each table is looked up once by one process, which lists for all ranks: a version that is committed
meanwhile is in none of their splits.
"""

from __future__ import annotations

from collections.abc import Mapping

from embertide.errors import ObjectMissing
from embertide.io.readers.places import list_input
from embertide.io.readers.table_snapshot import TableSnapshot
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.features import FeatureInput
from embertide.spec.nodes import NodeTable
from embertide.spec.places import ObjectInput
from embertide.spec.tables import TABLE_FORMATS, AsOf, TableInput
from embertide.spec.targets import TargetTable

Source = EdgeInput | FeatureInput | NodeTable | TargetTable
TableKey = tuple[str, str, AsOf | None]
"""What says which version of which table is read: its URI, format and ``asOf``."""


def table_key(item: TableInput) -> TableKey:
    """The key of an input that is a table."""
    assert item.uri is not None, "checked"
    return item.uri, item.format, item.as_of


class Sources:
    """The files of inputs; what was looked up once stays as it was.

    Args:
        tables: a storage for what tables consist of; default: the same.
        versions: of tables that another process looked up.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        tables: Storage | None = None,
        versions: Mapping[TableKey, int] | None = None,
    ) -> None:
        self._storage, self._versions = storage, versions or {}
        self._storage_of_tables = storage if tables is None else tables
        self._tables: dict[TableKey, TableSnapshot] = {}

    def files(self, item: ObjectInput, field: str) -> list[ObjectInfo]:
        """The files of an input, place by place and by URI; of a table with their layouts.

        Args:
            field: of the manifest that has the input, for errors.

        Raises:
            ObjectMissing: there are none.
            InputError: objects are refused by :func:`list_input`, or the table cannot be read.
            StorageError: the store refuses or does not answer.
        """
        if not isinstance(item, Source) or item.format not in TABLE_FORMATS:
            return list_input(self._storage, item, field)
        snapshot = self.snapshot(item)
        if not snapshot.files:
            raise ObjectMissing(
                f"{snapshot.format} table {item.uri} has no files in version {snapshot.version}"
            )
        return snapshot.files

    def snapshot(self, item: TableInput) -> TableSnapshot:
        """The version of a table that is read.

        Raises:
            ObjectMissing, InputError, StorageError: see :meth:`files`.
        """
        key = uri, form, as_of = table_key(item)
        if key not in self._tables:
            version = self._versions.get(key)
            self._tables[key] = _read(self._storage_of_tables, uri, form, as_of, version)
        return self._tables[key]


def _read(
    storage: Storage, uri: str, form: str, as_of: AsOf | None, version: int | None
) -> TableSnapshot:
    """The version that ``as_of`` asks for, or that ``version`` of it."""
    if form == "delta":
        from embertide.io.readers.delta import read_delta

        return read_delta(storage, uri, as_of if version is None else AsOf(version=version))
    from embertide.io.readers.iceberg import read_iceberg

    return read_iceberg(storage, uri, as_of, version)
