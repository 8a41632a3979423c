"""Real indexes as the readers of a name see them, and ones that fail."""

from __future__ import annotations

from typing import Any

import numpy as np

from embertide.edge.indexes.push.plan import Options
from embertide.edge.indexes.push.protocol import Index, Table
from embertide.edge.indexes.push.qdrant import point_id
from tests.support.compared import Rows

COUNT, WIDTH = 300, 8
"""Rows of the versions in these tests, and their length."""
KINDS = ["postgresql", "qdrant", "milvus", "lancedb"]


class Readers:
    """An index, a name in it, and what readers of the name see."""

    def __init__(self, kind: str, index: Index, name: str) -> None:
        self.kind, self.name, self.index = kind, name, index
        self.options = Options(name=name)

    def all(self) -> Rows:
        """Id -> vector, as readers get them by the name."""
        return {
            key: np.array(vector, np.float32)
            for key, vector in getattr(self, f"_{self.kind}")().items()
        }

    def _postgresql(self) -> Any:
        rows = self.index._connection.execute(  # type: ignore[attr-defined]
            f"SELECT id, embedding::real[] FROM {self.name}"
        )
        return dict(rows.fetchall())

    def _qdrant(self) -> Any:
        client = self.index._client  # type: ignore[attr-defined]
        points, _ = client.scroll(self.name, limit=10_000, with_vectors=True)
        return {point.payload["id"]: point.vector for point in points}

    def _milvus(self) -> Any:
        client = self.index._client  # type: ignore[attr-defined]
        rows = client.query(self.name, filter="", output_fields=["*"], limit=10_000)
        return {row["id"]: row["embedding"] for row in rows}

    def _lancedb(self) -> Any:
        table = self.index._database.open_table(self.name)  # type: ignore[attr-defined]
        assert table.count_rows() == 0
        table.checkout("current")
        found = table.to_arrow()
        return dict(zip(found["id"].to_pylist(), found["vector"].to_pylist(), strict=True))

    def see(self, rows: Rows) -> None:
        """They see these rows, bit for bit; in Qdrant their directions."""
        found = self.all()
        assert found.keys() == rows.keys()
        for name, vector in rows.items():
            if self.kind == "qdrant":
                length = np.linalg.norm(vector)
                np.testing.assert_allclose(
                    found[name], vector / length if length else vector, atol=2e-6
                )
            else:
                np.testing.assert_array_equal(found[name], vector)

    def remove(self, version: str, name: Any) -> None:
        """Remove a row of a version's table, as an accident would."""
        table, index = Table(self.name, version), self.index
        if self.kind == "postgresql":
            index._connection.execute(f"DELETE FROM {table.name} WHERE id = {name}")  # type: ignore[attr-defined]
        elif self.kind == "lancedb":
            index._branch(table).delete(f"id = {name}")  # type: ignore[attr-defined]
        elif self.kind == "qdrant":
            index._client.delete(table.name, [point_id(name)])  # type: ignore[attr-defined]
        else:
            index._client.delete(table.name, ids=[name])  # type: ignore[attr-defined]

    def tables(self) -> list[str]:
        """Versions that have a table, the oldest first."""
        return [table.version for table in sorted(self.index.tables(self.name))]


class Broken:
    """An index that fails at chosen calls of a method."""

    def __init__(self, index: Index, method: str, fails: set[int], error: Exception) -> None:
        self._index, self._method, self._fails, self._error = index, method, fails, error
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._index, name)
        if name != self._method:
            return method

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls in self._fails:
                raise self._error
            return method(*args)

        return call
