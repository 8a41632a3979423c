"""Qdrant: a collection for each version, and an alias that readers use.

Points have ids that are integers from 0 on or UUIDs. Other ids, texts and negative numbers, become
the UUID (version 5) of their text, and every point has its id as the payload ``id``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from embertide.edge.indexes.push.protocol import Errors, Table, TableSpec
from embertide.edge.indexes.rows import Shaped
from embertide.errors import OutputError

_DISTANCES = {
    "cosine": models.Distance.COSINE,
    "l2": models.Distance.EUCLID,
    "ip": models.Distance.DOT,
}
_REQUEST_BYTES = 4 << 20
"""Bytes of vectors in a request: a server takes 32 MiB of JSON, which is five times as long."""
_NAMESPACE = uuid.UUID("6d1f6a5e-5a0c-5f5c-9c55-0d6f2d1f7a11")
"""The namespace of the ids of points, so that an id becomes the same one everywhere."""


class Unavailable(Exception):
    """The server could not answer; a later call may succeed."""


class Qdrant:
    """See :class:`embertide.edge.indexes.push.protocol.Index`."""

    transient: Errors = (Unavailable, ResponseHandlingException, httpx.TransportError)
    errors: Errors = (*transient, UnexpectedResponse)
    derives = False
    longest_name = 255

    def __init__(self, client: QdrantClient) -> None:
        self._client = client

    def tables(self, alias: str) -> list[Table]:
        """By the collections' names."""
        names = [item.name for item in self._client.get_collections().collections]
        return [table for name in names if (table := Table.parse(alias, name)) is not None]

    def current(self, alias: str) -> Table | None:
        """What the alias stands for."""
        if any(item.name == alias for item in self._client.get_collections().collections):
            raise OutputError(f"{alias} is a collection, not an alias; choose another --name")
        for item in self._client.get_aliases().aliases:
            if item.alias_name == alias:
                table = Table.parse(alias, item.collection_name)
                if table is None:
                    raise OutputError(
                        f"the alias {alias} stands for {item.collection_name}, which embertide push"
                        " did not make; choose another --name"
                    )
                return table
        return None

    def create(self, table: Table, spec: TableSpec) -> None:
        """With the server's defaults for its search index."""
        half = models.Datatype.FLOAT16 if spec.vectors == "float16" else None
        self._client.create_collection(
            table.name,
            vectors_config=models.VectorParams(
                size=spec.dim, distance=_DISTANCES[spec.metric], datatype=half
            ),
        )

    def append(self, table: Table, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        """By upserts, each of which waits for the server to have stored it."""
        for batch in _requests(batches, spec):
            self._upsert(table, batch)

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

    def _upsert(self, table: Table, batch: models.Batch) -> None:
        try:
            self._client.upsert(table.name, batch, wait=True)
        except UnexpectedResponse as error:
            if error.status_code is not None and error.status_code >= 500:
                raise Unavailable(str(error)) from error
            raise OutputError(f"Qdrant refused rows of {table.name}: {error}") from error

    def finish(self, table: Table, spec: TableSpec) -> None:
        """Nothing: the server indexes by itself, and searches what is not indexed yet exactly."""

    def count(self, table: Table) -> int:
        """Exactly."""
        return self._client.count(table.name, exact=True).count

    def rows(self, table: Table, ids: Sequence[Any]) -> Mapping[Any, npt.NDArray[Any]]:
        """By id."""
        names = {str(point_id(name)): name for name in ids}
        points = self._client.retrieve(
            table.name, [point_id(name) for name in ids], with_payload=False, with_vectors=True
        )
        return {names[str(point.id)]: np.array(point.vector, np.float32) for point in points}

    def stored(self, values: npt.NDArray[Any], spec: TableSpec) -> tuple[npt.NDArray[Any], float]:
        """With the metric cosine, divided by their lengths."""
        off = 2e-3 if spec.vectors == "float16" else 2e-6
        if spec.metric != "cosine":
            return values, 0.0
        exact = values.astype(np.float64)
        norms = np.linalg.norm(exact, axis=1, keepdims=True)
        return np.divide(exact, norms, out=exact, where=norms > 0), off

    def switch(self, tables: Sequence[Table]) -> None:
        """All aliases in one request, which the server does as a whole."""
        there = {item.alias_name for item in self._client.get_aliases().aliases}
        actions: list[Any] = []
        for table in tables:
            if table.alias in there:
                gone = models.DeleteAlias(alias_name=table.alias)
                actions.append(models.DeleteAliasOperation(delete_alias=gone))
            new = models.CreateAlias(collection_name=table.name, alias_name=table.alias)
            actions.append(models.CreateAliasOperation(create_alias=new))
        self._client.update_collection_aliases(actions)

    def drop(self, table: Table) -> bool:
        """With all that is in it."""
        self._client.delete_collection(table.name)
        return True

    def reconnect(self) -> None:
        """Each request stands alone."""

    def close(self) -> None:
        """Close connections."""
        self._client.close()


def point_id(name: Any) -> int | str:
    """The id of the point of an id of the version."""
    if isinstance(name, int) and name >= 0:
        return name
    return str(uuid.uuid5(_NAMESPACE, str(name)))


def _requests(batches: Iterable[Shaped], spec: TableSpec) -> Iterator[models.Batch]:
    rows = max(1, _REQUEST_BYTES // (4 * spec.dim))
    for batch in batches:
        for at in range(0, len(batch.values), rows):
            names = batch.ids[at : at + rows].to_pylist()
            vectors = batch.values[at : at + rows].astype(np.float32).tolist()
            ids: list[Any] = [point_id(name) for name in names]
            yield models.Batch(ids=ids, vectors=vectors, payloads=[{"id": name} for name in names])
