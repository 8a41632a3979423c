"""Which versions go: those beyond `keep`, remains of ended runs, what a failed run wrote."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from embertide.errors import AccessDenied, OutputError
from embertide.spec.version_names import new_version, version_uri
from embertide.storage.protocol import Storage
from embertide.versions.catalog import latest
from embertide.versions.publish import discard, rollback
from tests.support.versions import (
    CURRENT,
    LATER,
    NEXT,
    OLD,
    hooked,
    is_intact,
    names,
    path_of,
    publish_one,
    write_parts,
)

# Retention


def test_versions_beyond_keep_are_removed_oldest_first(storage: Storage, output: str) -> None:
    for version in (OLD, CURRENT, NEXT, LATER):
        publish_one(storage, output, version, keep=2)
    assert names(storage, output) == [NEXT, LATER]
    assert not path_of(output, f"versions/{OLD}").exists()
    removed: list[str] = []
    publish_one(
        hooked(storage, lambda name, uri: removed.append(uri) if name == "delete" else None),
        output, new_version(), keep=1,
    )  # fmt: skip
    folders = [uri.split("/")[-2] for uri in removed]
    assert folders == sorted(folders)
    assert set(folders) == {NEXT, LATER}


def test_the_current_version_is_never_removed(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    publish_one(storage, output, CURRENT)
    rollback(storage, output, OLD)
    publish_one(storage, output, NEXT, keep=1)
    assert names(storage, output) == [OLD, NEXT]
    assert latest(storage, output).version == OLD


def test_remains_of_ended_runs_are_removed_after_a_day(storage: Storage, output: str) -> None:
    now = datetime.now(UTC)
    ended, running = (new_version(now - timedelta(hours=hours)) for hours in (24.1, 23.9))
    write_parts(storage, output, ended)
    write_parts(storage, output, running)
    storage.write(f"{output}/versions/notes/kept.txt", b"not ours")
    storage.write(f"{version_uri(output, ended)}/.0123.part", b"of a writer that was killed")
    publish_one(storage, output, new_version(now), keep=1)
    assert not path_of(output, f"versions/{ended}").exists()
    assert len(list(path_of(output, f"versions/{running}").iterdir())) == 2
    assert path_of(output, "versions/notes/kept.txt").exists()


def test_old_versions_that_may_not_be_removed_do_not_unpublish(
    storage: Storage, output: str
) -> None:
    publish_one(storage, output, OLD)

    def refuse(name: str, uri: str) -> None:
        if name == "delete":
            raise AccessDenied(f"{uri} may not be removed")

    problem = publish_one(hooked(storage, refuse), output, CURRENT, keep=1).not_removed
    assert re.match(rf"{CURRENT} of .* is published, but .*may not be rem", problem)
    assert latest(storage, output).version == CURRENT
    assert is_intact(storage, output, OLD)


# Discarding


def test_what_a_failed_run_wrote_is_discarded(storage: Storage, output: str) -> None:
    publish_one(storage, output, OLD)
    write_parts(storage, output, CURRENT)
    discard(storage, output, CURRENT)
    assert not path_of(output, f"versions/{CURRENT}").exists()
    discard(storage, output, NEXT)
    with pytest.raises(OutputError, match=rf"{OLD} is complete; it is not removed"):
        discard(storage, output, OLD)
    assert is_intact(storage, output, OLD)
