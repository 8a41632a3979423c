"""What the tests with real indexes start with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from tests.support.postgres import postgres as running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of a PostgreSQL with pgvector."""
    with running_postgres() as uri:
        yield uri


@pytest.fixture
def storage() -> Storage:
    """The local one."""
    return open_storage(None)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Where versions are published."""
    return f"file://{tmp_path}/out"
