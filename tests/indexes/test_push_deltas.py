"""Deltas in real indexes: the next version made of the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide.edge.indexes.push.push import push
from embertide.io.storage.protocol import Storage
from tests.support.chained import publish_chained
from tests.support.compared import random_rows
from tests.support.index_readers import COUNT, WIDTH, Broken, Readers
from tests.support.versions import CURRENT, NEXT, OLD


def test_deltas_make_the_next_version_of_the_one_before(
    storage: Storage, output: str, readers: Readers
) -> None:
    """Where the index can: nothing that stays is sent again, and readers see the version."""
    rows = random_rows(COUNT, WIDTH, 1)
    publish_chained(storage, output, OLD, rows, 0.0)
    push(storage, output, readers.index, readers.options)
    for version in (CURRENT, NEXT):
        names = list(rows)
        rows = {name: rows[name] for name in names[5:]} | {10**6 + int(names[0]): rows[names[0]]}
        rows[names[9]] = rows[names[9]] + 1
        publish_chained(storage, output, version, rows, 0.0)
        counted: Any = Broken(readers.index, "append", set(), ValueError())
        done = push(storage, output, counted, readers.options)
        derived = readers.index.derives
        assert done.tables[0].made == ("delta" if derived else "full")
        assert counted.calls == (0 if derived else 3)
        readers.see(rows)


def test_a_delta_that_is_half_applied_is_not_taken_for_a_version(
    storage: Storage, output: str, readers: Readers
) -> None:
    if not readers.index.derives:
        assert readers.kind in ("qdrant", "milvus")
        return
    rows = random_rows(COUNT, WIDTH, 1)
    publish_chained(storage, output, OLD, rows, 0.0)
    push(storage, output, readers.index, readers.options)
    moved = {name: vector + 1 for name, vector in list(rows.items())[:-3]}
    publish_chained(storage, output, CURRENT, moved, 0.0)

    class Killed(Broken):
        """Ends after the rows are replaced, before others are removed."""

        def derive(self, base: Any, table: Any, spec: Any, upserts: Any, deletes: Any) -> None:
            def die() -> Any:
                raise KeyboardInterrupt
                yield

            self._index.derive(base, table, spec, upserts, die())

    killed: Any = Killed(readers.index, "", set(), ValueError())
    with pytest.raises(KeyboardInterrupt):
        push(storage, output, killed, readers.options)
    assert readers.tables() == [OLD]
    readers.see(rows)
    assert push(storage, output, readers.index, readers.options).tables[0].made == "delta"
    readers.see(moved)


def test_a_delta_that_does_not_fit_the_table_is_replaced_by_all_rows(
    storage: Storage, output: str, readers: Readers
) -> None:
    """The table of the version before is normalised, which the next push is not asked for."""
    rows = random_rows(COUNT, WIDTH, 1)
    publish_chained(storage, output, OLD, rows, 1e-3)
    push(storage, output, readers.index, replace(readers.options, normalize=True))
    publish_chained(storage, output, CURRENT, rows, 1e-3)
    done = push(storage, output, readers.index, readers.options)
    assert done.tables[0].made == "full"
    readers.see(rows)
