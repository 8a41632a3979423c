"""Deltas: a reader that applies them, beginning with any version, has the newest one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import embertide
from embertide.errors import InputError, OutputError
from embertide.facts.telemetry.comparison import DeltaSize
from embertide.io.compare.travel import Travel
from embertide.io.storage.protocol import Storage
from embertide.io.versions.deltas import delta_of
from embertide.io.versions.manifest import read_manifest, types_in
from embertide.io.versions.parts import PartDigest
from embertide.spec.version_names import version_uri
from tests.support.chained import apply, publish_chained
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.versions import CURRENT, LATER, NEXT, OLD, path_of

COUNT, WIDTH, VERSIONS = 120, 6, 20
NAMES = [f"2026112{at // 10}T0{at % 10}1922Z-8000ff" for at in range(VERSIONS)]


def drifting(kind: str, dtype: str, seed: int) -> list[Rows]:
    """Versions whose rows move a little every time, some far, some come and some go."""
    generator = np.random.default_rng(seed)
    rows = random_rows(COUNT, WIDTH, seed, text=kind == "string")
    spare = random_rows(3 * COUNT, WIDTH, seed + 1, text=kind == "string")
    found = []
    for _ in range(VERSIONS):
        names = list(rows)
        for at in generator.choice(len(names), 4, replace=False):
            del rows[names[at]]
        for _ in range(4):
            name, vector = spare.popitem()
            rows[name] = vector
        for name in rows:
            step = generator.choice([0, 1e-5, 2e-4, 3e-3], p=[0.3, 0.4, 0.29, 0.01])
            rows[name] = rows[name] + np.float32(step) * generator.normal(size=WIDTH).astype("f4")
        rounded = {name: vector.astype(dtype).astype(np.float32) for name, vector in rows.items()}
        found.append(dict(rounded))
    return found


@pytest.mark.tier(2)
@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [
        ("int64", "float32", 0.0),
        ("int64", "float32", 1e-3),
        ("string", "float32", 1e-3),
        ("dense", "float16", 0.0),
        ("dense", "float16", 1e-3),
    ],
)
def test_twenty_versions_of_deltas_lead_from_every_version_to_the_newest(
    storage: Storage, output: str, tolerance: float, kind: str, dtype: str
) -> None:
    versions = drifting(kind, dtype, 7)
    readers: list[Rows] = []
    sent = 0
    for name, rows in zip(NAMES, versions, strict=True):
        delta = publish_chained(
            storage, output, name, rows, tolerance, kind=kind, dtype=dtype, format="parquet"
        )
        readers = [apply(storage, output, name, reader) for reader in readers]
        sent += 0 if "why" in delta else delta["upsert"]["rows"]
        for reader in readers:
            assert reader.keys() == rows.keys()
            for key, vector in rows.items():
                if tolerance == 0:
                    assert reader[key].tobytes() == vector.tobytes()
                else:
                    exact = reader[key].astype(np.float64) - vector.astype(np.float64)
                    assert np.linalg.norm(exact) <= tolerance
        readers.append(dict(rows))
    all_rows = sum(map(len, versions[1:]))
    # Few rows are further than the tolerance, of several versions together.
    assert 0 < sent < (all_rows if tolerance == 0 else 0.5 * all_rows)


def test_a_row_that_creeps_is_sent_before_it_is_beyond_the_tolerance(
    storage: Storage, output: str
) -> None:
    """Never more than the tolerance in one night, but in several."""
    rows = random_rows(20, 2, 1)
    name = next(iter(rows))
    upserts = []
    for night in range(8):
        rows = {**rows, name: rows[name] + np.float32([4e-4, 0])}
        delta = publish_chained(storage, output, NAMES[night], rows, 1e-3)
        upserts.append(None if "why" in delta else delta["upsert"]["rows"])
    assert upserts == [None, 0, 0, 1, 0, 0, 1, 0]


def test_the_same_version_again_has_an_empty_delta(storage: Storage, output: str) -> None:
    rows = random_rows(20, 2, 1)
    publish_chained(storage, output, OLD, rows, 0.0)
    delta = publish_chained(storage, output, CURRENT, rows, 0.0)
    assert [delta[what]["rows"] for what in ("upsert", "delete", "paths")] == [0, 0, 0]
    assert delta["base"] == OLD
    assert DeltaSize.of(delta) == DeltaSize()


def test_a_lower_tolerance_sends_what_was_kept_back(storage: Storage, output: str) -> None:
    rows = random_rows(20, 2, 1)
    publish_chained(storage, output, OLD, rows, 1e-3)
    moved = {name: vector + np.float32(1e-5) for name, vector in rows.items()}
    assert publish_chained(storage, output, CURRENT, moved, 1e-3)["upsert"]["rows"] == 0
    assert publish_chained(storage, output, NEXT, moved, 0.0)["upsert"]["rows"] == 20


def test_signs_of_zeros_and_tiny_differences_are_differences(storage: Storage, output: str) -> None:
    rows = {1: np.float32([0.0, 1]), 2: np.float32([1e-30, 0]), 3: np.float32([1, 1])}
    publish_chained(storage, output, OLD, rows, 0.0, workers=1)
    changed = {1: np.float32([-0.0, 1]), 2: np.float32([2e-30, 0]), 3: rows[3]}
    delta = publish_chained(storage, output, CURRENT, changed, 0.0, workers=1)
    assert delta["upsert"]["rows"] == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"width": 3}, f"{OLD} has 2 values in a row, not 3"),
        ({"dtype": "float16"}, f"{OLD} has float32, not float16"),
        ({"kind": "string"}, "there is nothing to compare with"),
    ],
)
def test_what_is_not_comparable_has_no_delta_and_the_reason(
    storage: Storage, output: str, changes: dict[str, Any], why: str
) -> None:
    first = publish_chained(storage, output, OLD, random_rows(20, 2, 1), 1e-3)
    assert first == {"why": "there is nothing to compare with"}
    rows = random_rows(20, changes.pop("width", 2), 1, text=changes.get("kind") == "string")
    assert publish_chained(storage, output, CURRENT, rows, 1e-3, **changes) == {"why": why}
    manifest, _ = read_manifest(storage, output, CURRENT)
    with pytest.raises(InputError, match=f"has no delta: {why}"):
        delta_of("v", types_in(manifest)[0])


def test_a_damaged_delta_is_an_error(storage: Storage, output: str) -> None:
    rows = random_rows(20, 2, 1)
    publish_chained(storage, output, OLD, rows, 0.0)
    moved = {name: vector + 1 for name, vector in rows.items()}
    delta = publish_chained(storage, output, CURRENT, moved, 0.0)
    name = delta["upsert"]["parts"][0]["name"]
    assert name.startswith("_delta/upsert/part-")
    path_of(version_uri(output, CURRENT), name).write_bytes(b"x")
    with pytest.raises(OutputError, match="is missing or damaged"):
        apply(storage, output, CURRENT, rows)


def test_paths_that_are_missing_are_an_error(storage: Storage, output: str) -> None:
    """They are not taken for rows that have not moved."""
    rows = random_rows(20, 2, 1)
    publish_chained(storage, output, OLD, rows, 1e-3)
    moved = {name: vector + np.float32(1e-5) for name, vector in rows.items()}
    delta = publish_chained(storage, output, CURRENT, moved, 1e-3)
    part = PartDigest(**delta["paths"]["parts"][0])
    path_of(version_uri(output, CURRENT), part.name).unlink()
    with pytest.raises(OutputError, match="is missing or damaged"):
        publish_chained(storage, output, NEXT, moved, 1e-3)


def test_a_version_without_delta_has_none(storage: Storage, output: str) -> None:
    publish_rows(storage, output, LATER, random_rows(20, 2, 1))
    manifest, _ = read_manifest(storage, output, LATER)
    with pytest.raises(InputError, match=r"has no delta: the job has no spec\.output\.delta"):
        delta_of("v", types_in(manifest)[0])


def test_a_path_is_never_shorter_than_the_distances() -> None:
    generator = np.random.default_rng(1)
    travel = Travel(1000)
    steps = generator.random(1000).astype(np.float32) ** 8
    travel.note(np.arange(1000), np.square(steps.astype(np.float64)), np.zeros(1000, bool))
    exact = steps.astype(np.float64)
    for _ in range(50):
        more = generator.random(1000).astype(np.float32) ** 8
        exact += more
        travel.add_earlier(np.arange(1000), more)
    assert (travel.moved.astype(np.float64) >= exact).all()
    assert asdict(DeltaSize.of({"why": "x"}))["why"] == "x"


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_the_api_reads_a_delta(storage: Storage, output: str, kind: str) -> None:
    rows = random_rows(30, 2, 1, text=kind == "string")
    publish_chained(storage, output, OLD, rows, 0.0, kind=kind)
    with pytest.raises(InputError, match="has no delta: there is nothing to compare with"):
        embertide.read_delta(output)
    names = list(rows)
    newer = {name: rows[name] for name in names[2:]}
    newer[names[5]] = newer[names[5]] + 1
    publish_chained(storage, output, CURRENT, newer, 0.0, kind=kind)
    found = embertide.read_delta(output)
    assert (found.info.version, found.base, found.tolerance) == (CURRENT, OLD, 0.0)
    assert found.upserts["id"].to_pylist() == [names[5]]
    assert found.upserts["embedding"].to_pylist() == [newer[names[5]].tolist()]
    assert set(found.deletes.to_pylist()) == set(names[:2])
    publish_chained(storage, output, NEXT, newer, 0.0, kind=kind)
    same = embertide.read_delta(output)
    assert (len(same.upserts), len(same.deletes)) == (0, 0)
    assert same.upserts.schema == found.upserts.schema
