"""What the tests with real indexes start with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from embertide.edge.indexes.push import loading
from embertide.edge.indexes.push.protocol import Index
from embertide.edge.indexes.push.qdrant import Qdrant
from embertide.edge.indexes.push.targets import open_index
from tests.support.index_readers import KINDS, Readers
from tests.support.postgres import postgres as running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of a PostgreSQL with pgvector."""
    with running_postgres() as uri:
        yield uri


@pytest.fixture(params=KINDS)
def readers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Readers]:
    """A new name in each kind of index."""
    kind = str(request.param)
    name = f"products_{secrets.token_hex(4)}"
    if kind == "qdrant":
        # In a folder its local mode commits point by point.
        index: Index = Qdrant(QdrantClient(":memory:"))
    elif kind == "postgresql":
        index = open_index(request.getfixturevalue("postgres"))
    else:
        index = open_index(f"{kind}://{tmp_path}/index" + (".db" if kind == "milvus" else ""))
    found = Readers(kind, index, name)
    yield found
    found.index.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setattr(loading, "_PAUSE_SECONDS", 0.001)
