"""A held version is complete and not current, until it is released or discarded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embertide.errors import ObjectMissing, OutputError
from embertide.spec.version_names import new_version
from embertide.storage.protocol import Storage
from embertide.versions.catalog import find_version, latest, list_versions
from embertide.versions.publish import finish, rollback
from embertide.versions.releasing import newest_held, release, remove_held
from tests.support.compared import publish_rows, random_rows
from tests.support.versions import CURRENT, LATER, NEXT, OLD, hooked, names, path_of

WHY = ("rows removed: 50.0%; maxRemovedRows is 10%",)
ROWS = random_rows(20, 3, 1)


@pytest.fixture
def held(storage: Storage, output: str) -> str:
    """An output whose newest version is held."""
    publish_rows(storage, output, OLD, ROWS)
    info = publish_rows(storage, output, CURRENT, ROWS, held=WHY)
    assert (info.current, info.held) == (False, WHY)
    return output


def test_readers_keep_the_version_before(storage: Storage, held: str) -> None:
    assert latest(storage, held).version == OLD
    old, new = list_versions(storage, held)
    assert (old.current, old.held) == (True, ())
    assert (new.current, new.held) == (False, WHY)
    assert find_version(storage, held, CURRENT).held == WHY


def test_an_attempt_that_finds_it_complete_does_not_release_it(storage: Storage, held: str) -> None:
    assert finish(storage, held, CURRENT, keep=7).held == WHY
    assert latest(storage, held).version == OLD


def test_the_next_version_becomes_current(storage: Storage, held: str) -> None:
    assert publish_rows(storage, held, NEXT, ROWS).current
    assert [info.version for info in list_versions(storage, held) if info.held] == [CURRENT]


def test_a_released_version_is_current_and_stays_so(storage: Storage, held: str) -> None:
    assert newest_held(storage, held) == CURRENT
    assert release(storage, held, CURRENT).current
    assert latest(storage, held).version == CURRENT
    assert not any(info.held for info in list_versions(storage, held))
    assert not path_of(held, f"versions/{CURRENT}/_held.json").exists()
    # A run that began before the release leaves it where it is; a later one moves on.
    assert not publish_rows(storage, held, NEXT, ROWS).current
    assert publish_rows(storage, held, new_version(), ROWS).current
    rollback(storage, held, CURRENT)
    assert latest(storage, held).version == CURRENT


def test_a_release_that_was_cut_short_is_done_by_the_next_one(storage: Storage, held: str) -> None:
    def die(operation: str, _uri: str) -> None:
        if operation == "delete":
            raise ConnectionError

    with pytest.raises(ConnectionError):
        release(hooked(storage, die), held, CURRENT)
    assert latest(storage, held).version == CURRENT
    assert release(storage, held, CURRENT).current
    assert not list_versions(storage, held)[-1].held


@pytest.mark.parametrize("act", [release, remove_held])
def test_what_is_not_held_is_left_alone(
    storage: Storage, held: str, act: Callable[[Storage, str, str], object]
) -> None:
    with pytest.raises(OutputError, match=f"version {OLD} .* is not held"):
        act(storage, held, OLD)
    with pytest.raises(ObjectMissing, match=f"no complete version {NEXT}"):
        act(storage, held, NEXT)
    assert names(storage, held) == [OLD, CURRENT]
    assert latest(storage, held).version == OLD


def test_a_discarded_version_is_gone(storage: Storage, held: str) -> None:
    remove_held(storage, held, CURRENT)
    assert names(storage, held) == [OLD]
    assert not path_of(held, f"versions/{CURRENT}").exists()
    with pytest.raises(ObjectMissing, match="has no held version newer than the current one"):
        newest_held(storage, held)


def test_rollback_does_not_go_to_a_held_version(storage: Storage, held: str) -> None:
    with pytest.raises(OutputError, match=r"is held: rows removed.* embertide release"):
        rollback(storage, held, CURRENT)
    assert latest(storage, held).version == OLD


def test_a_held_first_version_leaves_no_latest(storage: Storage, output: str) -> None:
    publish_rows(storage, output, OLD, ROWS, held=WHY)
    with pytest.raises(ObjectMissing, match=f"has no LATEST.*embertide release.*{OLD}"):
        latest(storage, output)
    release(storage, output, OLD)
    assert latest(storage, output).version == OLD


def test_held_versions_leave_readers_those_they_may_go_back_to(
    storage: Storage, output: str
) -> None:
    for version in (OLD, CURRENT):
        publish_rows(storage, output, version, ROWS, keep=2)
    for version in (NEXT, LATER, new_version()):
        publish_rows(storage, output, version, ROWS, keep=2, held=WHY)
    assert [info.version for info in list_versions(storage, output) if not info.held] == [
        OLD,
        CURRENT,
    ]
    held = [info.version for info in list_versions(storage, output) if info.held]
    assert held[0] == LATER
    assert len(names(storage, output)) == 4


def test_a_run_that_dies_while_it_holds_leaves_no_current_version(
    storage: Storage, output: str
) -> None:
    """Whatever operation is the last one: the version is incomplete, or held."""
    publish_rows(storage, output, OLD, ROWS)
    count = 0

    def counting(_operation: str, _uri: str) -> None:
        nonlocal count
        count += 1

    publish_rows(hooked(storage, counting), output, CURRENT, ROWS, held=WHY)
    operations = count
    for last in range(operations):
        place = f"{output}/{last}"
        publish_rows(storage, place, OLD, ROWS)
        left = last

        def die(_operation: str, _uri: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ConnectionError

        with pytest.raises(ConnectionError):
            publish_rows(hooked(storage, die), place, CURRENT, ROWS, held=WHY)
        assert latest(storage, place).version == OLD
        assert [info.held for info in list_versions(storage, place)][1:] in ([], [WHY])
