"""Milvus: a collection for each version, and an alias that readers use.

Aliases move one after the other; each of them in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient, MilvusException

from embertide.edge.indexes.push.protocol import Errors, Table, TableSpec
from embertide.edge.indexes.rows import Shaped
from embertide.errors import OutputError

_METRICS = {"cosine": "COSINE", "l2": "L2", "ip": "IP"}
_REQUEST_BYTES = 16 << 20
"""Bytes of vectors in a request: servers take 64 MiB."""
_LONGEST_TEXT = 65_535
_FLAGGED = ("unavailable", "timeout", "deadline", "rate limit", "not ready", "disconnected")


class Unavailable(Exception):
    """The server could not answer; a later call may succeed."""


class Milvus:
    """See :class:`embertide.edge.indexes.push.protocol.Index`."""

    transient: Errors = (Unavailable,)
    errors: Errors = (Unavailable, MilvusException)
    derives = False
    longest_name = 255

    def __init__(self, client: MilvusClient) -> None:
        self._client = client

    def tables(self, alias: str) -> list[Table]:
        """By the collections' names."""
        names = self._client.list_collections()
        return [table for name in names if (table := Table.parse(alias, name)) is not None]

    def current(self, alias: str) -> Table | None:
        """What the alias stands for."""
        if alias in self._client.list_collections():
            raise OutputError(f"{alias} is a collection, not an alias; choose another --name")
        if not self._has_alias(alias):
            return None
        name = self._client.describe_alias(alias)["collection_name"]
        table = Table.parse(alias, name)
        if table is None:
            raise OutputError(
                f"the alias {alias} stands for {name}, which embertide push did not make; choose"
                " another --name"
            )
        return table

    def _has_alias(self, alias: str) -> bool:
        return any(
            alias in self._client.list_aliases(table.name)["aliases"]
            for table in self.tables(alias)
        )

    def create(self, table: Table, spec: TableSpec) -> None:
        """With Milvus' own choice of a search index; searches see what has been written."""
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        if spec.text_ids:
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_LONGEST_TEXT)
        else:
            schema.add_field("id", DataType.INT64, is_primary=True)
        half = spec.vectors == "float16"
        kind = DataType.FLOAT16_VECTOR if half else DataType.FLOAT_VECTOR
        schema.add_field("embedding", kind, dim=spec.dim)
        params = self._client.prepare_index_params()
        params.add_index("embedding", index_type="AUTOINDEX", metric_type=_METRICS[spec.metric])
        self._client.create_collection(
            table.name, schema=schema, index_params=params, consistency_level="Strong"
        )

    def append(self, table: Table, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        """By upserts, so that rows that are sent again are there once."""
        rows = max(1, _REQUEST_BYTES // (4 * spec.dim))
        for batch in batches:
            for at in range(0, len(batch.values), rows):
                names = batch.ids[at : at + rows].to_pylist()
                values = batch.values[at : at + rows]
                entities = [
                    {"id": name, "embedding": vector}
                    for name, vector in zip(names, values, strict=True)
                ]
                self._upsert(table, entities)

    def derive(
        self,
        base: Table,
        table: Table,
        spec: TableSpec,
        upserts: Iterable[Shaped],
        deletes: Iterable[Sequence[Any]],
    ) -> None:
        """Not offered: collections cannot be copied."""
        raise NotImplementedError

    def _upsert(self, table: Table, entities: list[dict[str, Any]]) -> None:
        try:
            self._client.upsert(table.name, entities)
        except MilvusException as error:
            if any(word in str(error).lower() for word in _FLAGGED):
                raise Unavailable(str(error)) from error
            raise OutputError(f"Milvus refused rows of {table.name}: {error}") from error

    def finish(self, table: Table, _spec: TableSpec) -> None:
        """Seal what was written, so that it is indexed."""
        self._client.flush(table.name)

    def count(self, table: Table) -> int:
        """Exactly."""
        (row,) = self._client.query(
            table.name, filter="", output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(row["count(*)"])

    def rows(self, table: Table, ids: Sequence[Any]) -> Mapping[Any, npt.NDArray[Any]]:
        """By id."""
        found = self._client.get(
            table.name, ids=list(ids), output_fields=["id", "embedding"], consistency_level="Strong"
        )
        return {row["id"]: _vector(row["embedding"]) for row in found}

    def stored(self, values: npt.NDArray[Any], _spec: TableSpec) -> tuple[npt.NDArray[Any], float]:
        """The same bits."""
        return values, 0.0

    def switch(self, tables: Sequence[Table]) -> None:
        """One alias after the other."""
        for table in tables:
            if self._has_alias(table.alias):
                self._client.alter_alias(table.name, table.alias)
            else:
                self._client.create_alias(table.name, table.alias)

    def drop(self, table: Table) -> bool:
        """It is refused while an alias stands for it."""
        self._client.drop_collection(table.name)
        return True

    def reconnect(self) -> None:
        """The client connects again by itself."""

    def close(self) -> None:
        """Close connections."""
        self._client.close()


def _vector(stored: Any) -> npt.NDArray[Any]:
    """float32 [D]; halves come as bytes."""
    if isinstance(stored, list) and stored and isinstance(stored[0], bytes):
        (stored,) = stored
    if isinstance(stored, bytes):
        return np.frombuffer(stored, np.float16).astype(np.float32)
    return np.asarray(stored, np.float32)
