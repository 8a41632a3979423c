"""The features of some nodes: which bytes are read, and what is refused of the rows that are."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.engine.stages.features import read_some_features
from embertide.errors import InputChanged, InputError
from embertide.io.readers.feature_places import needed
from embertide.io.readers.npy import Header
from embertide.io.readers.npy_rows import some_rows_of
from embertide.io.readers.scaling import Scaling
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import ObjectInfo, Storage
from tests.support.some_features import (
    KINDS,
    NODES,
    ROW,
    VALUES,
    WIDTH,
    read_later,
    write_files,
    write_parquet,
)

ASKED = np.array([3, 4, 7, 1250, 2499, 2500, 4999])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("files", [1, 3])
def test_the_rows_are_those_of_a_reader_of_all(
    tmp_path: Path, storage: Storage, kind: str, files: int
) -> None:
    write_files(tmp_path / "x", kind, files=files)
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), kind)
    assert nodes.places is not None
    assert np.array_equal(read_some_features(ctx, nodes, ASKED).numpy(), VALUES[ASKED])
    assert read_some_features(ctx, nodes, ASKED[:0]).shape == (0, WIDTH)
    every = read_some_features(ctx, nodes, np.arange(NODES)).numpy()
    assert np.array_equal(every, VALUES)


def test_rows_are_scaled_as_all_are(tmp_path: Path, storage: Storage) -> None:
    write_files(tmp_path / "x", "parquet")
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), "parquet")
    assert nodes.places is not None
    scaling = Scaling(tuple([0.5] * WIDTH), tuple([3.0] * WIDTH))
    nodes.places = replace(nodes.places, schema=replace(nodes.places.schema, scaling=scaling))
    expected = ((VALUES[ASKED].astype(np.float64) - 0.5) / 3.0).astype(np.float32)
    assert np.array_equal(read_some_features(ctx, nodes, ASKED).numpy(), expected)


@pytest.mark.parametrize("kind", ["parquet", "numbered"])
def test_only_row_groups_that_have_the_rows_are_read(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    write_files(tmp_path / "x", kind)
    _, nodes = read_later(storage, (tmp_path / "x").as_uri(), kind)
    assert nodes.places is not None
    splits = needed(nodes.places.pieces, ASKED)
    groups = [(Path(split.uri).name, *(split.row_groups or ())) for split in splits]
    first, second = "part-0.parquet", "part-1.parquet"
    assert groups == [(first, 0), (first, 12), (first, 24), (second, 0), (second, 24)]
    # Groups of one split that follow each other are read at once.
    (run,) = needed(nodes.places.pieces, np.array([10, 110]))
    assert (run.row_groups, run.start, run.stop) == ((0, 1), 0, 200)


def test_ids_in_any_order_are_found_in_any_row_group(tmp_path: Path, storage: Storage) -> None:
    write_files(tmp_path / "x", "parquet", np.random.default_rng(5).permutation(NODES))
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), "parquet")
    assert nodes.places is not None
    assert np.array_equal(read_some_features(ctx, nodes, ASKED).numpy(), VALUES[ASKED])


@settings(deadline=None)
@given(st.sets(st.integers(0, NODES - 1), min_size=1, max_size=60), st.integers(1, 40))
def test_rows_of_an_array_come_in_batches_of_any_size(rows: set[int], most: int) -> None:
    file, some = io.BytesIO(VALUES.tobytes()), np.array(sorted(rows))
    split = Split.of(ObjectInfo("file:///x.npy", VALUES.nbytes, ""), 0, NODES, VALUES.nbytes)
    header = Header(VALUES.shape, False, VALUES.dtype, 0)
    batches = list(some_rows_of(file, header, split, some, most))
    assert all(len(values) <= most for values, _ in batches)
    assert np.array_equal(np.concatenate([values for values, _ in batches]), VALUES[some])


def test_only_ranges_of_arrays_that_have_the_rows_are_read(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "x", "npy", files=1)
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), "npy")
    read = list[tuple[int, int]]()
    opened = type(storage).open

    def noting(self: Any, uri: str, *more: Any) -> Any:
        file = opened(self, uri, *more)
        fill = file.readinto

        def readinto(view: memoryview) -> int:
            read.append((file.tell(), len(view)))
            return int(fill(view))

        file.readinto = readinto
        return file

    monkeypatch.setattr(type(storage), "open", noting)
    rows = read_some_features(ctx, nodes, np.array([3, 7, 1250, 4999]))
    assert np.array_equal(rows.numpy(), VALUES[[3, 7, 1250, 4999]])
    # Rows 3 to 7 lie as near to each other as to take one call.
    ranges = [(3, 8), (1250, 1251), (4999, 5000)]
    assert sorted(read) == [(128 + a * ROW, (b - a) * ROW) for a, b in ranges]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_not_finite_counts_in_a_row_that_is_needed(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    bad = VALUES.copy()
    bad[1250, 5] = np.nan
    write_files(tmp_path / "x", kind, values=bad)
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), kind)
    with pytest.raises(InputError, match=r"1 feature row has NaN .* first node id 1250"):
        read_some_features(ctx, nodes, ASKED)
    # The next row lies beside it, and is read with it where that takes no longer.
    others = np.array([1249, 1251])
    assert np.array_equal(read_some_features(ctx, nodes, others).numpy(), VALUES[others])


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_was_truncated_after_it_was_listed(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    write_files(tmp_path / "x", kind)
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), kind)
    path = sorted((tmp_path / "x").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputChanged, match="changed after it was listed"):
        read_some_features(ctx, nodes, ASKED)


@pytest.mark.parametrize("kind", ["npy", "parquet", "numbered"])
def test_where_rows_and_nodes_differ_in_number_all_are_read(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    write_files(tmp_path / "x", kind)
    _, nodes = read_later(storage, (tmp_path / "x").as_uri(), kind, count=NODES + 1)
    # As where all rows are read from the start: their places show that one is missing.
    assert nodes.places is None
    assert len(nodes.dense) == NODES
    message = "id" if kind == "parquet" else "correct count"
    with pytest.raises(InputError, match=message):
        read_later(storage, (tmp_path / "x").as_uri(), kind, count=NODES - 1)


def test_needed_nodes_without_a_row_or_with_two(tmp_path: Path, storage: Storage) -> None:
    ids = np.arange(NODES)
    ids[[40, 41]] = 45
    write_files(tmp_path / "x", "parquet", ids)
    ctx, nodes = read_later(storage, (tmp_path / "x").as_uri(), "parquet")
    with pytest.raises(InputError, match=r"1 node has duplicate feature rows, first node id 45"):
        read_some_features(ctx, nodes, np.array([40, 45]))
    with pytest.raises(InputError, match=r"2 nodes have no features, first node id 40"):
        read_some_features(ctx, nodes, np.array([40, 41, 42]))
    assert len(read_some_features(ctx, nodes, np.array([42]))) == 1


def test_all_are_read_where_an_id_may_be_no_node_or_metadata_does_not_say(
    tmp_path: Path, storage: Storage
) -> None:
    unknown = np.arange(NODES)
    unknown[17] = NODES + 3
    write_files(tmp_path / "x", "parquet", unknown)
    with pytest.raises(InputError, match=f"{NODES + 3}"):
        read_later(storage, (tmp_path / "x").as_uri(), "parquet")
    (tmp_path / "y").mkdir()
    write_parquet(tmp_path / "y" / "z", np.arange(NODES), VALUES, write_statistics=False)
    _, nodes = read_later(storage, (tmp_path / "y").as_uri(), "parquet")
    assert nodes.places is None
    (tmp_path / "ids").mkdir()
    write_files(tmp_path / "z", "npy", files=1)
    np.save(tmp_path / "ids" / "part-0.npy", np.arange(NODES)[::-1])
    ids_uri = (tmp_path / "ids").as_uri()
    _, nodes = read_later(storage, (tmp_path / "z").as_uri(), "npy", idsUri=ids_uri)
    assert nodes.places is None
    assert nodes.raw.placed
    assert np.array_equal(nodes.raw.values.numpy(), VALUES[::-1])
