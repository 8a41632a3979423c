"""PostgreSQL with pgvector: a table for each version, and a view that readers use.

Rows come by binary COPY, a transaction for each part. A version that is made of the one before is
copied within the server. Views are replaced in one transaction, so readers see one version or the
other; a query that has begun goes on with the one that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from embertide.edge.indexes.formats import PgCopy
from embertide.edge.indexes.layout import Layout
from embertide.edge.indexes.push.protocol import Errors, Mismatch, Table, TableSpec
from embertide.edge.indexes.rows import Shaped
from embertide.errors import OutputError

_TYPES = {"float32": "vector", "float16": "halfvec"}
_LONGEST_INDEXED = {"float32": 2000, "float16": 4000}
"""Dimensions that pgvector's HNSW takes."""
_OPERATORS = {"cosine": "cosine_ops", "l2": "l2_ops", "ip": "ip_ops"}


class Postgres:
    """See :class:`embertide.edge.indexes.push.protocol.Index`.

    Args:
        uri: libpq's; passwords come from PGPASSWORD, a password file or a service.
    """

    transient: Errors = (psycopg.OperationalError,)
    errors: Errors = (psycopg.Error,)
    derives = True
    longest_name = 58
    """63, less what the search index has before it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection = psycopg.connect(uri, autocommit=True)

    def tables(self, alias: str) -> list[Table]:
        """By their names, in the schema where new tables go."""
        rows = self._query(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = current_schema()::regnamespace"
        )
        return [table for (name,) in rows if (table := Table.parse(alias, name)) is not None]

    def current(self, alias: str) -> Table | None:
        """The table that the view reads."""
        rows = self._query(
            "SELECT relkind::text FROM pg_class WHERE relname = %s"
            " AND relnamespace = current_schema()::regnamespace",
            [alias],
        )
        if not rows:
            return None
        if rows[0][0] != "v":
            raise OutputError(
                f"{alias} is a table or something else, not a view that embertide push makes;"
                " choose another --name"
            )
        read = self._query(
            "SELECT DISTINCT c.relname FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid"
            " JOIN pg_class c ON c.oid = d.refobjid AND c.relkind = 'r'"
            " WHERE r.ev_class = %s::regclass",
            [_quoted(alias)],
        )
        tables = [table for (name,) in read if (table := Table.parse(alias, name)) is not None]
        if len(tables) != 1 or len(read) != 1:
            raise OutputError(
                f"the view {alias} is not one that embertide push makes; choose another --name"
            )
        return tables[0]

    def create(self, table: Table, spec: TableSpec) -> None:
        """Without a primary key, which :meth:`finish` adds: loading is faster without."""
        kind = sql.SQL(f"{_TYPES[spec.vectors]}({spec.dim})")
        self._run(
            "CREATE TABLE {} (id {} NOT NULL, embedding {} NOT NULL)",
            _name(table),
            sql.SQL(_id_type(spec)),
            kind,
        )

    def append(self, table: Table, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        """One COPY; none of the rows is there after an error."""
        with self._connection.transaction():
            self._copy_in(_name(table), spec, batches)

    def derive(
        self,
        base: Table,
        table: Table,
        spec: TableSpec,
        upserts: Iterable[Shaped],
        deletes: Iterable[Sequence[Any]],
    ) -> None:
        """In one transaction; rows that stay are copied within the server."""
        with self._connection.transaction():
            self.create(table, spec)
            self._run(
                "INSERT INTO {} (id, embedding) SELECT id, embedding FROM {}",
                _name(table),
                _name(base),
            )
            self._run("ALTER TABLE {} ADD PRIMARY KEY (id)", _name(table))
            self._run(
                "CREATE TEMPORARY TABLE embertide_upsert (LIKE {}) ON COMMIT DROP", _name(table)
            )
            self._copy_in(sql.Identifier("embertide_upsert"), spec, upserts)
            self._run(
                "INSERT INTO {} SELECT * FROM embertide_upsert"
                " ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
                _name(table),
            )
            for ids in deletes:
                self._run("DELETE FROM {} WHERE id = ANY(%s)", _name(table), values=[list(ids)])

    def _copy_in(self, name: sql.Composable, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        encoder = PgCopy(Layout(format="pgcopy", vectors=spec.vectors), spec.dim)
        statement = sql.SQL("COPY {} (id, embedding) FROM STDIN (FORMAT binary)").format(name)
        pieces = PgCopy.framed(encoder.encode(rows.ids, rows.values) for rows in batches)
        try:
            with self._connection.cursor().copy(statement) as copy:
                for piece in pieces:
                    copy.write(piece)
        except psycopg.errors.UniqueViolation as error:
            raise Mismatch(f"an id is there already: {error}") from error

    def finish(self, table: Table, spec: TableSpec) -> None:
        """Add the primary key and an HNSW index of the metric, and take statistics."""
        rows = self._query(
            "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass AND indisprimary",
            [_quoted(table.name)],
        )
        try:
            if rows == [(0,)]:
                self._run("ALTER TABLE {} ADD PRIMARY KEY (id)", _name(table))
        except psycopg.errors.UniqueViolation as error:
            raise Mismatch(f"{table.name} has an id twice: {error}") from error
        if spec.search_index and spec.dim <= _LONGEST_INDEXED[spec.vectors]:
            operators = sql.SQL(f"{_TYPES[spec.vectors]}_{_OPERATORS[spec.metric]}")
            self._run(
                "CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (embedding {})",
                _index_name(table),
                _name(table),
                operators,
            )
        self._run("ANALYZE {}", _name(table))

    def count(self, table: Table) -> int:
        """Exactly."""
        statement = sql.SQL("SELECT count(*) FROM {}").format(_name(table))
        return int(self._query(statement)[0][0])

    def rows(self, table: Table, ids: Sequence[Any]) -> Mapping[Any, npt.NDArray[Any]]:
        """By id."""
        statement = sql.SQL("SELECT id, embedding::real[] FROM {} WHERE id = ANY(%s)")
        found = self._query(statement.format(_name(table)), [list(ids)])
        return {name: np.array(values, np.float32) for name, values in found}

    def stored(self, values: npt.NDArray[Any], _spec: TableSpec) -> tuple[npt.NDArray[Any], float]:
        """The same bits."""
        return values, 0.0

    def switch(self, tables: Sequence[Table]) -> None:
        """All views in one transaction.

        A view whose columns change their type is dropped and made again, with its grants.
        """
        with self._connection.transaction():
            for table in tables:
                try:
                    with self._connection.transaction():
                        self._replace_view(table)
                except psycopg.errors.InvalidTableDefinition:
                    self._make_view_again(table)

    def _replace_view(self, table: Table) -> None:
        self._run(
            "CREATE OR REPLACE VIEW {} AS SELECT id, embedding FROM {}",
            sql.Identifier(table.alias),
            _name(table),
        )

    def _make_view_again(self, table: Table) -> None:
        grants = self._query(
            "SELECT grantee, privilege_type FROM information_schema.role_table_grants"
            " WHERE table_schema = current_schema() AND table_name = %s AND grantee <> grantor",
            [table.alias],
        )
        self._run("DROP VIEW {}", sql.Identifier(table.alias))
        self._replace_view(table)
        for grantee, privilege in grants:
            to = sql.SQL("PUBLIC") if grantee == "PUBLIC" else sql.Identifier(grantee)
            self._run("GRANT {} ON {} TO {}", sql.SQL(privilege), sql.Identifier(table.alias), to)

    def drop(self, table: Table) -> bool:
        """It is refused while a view still reads it."""
        self._run("DROP TABLE IF EXISTS {}", _name(table))
        return True

    def reconnect(self) -> None:
        """A connection that a server has closed stays closed."""
        self._connection.close()
        self._connection = psycopg.connect(self._uri, autocommit=True)

    def close(self) -> None:
        """The server rolls back what is open."""
        self._connection.close()

    def _query(self, statement: Any, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _run(self, statement: str, *names: sql.Composable, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql.SQL(statement).format(*names), values)


def _name(table: Table) -> sql.Identifier:
    return sql.Identifier(table.name)


def _index_name(table: Table) -> sql.Identifier:
    return sql.Identifier(f"hnsw_{table.name}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _id_type(spec: TableSpec) -> str:
    return "text" if spec.text_ids else "bigint"
