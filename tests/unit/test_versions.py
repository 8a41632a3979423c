"""Versions on files: publishing, racing, going back, retention, and what is left after a crash."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from embertide.errors import ObjectMissing, OutputError, StorageError
from embertide.spec.version_names import begun, is_version, new_version, version_uri
from embertide.storage.local import LocalStore
from embertide.storage.protocol import Storage
from embertide.versions.catalog import latest, list_versions
from embertide.versions.formats import FORMATS
from embertide.versions.pointer import read_pointer
from embertide.versions.probe import check_output
from embertide.versions.publish import publish, rollback
from embertide.versions.reading import iter_embeddings
from embertide.versions.retention import remove_old
from tests.support.versions import (
    CURRENT,
    LATER,
    NEXT,
    OLD,
    check_crashes,
    check_races,
    hooked,
    is_intact,
    manifest_of,
    names,
    path_of,
    publish_one,
    write_parts,
)

MISSING = "20200101T000000Z-000000"


def once(operation: str, name: str, act: Callable[[], object]) -> Callable[[str, str], None]:
    """A hook that acts before the first such operation on an object whose uri ends in name."""
    left = [act]

    def before(found: str, uri: str) -> None:
        if found == operation and uri.endswith(name) and left:
            left.pop()()

    return before


# Names


def test_names_sort_as_runs_begin_even_within_a_second() -> None:
    start = datetime(2026, 11, 21, 4, 19, 22, 999_000, UTC)
    moments = [start + timedelta(microseconds=20 * i) for i in range(200)]
    versions = [new_version(moment) for moment in moments]
    assert versions == sorted(versions)
    assert versions[0].startswith("20261121T041922Z-ff")
    assert versions[-1].startswith("20261121T041923Z-00")
    for version, moment in zip(versions, moments, strict=True):
        assert is_version(version)
        assert timedelta(0) <= moment - begun(version) < timedelta(microseconds=17)


def test_names_are_in_utc() -> None:
    local = datetime.fromisoformat("2026-11-21T06:19:22+02:00")
    assert new_version(local).startswith("20261121T041922Z-0000")


# Publishing


def test_a_published_version_is_described_listed_and_read(storage: Storage, output: str) -> None:
    info = publish_one(storage, output, OLD)
    assert (info.version, info.rows, info.dim, info.current) == (OLD, 7, 3, True)
    assert info.uri == f"{output}/versions/{OLD}"
    assert datetime.fromisoformat(info.created) <= datetime.now(UTC)
    parts = path_of(output, f"versions/{OLD}").glob("part-*")
    assert info.size == sum(path.stat().st_size for path in parts)
    assert latest(storage, output) == info
    assert list_versions(storage, output) == [info]
    assert is_intact(storage, output, OLD)


def test_manifest_and_pointer_as_consumers_see_them(storage: Storage, output: str) -> None:
    digests = write_parts(storage, output, OLD)
    info = publish(storage, output, OLD, {**manifest_of(digests), "seed": 5}, keep=1)
    manifest = json.loads(path_of(output, f"versions/{OLD}/_manifest.json").read_text())
    assert (manifest["version"], manifest["seed"], manifest["rows"]) == (OLD, 5, 7)
    assert manifest["parts"][0]["sha256"] == digests[0].sha256
    pointer = json.loads(path_of(output, "LATEST").read_text())
    assert (pointer["version"], pointer["movedBy"]) == (OLD, "publish")
    assert pointer["manifestDigest"] == info.manifest_digest


def test_the_type_of_rows_is_float32_where_a_manifest_does_not_say(
    storage: Storage, output: str
) -> None:
    earlier = publish_one(storage, output, OLD)
    manifest = manifest_of(write_parts(storage, output, CURRENT)) | {"rowType": "bfloat16"}
    later = publish(storage, output, CURRENT, manifest, keep=2)
    assert (earlier.row_type, later.row_type) == ("float32", "bfloat16")
    assert [info.row_type for info in list_versions(storage, output)] == ["float32", "bfloat16"]


def test_a_pointer_is_read_back_as_written(storage: Storage, output: str) -> None:
    info = publish_one(storage, output, OLD)
    pointer = read_pointer(storage, output)
    assert pointer is not None
    assert (pointer.version, pointer.manifest_digest) == (OLD, info.manifest_digest)
    assert pointer.moved_at.endswith("Z")


@pytest.mark.parametrize("format", FORMATS)
def test_the_current_version_is_the_default(storage: Storage, output: str, format: str) -> None:
    publish_one(storage, output, OLD, format=format)
    publish_one(storage, output, CURRENT, format=format)
    assert is_intact(storage, output, CURRENT)
    default = [values.tolist() for _, values in iter_embeddings(storage, output)]
    chosen = [values.tolist() for _, values in iter_embeddings(storage, output, CURRENT)]
    assert default == chosen


def test_an_output_with_nothing_in_it(storage: Storage, output: str) -> None:
    assert list_versions(storage, output) == []
    with pytest.raises(ObjectMissing, match=r"nothing was published to .*/out yet"):
        latest(storage, output)
    with pytest.raises(ObjectMissing, match=r"no complete version .*; nothing was published there"):
        rollback(storage, output, OLD)


def test_a_version_is_published_once(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    with pytest.raises(OutputError, match=r"_manifest.json already exists"):
        publish_one(storage, output, OLD)


# Damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"part-00001.parquet is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"part-00001.parquet has \d+ byte"),
    ],
    ids=["missing", "truncated"],
)
def test_a_damaged_part_is_not_published(
    storage: Storage, output: str, damage: Callable[[Path], object], message: str
) -> None:
    publish_one(storage, output, OLD)
    digests = write_parts(storage, output, CURRENT)
    damage(path_of(output, f"versions/{CURRENT}/part-00001.parquet"))
    with pytest.raises(OutputError, match=message):
        publish(storage, output, CURRENT, manifest_of(digests), keep=1)
    assert names(storage, output) == [OLD]
    assert latest(storage, output).version == OLD


def test_rows_that_do_not_add_up_and_strangers_are_not_published(
    storage: Storage, output: str
) -> None:
    manifest = manifest_of(write_parts(storage, output, OLD))
    with pytest.raises(OutputError, match="have 7 rows, the graph has 8 nodes"):
        publish(storage, output, OLD, {**manifest, "rows": 8}, keep=1)
    storage.write(f"{version_uri(output, OLD)}/part-00009.parquet", b"x")
    with pytest.raises(OutputError, match=r"part-00009.parquet does not belong to this version"):
        publish(storage, output, OLD, manifest, keep=1)
    assert names(storage, output) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 3}'])
def test_a_damaged_pointer_is_named_and_rollback_mends_it(
    storage: Storage, output: str, text: str
) -> None:
    publish_one(storage, output, OLD)
    path_of(output, "LATEST").write_text(text)
    with pytest.raises(OutputError, match=r"out/LATEST is damaged .* embertide rollback"):
        latest(storage, output)
    rollback(storage, output, OLD)
    assert latest(storage, output).version == OLD


def test_a_damaged_or_changed_manifest_is_named(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    path = path_of(output, f"versions/{OLD}/_manifest.json")
    path.write_text(path.read_text().replace('"dim": 3', '"dim": 4'))
    with pytest.raises(
        OutputError, match=rf"the manifest of .*{OLD} was changed after it was published"
    ):
        latest(storage, output)
    path.write_text('{"rows": 1}')
    with pytest.raises(OutputError, match=r"_manifest.json is damaged"):
        list_versions(storage, output)


# Going back


def test_rollback_moves_the_pointer_only(storage: Storage, output: str) -> None:
    for version in (OLD, CURRENT, NEXT):
        publish_one(storage, output, version)
    assert rollback(storage, output, OLD).current
    assert latest(storage, output).version == OLD
    assert names(storage, output) == [OLD, CURRENT, NEXT]
    assert [info.current for info in list_versions(storage, output)] == [True, False, False]
    rollback(storage, output, NEXT)
    assert latest(storage, output).version == NEXT


def test_rollback_to_a_missing_version_lists_what_there_is(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    write_parts(storage, output, NEXT)
    for version in (MISSING, NEXT, "../.."):
        with pytest.raises(ObjectMissing) as caught:
            rollback(storage, output, version)
        there = f"has no complete version {version}; it has {OLD}, {CURRENT}"
        assert str(caught.value) == f"{output} {there}"
    with pytest.raises(ObjectMissing, match=f"no complete version {MISSING}; it has {OLD}"):
        list(iter_embeddings(storage, output, MISSING))
    assert latest(storage, output).version == CURRENT


def test_rollback_refuses_a_version_with_lost_parts(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    path_of(output, f"versions/{OLD}/part-00000.parquet").unlink()
    with pytest.raises(OutputError, match=rf"{OLD}/part-00000.parquet is missing"):
        rollback(storage, output, OLD)
    assert latest(storage, output).version == CURRENT


def test_a_rollback_holds_against_runs_begun_before_it(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    running = new_version()
    rollback(storage, output, OLD)
    assert not publish_one(storage, output, running).current
    assert latest(storage, output).version == OLD
    assert names(storage, output) == [OLD, CURRENT, running]
    begun_later = new_version()
    assert publish_one(storage, output, begun_later).current
    assert latest(storage, output).version == begun_later


# Races


def test_the_run_begun_last_wins_in_either_order(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, NEXT)
    assert not publish_one(storage, output, CURRENT).current
    assert latest(storage, output).version == NEXT


@pytest.mark.parametrize(("mine", "winner"), [(CURRENT, NEXT), (LATER, LATER)])
def test_another_run_publishes_just_before_the_pointer_moves(
    storage: Storage, output: str, mine: str, winner: str
) -> None:
    publish_one(storage, output, OLD)
    hook = once("write_if", "LATEST", lambda: publish_one(storage, output, NEXT))
    info = publish_one(hooked(storage, hook), output, mine)
    assert info.current == (winner == mine)
    assert latest(storage, output).version == winner
    assert names(storage, output) == sorted([OLD, NEXT, mine])


def test_a_rollback_just_before_the_pointer_moves_is_kept(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    hook = once("write_if", "LATEST", lambda: rollback(storage, output, OLD))
    assert not publish_one(hooked(storage, hook), output, NEXT).current
    assert latest(storage, output).version == OLD


def test_a_version_removed_during_a_rollback_to_it(storage: Storage, output: str) -> None:
    for version in (OLD, CURRENT, NEXT):
        publish_one(storage, output, version)
    hook = once("write_if", "LATEST", lambda: remove_old(storage, output, keep=2))
    with pytest.raises(ObjectMissing, match="was removed by a competing run"):
        rollback(hooked(storage, hook), output, OLD)
    assert latest(storage, output).version == NEXT
    assert names(storage, output) == [CURRENT, NEXT]


def test_a_rollback_to_a_version_about_to_be_removed_saves_it(
    storage: Storage, output: str
) -> None:
    for version in (OLD, CURRENT, NEXT):
        publish_one(storage, output, version)
    manifest = f"{OLD}/_manifest.json"
    hook = once("delete", manifest, lambda: rollback(storage, output, OLD))
    remove_old(hooked(storage, hook), output, keep=1)
    assert latest(storage, output).version == OLD
    assert names(storage, output) == [OLD, NEXT]
    assert is_intact(storage, output, OLD)


def test_processes_race_for_the_pointer(output: str) -> None:
    check_races(None, output, processes=6)


# Crashes


def test_a_process_that_dies_anywhere_leaves_a_whole_version(output: str) -> None:
    check_crashes(None, output)


@pytest.mark.parametrize(
    ("write", "condition"),
    [
        (lambda _etag, _answer: False, "refuses a write whose If-None-Match: *"),
        (lambda etag, answer: answer or etag is None, "ignores If-None-Match: *"),
        (lambda etag, answer: answer or etag is not None, "ignores If-Match"),
        (lambda etag, answer: answer and etag is None, "refuses a write whose If-Match"),
        (lambda _etag, answer: answer, None),
    ],
)
def test_a_store_that_keeps_no_conditions_is_found_before_the_work(
    write: Callable[[str | None, bool], bool], condition: str | None, tmp_path: Path
) -> None:
    class Store(LocalStore):
        def write_if(self, uri: str, data: bytes, etag: str | None) -> bool:
            return write(etag, super().write_if(uri, data, etag))

    if condition is None:
        check_output(Store(), f"file://{tmp_path}", new_version())
    else:
        with pytest.raises(StorageError, match=re.escape(condition)):
            check_output(Store(), f"file://{tmp_path}", new_version())
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
