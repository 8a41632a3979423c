"""LanceDB: a table, in which each version is a branch, and a tag that readers check out.

    table = db.open_table("products")
    table.checkout("current")

A reader that opens the table without the tag sees its main branch, which has no rows. A version
that is made of the one before is a branch of its branch and shares its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.edge.indexes.formats import Parquet
from embertide.edge.indexes.layout import Layout
from embertide.edge.indexes.push.protocol import Errors, Table, TableSpec
from embertide.edge.indexes.rows import Shaped
from embertide.errors import OutputError

TAG = "current"


class Lance:
    """See :class:`embertide.edge.indexes.push.protocol.Index`.

    Args:
        location: a folder, or a bucket and prefix of S3.
        options: of the store; see :func:`embertide.edge.indexes.push.lance_s3.s3_options`.
    """

    transient: Errors = (OSError,)
    errors: Errors = (OSError, RuntimeError, ValueError)
    derives = True
    longest_name = 255

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self._database = lancedb.connect(location, storage_options=dict(options or {}))

    def tables(self, alias: str) -> list[Table]:
        """The branches that are not half derived of others."""
        if not self._has(alias):
            return []
        main = self._database.open_table(alias)
        parsed = [Table.parse(alias, name) for name in main.branches.list()]
        tags = main.tags.list()
        return [table for table in parsed if table is not None and _making(table) not in tags]

    def _has(self, alias: str) -> bool:
        return alias in self._database.list_tables().tables

    def current(self, alias: str) -> Table | None:
        """The branch whose version the tag names."""
        if not self._has(alias):
            return None
        main = self._database.open_table(alias)
        if TAG not in main.tags.list():
            if main.count_rows():
                raise OutputError(
                    f"the table {alias} has rows that embertide push did not write;"
                    " choose another --name"
                )
            return None
        main.checkout(TAG)
        table = Table.parse(alias, main.current_branch() or "")
        if table is None:
            raise OutputError(
                f"the tag {TAG} of {alias} is not one that embertide push makes; choose another"
                " --name"
            )
        return table

    def create(self, table: Table, spec: TableSpec) -> None:
        """A branch of an empty main branch, whose columns become those of the version."""
        schema = _parquet(spec).schema
        if not self._has(table.alias):
            main = self._database.create_table(table.alias, schema=schema)
        else:
            main = self._database.open_table(table.alias)
            if main.schema != schema:
                main = self._database.create_table(table.alias, schema=schema, mode="overwrite")
            if _making(table) in main.tags.list():
                self._forget(table)
        main.branches.create(table.name)

    def append(self, table: Table, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        """One commit."""
        self._branch(table).add(_reader(batches, spec))

    def derive(
        self,
        base: Table,
        table: Table,
        spec: TableSpec,
        upserts: Iterable[Shaped],
        deletes: Iterable[Sequence[Any]],
    ) -> None:
        """A branch of the branch, which has a tag while not all changes are in it."""
        main = self._database.open_table(table.alias)
        before = self._branch(base)
        if _making(table) in main.tags.list():
            self._forget(table)
        before.tags.create(_making(table), before.version)
        branch = main.branches.create(table.name, from_ref=base.name)
        merge = branch.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(_reader(upserts, spec))
        for ids in deletes:
            branch.delete(f"id IN ({_literals(ids)})")
        main.tags.delete(_making(table))

    def _forget(self, table: Table) -> None:
        """Remove what an earlier :meth:`derive` left."""
        main = self._database.open_table(table.alias)
        if table.name in main.branches.list():
            main.branches.delete(table.name)
        main.tags.delete(_making(table))

    def finish(self, table: Table, spec: TableSpec) -> None:
        """Nothing: searches are exact until someone makes an index of the table."""

    def count(self, table: Table) -> int:
        """Exactly."""
        return int(self._branch(table).count_rows())

    def rows(self, table: Table, ids: Sequence[Any]) -> Mapping[Any, npt.NDArray[Any]]:
        """By id."""
        found = self._branch(table).search().where(f"id IN ({_literals(ids)})").to_arrow()
        vectors = found["vector"].to_pylist()
        return {
            name: np.array(vector, np.float32)
            for name, vector in zip(found["id"].to_pylist(), vectors, strict=True)
        }

    def stored(self, values: npt.NDArray[Any], _spec: TableSpec) -> tuple[npt.NDArray[Any], float]:
        """The same bits."""
        return values, 0.0

    def switch(self, tables: Sequence[Table]) -> None:
        """One tag after the other."""
        for table in tables:
            branch = self._branch(table)
            if TAG in branch.tags.list():
                branch.tags.update(TAG, branch.version)
            else:
                branch.tags.create(TAG, branch.version)

    def drop(self, table: Table) -> bool:
        """Remove the branch, unless a later one was made of it."""
        try:
            self._database.open_table(table.alias).branches.delete(table.name)
        except RuntimeError as error:
            if "is referenced by" not in str(error):
                raise
            return False
        return True

    def reconnect(self) -> None:
        """Nothing stays open."""

    def close(self) -> None:
        """Nothing stays open."""

    def _branch(self, table: Table) -> Any:
        return self._database.open_table(table.alias).branches.checkout(table.name)


def _parquet(spec: TableSpec) -> Parquet:
    layout = Layout(vectors=spec.vectors, lists="fixed", vector_column="vector")
    return Parquet(layout, pa.large_string() if spec.text_ids else pa.int64(), spec.dim)


def _making(table: Table) -> str:
    """The tag of a branch that is being derived."""
    return f"making-{table.name}"


def _reader(batches: Iterable[Shaped], spec: TableSpec) -> Any:
    parquet = _parquet(spec)
    encoded = (parquet.encode(rows.ids, rows.values) for rows in batches)
    return pa.RecordBatchReader.from_batches(parquet.schema, encoded)


def _literals(ids: Sequence[Any]) -> str:
    """Ids as SQL has them; quotes within are doubled."""
    return ", ".join(
        str(name) if isinstance(name, int) else "'" + name.replace("'", "''") + "'" for name in ids
    )
