"""Versions are in the order in which their runs began, whatever the clocks of machines say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embertide.cli.versions import named_version
from embertide.engine.planning.base_version import touched
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.io.versions.catalog import VersionInfo, latest
from embertide.io.versions.pointer import Follows, found
from embertide.io.versions.publish import rollback
from embertide.io.versions.releasing import newest_held
from embertide.spec.version_names import new_version
from tests.support.versions import is_intact, names, path_of, publish_one

NOW = datetime.now(UTC)
AHEAD, BEHIND = timedelta(days=3), timedelta(days=-3)


def night(
    storage: Storage, output: str, clock: timedelta = timedelta(), keep: int = 100, **more: Any
) -> VersionInfo:
    """A run that begins now on a machine whose clock is off."""
    version = new_version(datetime.now(UTC) + clock)
    return publish_one(storage, output, version, keep, follows=found(storage, output), **more)


@pytest.mark.parametrize("first", [AHEAD, BEHIND])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_that_begins_later_is_current_and_stays(
    first: timedelta, keep: int, storage: Storage, output: str
) -> None:
    published = [night(storage, output, clock, keep) for clock in (first, BEHIND, timedelta())]
    assert [info.current for info in published] == [True] * 3
    assert latest(storage, output).version == published[-1].version
    assert names(storage, output) == [info.version for info in published[-keep:]]
    if keep == 2:
        assert named_version(storage, output, "previous") == published[1].version


def test_a_version_ahead_of_an_earlier_release_is_followed(storage: Storage, output: str) -> None:
    """It notes no generation, and its name alone would hold for days."""
    publish_one(storage, output, new_version(NOW + AHEAD))
    path = path_of(output, "LATEST")
    pointer = json.loads(path.read_text())
    pointer.pop("generation", None)
    path.write_text(json.dumps(pointer))
    assert found(storage, output) == Follows(pointer["version"])
    assert night(storage, output).current


@pytest.mark.parametrize("clock", [timedelta(), AHEAD, BEHIND])
def test_a_rollback_holds_against_runs_begun_before_it_alone(
    clock: timedelta, storage: Storage, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = night(storage, output), night(storage, output)
    before, running = found(storage, output), new_version(datetime.now(UTC) + AHEAD)
    at = (datetime.now(UTC) + clock).isoformat()
    monkeypatch.setattr("embertide.io.versions.pointer.utc_now", lambda: at)
    rollback(storage, output, old.version)
    monkeypatch.undo()
    late = publish_one(storage, output, running, 1, follows=before)
    assert not late.current
    assert late.not_current == (
        f"version {old.version} was made current at {at} (rollback), after this run had begun"
    )
    # What was published just now is there, though another one is current.
    assert is_intact(storage, output, running)
    assert latest(storage, output).version == old.version
    assert night(storage, output).current


def test_of_runs_that_began_together_the_later_name_wins(storage: Storage, output: str) -> None:
    night(storage, output)
    both = found(storage, output)
    early, late = (new_version(datetime.now(UTC) + timedelta(seconds=s)) for s in (1, 2))
    assert publish_one(storage, output, late, follows=both).current
    passed = publish_one(storage, output, early, follows=both, keep=1)
    assert passed.not_current == f"version {late} is current, whose run began later than this one"
    assert names(storage, output) == [early, late]
    both = found(storage, output)
    for seconds in (3, 4):
        name = new_version(datetime.now(UTC) + timedelta(seconds=seconds))
        assert publish_one(storage, output, name, follows=both).current


def test_a_run_that_began_later_passes_whatever_its_name(storage: Storage, output: str) -> None:
    """Two runs, of which the second began after another one had published."""
    first = found(storage, output)
    night(storage, output)
    second, third = found(storage, output), new_version(NOW + BEHIND)
    assert publish_one(storage, output, third, follows=second).current
    ahead = new_version(NOW + AHEAD)
    assert not publish_one(storage, output, ahead, follows=first).current
    assert latest(storage, output).version == third


def test_a_held_version_is_there_once_it_is_published(storage: Storage, output: str) -> None:
    night(storage, output)
    night(storage, output, AHEAD, 1, held=["changed"])
    held = night(storage, output, keep=1, held=["changed"])
    assert held.version in names(storage, output)


def test_a_held_version_is_newer_whatever_its_name(storage: Storage, output: str) -> None:
    night(storage, output, AHEAD)
    held = night(storage, output, held=["changed"])
    assert newest_held(storage, output) == held.version


class _Clock:
    """A store whose clock is off."""

    def __init__(self, storage: Storage, off: float) -> None:
        self._storage, self._off = storage, off

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def stat(self, uri: str) -> ObjectInfo | None:
        info = self._storage.stat(uri)
        return None if info is None else replace(info, modified=info.modified + self._off)


@pytest.mark.parametrize(("off", "way"), [(-3 * 86400, "ahead of"), (7200, "behind")])
def test_a_clock_far_from_the_stores_is_warned_of(
    off: float, way: str, storage: Storage, output: str
) -> None:
    info = night(_Clock(storage, off), output)  # type: ignore[arg-type]
    assert f" {way} that of {output}" in info.clock
    assert night(_Clock(storage, -30), output).clock == ""  # type: ignore[arg-type]


def test_a_name_before_that_of_the_version_it_follows_is_warned_of(
    storage: Storage, output: str
) -> None:
    before = night(storage, output, AHEAD).version
    assert f"has an earlier time than that of {before}" in night(storage, output).clock


def test_times_of_files_tell_nothing_where_a_clock_was_ahead(storage: Storage, output: str) -> None:
    """A file that was written to in place, with its time set back, would pass as unchanged."""
    ahead = night(storage, output, AHEAD).version
    assert touched(storage, ahead, ["s3://shop/edges"]) == ""
    assert f"a clock was ahead when the run of version {ahead} began" in touched(
        storage, ahead, [f"{output}/LATEST"]
    )
