"""Versions in real indexes: what readers see, before, during and after a push."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from embertide.edge.indexes.push.protocol import Table
from embertide.edge.indexes.push.push import push
from embertide.errors import InputError, OutputError, StoreUnavailable
from embertide.io.storage.protocol import Storage
from embertide.io.versions.publish import rollback
from tests.support.compared import publish_rows, publish_types, random_rows
from tests.support.index_readers import COUNT, WIDTH, Broken, Readers
from tests.support.versions import CURRENT, LATER, NEXT, OLD


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_readers_see_one_version_after_the_other_and_go_back(
    storage: Storage, output: str, readers: Readers, kind: str
) -> None:
    versions = {
        version: random_rows(COUNT - 50 * at, WIDTH, at, text=kind == "string")
        for at, version in enumerate([OLD, CURRENT, NEXT])
    }
    seen = []
    for version, rows in versions.items():
        publish_rows(storage, output, version, rows, kind=kind)
        done = push(storage, output, readers.index, readers.options)
        assert done.version == version
        readers.see(rows)
        seen.append((done.tables[0].previous, done.tables[0].made, len(done.dropped)))
    assert seen == [("", "full", 0), (OLD, "full", 0), (CURRENT, "full", 1)]
    assert readers.tables() == [CURRENT, NEXT]
    rollback(storage, output, CURRENT)
    done = push(storage, output, readers.index, readers.options)
    assert (done.version, done.tables[0].made, done.tables[0].previous) == (CURRENT, "there", NEXT)
    readers.see(versions[CURRENT])
    done = push(storage, output, readers.index, replace(readers.options, version=NEXT))
    assert done.tables[0].made == "there"
    readers.see(versions[NEXT])


@pytest.mark.parametrize(
    ("method", "format"),
    [
        ("append", "parquet"),
        ("append", "npy"),
        ("finish", "parquet"),
        ("count", "parquet"),
        ("rows", "parquet"),
        ("switch", "parquet"),
    ],
)
def test_a_push_that_ends_early_is_not_seen_and_goes_on(
    storage: Storage, output: str, readers: Readers, method: str, format: str
) -> None:
    before, after = random_rows(COUNT, WIDTH, 1), random_rows(COUNT + 9, WIDTH, 2)
    publish_rows(storage, output, OLD, before)
    push(storage, output, readers.index, readers.options)
    publish_rows(storage, output, CURRENT, after, cuts=(0.2, 0.4, 0.6), format=format)
    at = 3 if method == "append" else 1
    broken: Any = Broken(readers.index, method, {at}, KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        push(storage, output, broken, readers.options)
    readers.see(before)
    counted: Any = Broken(readers.index, "append", set(), ValueError())
    done = push(storage, output, counted, readers.options)
    # Parts that are there are not sent again.
    assert counted.calls == (2 if method == "append" else 0)
    assert done.tables[0].previous == OLD
    readers.see(after)


def test_what_passes_is_tried_again_and_what_does_not_is_an_error(
    storage: Storage, output: str, readers: Readers
) -> None:
    rows = random_rows(COUNT, WIDTH, 1)
    publish_rows(storage, output, OLD, rows)
    passing = readers.index.transient[0]("gone away")
    broken: Any = Broken(readers.index, "append", {1, 2, 4}, passing)
    push(storage, output, broken, readers.options)
    assert broken.calls == 6
    readers.see(rows)
    publish_rows(storage, output, CURRENT, random_rows(COUNT, WIDTH, 2))
    down: Any = Broken(readers.index, "append", set(range(1, 100)), passing)
    with pytest.raises(StoreUnavailable, match="failed at each of 6 attempts: gone away"):
        push(storage, output, down, readers.options)
    refused: Any = Broken(readers.index, "finish", {1}, readers.index.errors[0]("no room"))
    with pytest.raises((OutputError, StoreUnavailable), match="no room"):
        push(storage, output, refused, readers.options)
    readers.see(rows)


def test_rows_that_went_missing_are_found_and_loaded_again(
    storage: Storage, output: str, readers: Readers
) -> None:
    """A table that someone has changed before the switch."""
    rows = random_rows(COUNT, WIDTH, 1)
    publish_rows(storage, output, OLD, rows)
    broken: Any = Broken(readers.index, "switch", {1}, KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        push(storage, output, broken, readers.options)
    readers.remove(OLD, next(iter(rows)))
    push(storage, output, readers.index, readers.options)
    readers.see(rows)
    # Readers see the table, so it is not repaired below them.
    readers.remove(OLD, next(iter(rows)))
    with pytest.raises(OutputError, match=f"has {COUNT - 1} rows, {OLD} has {COUNT}"):
        push(storage, output, readers.index, readers.options)


def test_held_versions_are_pushed_where_asked_for(
    storage: Storage, output: str, readers: Readers
) -> None:
    rows, held = random_rows(COUNT, WIDTH, 1), random_rows(50, WIDTH, 2)
    publish_rows(storage, output, OLD, rows)
    publish_rows(storage, output, CURRENT, held, held=("too few rows",))
    assert push(storage, output, readers.index, readers.options).version == OLD
    options = replace(readers.options, version=CURRENT)
    with pytest.raises(OutputError, match=f"{CURRENT} of {output} is held: too few rows"):
        push(storage, output, readers.index, options)
    readers.see(rows)
    push(storage, output, readers.index, replace(options, held=True))
    readers.see(held)


def test_a_version_that_is_not_current_any_more_is_not_switched_to(
    storage: Storage, output: str, readers: Readers
) -> None:
    first, second = random_rows(COUNT, WIDTH, 1), random_rows(COUNT, WIDTH, 2)
    publish_rows(storage, output, OLD, first)
    publish_rows(storage, output, CURRENT, second)

    class Overtaken(Broken):
        def __getattr__(self, name: str) -> Any:
            if name == "finish":
                publish_rows(storage, output, NEXT, first)
            return super().__getattr__(name)

    overtaken: Any = Overtaken(readers.index, "", set(), ValueError())
    with pytest.raises(OutputError, match=f"is {NEXT} now, {CURRENT} was loaded"):
        push(storage, output, overtaken, readers.options)
    assert readers.index.current(readers.name) is None


def test_an_older_push_does_not_undo_a_newer_one(
    storage: Storage, output: str, readers: Readers
) -> None:
    first, second = random_rows(COUNT, WIDTH, 1), random_rows(COUNT, WIDTH, 2)
    publish_rows(storage, output, OLD, first)
    publish_rows(storage, output, CURRENT, second)

    class Overtaken(Broken):
        def __getattr__(self, name: str) -> Any:
            if name == "finish" and not self.calls:
                self.calls = 1
                push(storage, output, readers.index, readers.options)
            return super().__getattr__(name)

    overtaken: Any = Overtaken(readers.index, "", set(), ValueError())
    with pytest.raises(OutputError, match=f"has switched {readers.name} to {CURRENT}"):
        push(storage, output, overtaken, replace(readers.options, version=OLD))
    readers.see(second)


def test_another_width_half_precision_and_normalised_rows(
    storage: Storage, output: str, readers: Readers
) -> None:
    publish_rows(storage, output, OLD, random_rows(COUNT, WIDTH, 1))
    push(storage, output, readers.index, readers.options)
    wide = random_rows(60, 2 * WIDTH, 2)
    publish_rows(storage, output, CURRENT, wide)
    push(storage, output, readers.index, readers.options)
    readers.see(wide)
    publish_rows(storage, output, NEXT, wide)
    half = replace(readers.options, vectors="float16", normalize=True, metric="ip")
    if readers.kind == "milvus":
        with pytest.raises(OutputError, match="Float16Vector which MilvusLite does not support"):
            push(storage, output, readers.index, half)
        readers.see(wide)
        return
    push(storage, output, readers.index, half)
    stored = readers.index.rows(Table(readers.name, NEXT), list(wide))
    for name, vector in wide.items():
        unit = (vector.astype(float) / np.linalg.norm(vector.astype(float))).astype(np.float32)
        np.testing.assert_array_equal(stored[name], unit.astype(np.float16).astype(np.float32))


def test_names_that_are_taken_or_wrong_are_refused(
    storage: Storage, output: str, readers: Readers
) -> None:
    publish_rows(storage, output, LATER, random_rows(20, WIDTH, 1))
    with pytest.raises(InputError, match="must begin with a lower-case letter"):
        push(storage, output, readers.index, replace(readers.options, name="Shop-1"))
    with pytest.raises(InputError, match="is longer than the"):
        push(storage, output, readers.index, replace(readers.options, name="x" * 250))
    assert readers.tables() == []


def test_several_node_types_have_a_name_each(
    storage: Storage, output: str, readers: Readers
) -> None:
    types = {"user": random_rows(40, 3, 1), "shop.item": random_rows(50, 5, 2, text=True)}
    publish_types(storage, output, OLD, types)
    done = push(storage, output, readers.index, readers.options)
    assert [table.alias for table in done.tables] == [
        f"{readers.name}_user",
        f"{readers.name}_shop_item",
    ]
    for table, rows in zip(done.tables, types.values(), strict=True):
        stored = readers.index.rows(Table(table.alias, OLD), list(rows))
        assert stored.keys() == rows.keys()
    one = replace(readers.options, name=f"{readers.name}_x", node_type="user")
    assert len(push(storage, output, readers.index, one).tables) == 1
    with pytest.raises(InputError, match="no node type 'nobody'"):
        push(storage, output, readers.index, replace(one, node_type="nobody"))
    publish_types(storage, output, CURRENT, {"a.b": types["user"], "a_b": types["user"]})
    with pytest.raises(InputError, match="have the same name in the index"):
        push(storage, output, readers.index, readers.options)
