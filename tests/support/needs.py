"""``pytest.mark.needs``: what tests need that is built or downloaded once for a machine.

All of it is there before the test begins, outside of every time limit (``once.py``). Tests that
need nothing run first.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support import chart_sources, orchestrators
from tests.support.cluster.programs import CLUSTER_PROGRAMS
from tests.support.cluster.requirements import missing
from tests.support.go_programs import MODULES, build
from tests.support.once import Say, name_needs

_OF_MARKS = {"s3": ("s3",), "cluster": CLUSTER_PROGRAMS}
"""What every test with a mark needs."""
_OF_FIXTURES = {"s3_server": ("s3",)}

_COMMON = {"s3", *CLUSTER_PROGRAMS}
"""What is built first: most tests that need anything need these."""

_LONG = 20
"""How many others a test that starts several processes takes as long as."""

_outcomes: dict[str, str] = {}
"""By name, what :func:`_try` returned: a build is tried once in a process."""


def needed(items: Iterable[pytest.Item]) -> list[str]:
    """What tests named, by marks or by their fixtures, in the order of names.

    Tests that are skipped since the cluster cannot run here need nothing.
    """
    names: set[str] = set()
    for item in items:
        if item.get_closest_marker("cluster") and missing() is not None:
            continue
        for mark in item.iter_markers():
            names.update(mark.args if mark.name == "needs" else _OF_MARKS.get(mark.name, ()))
        for fixture in getattr(item, "fixturenames", ()):
            names.update(_OF_FIXTURES.get(fixture, ()))
    return sorted(names)


def in_turn(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests by files: on a new machine those that need nothing run while others' needs are
    built; among these, long files come first, so that no process ends long after the others."""
    files = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        files[item.path].append(item)
    return [item for tests in sorted(files.values(), key=_turn) for item in tests]


def _turn(tests: list[pytest.Item]) -> tuple[int, int]:
    names = set(needed(tests))
    length = sum(_LONG if test.get_closest_marker("distributed") else 1 for test in tests)
    return (2 if names - _COMMON else 1 if names else 0), -length


def provide(names: Iterable[str], say: Say = print) -> None:
    """Build or download what is missing, and let the test that is next use it, and nothing else.

    Raises:
        RuntimeError: a build failed, now or earlier in this process, or there is nothing of that
            name.
    """
    name_needs(())
    for name in names:
        if name not in _outcomes:
            _outcomes[name] = _try(name, say)
        if _outcomes[name]:
            raise RuntimeError(_outcomes[name])
    name_needs(names)


def _try(name: str, say: Say) -> str:
    """Why it could not be built, empty where it is there."""
    try:
        _provider(name)(say)
    except RuntimeError as error:
        return f"{name}: {error}"
    return ""


def _provider(name: str) -> Callable[[Say], object]:
    if name == chart_sources.NAME:
        return chart_sources.fetch_all
    if name in orchestrators.NAMES:
        return lambda say: orchestrators.environment_of(name, say)
    if name not in MODULES:
        known = ", ".join(sorted([*MODULES, *orchestrators.NAMES, chart_sources.NAME]))
        raise RuntimeError(f"pytest.mark.needs({name!r}): nothing has that name; known: {known}")
    return lambda say: build(MODULES[name], say)


def speaker(config: pytest.Config) -> Say:
    """Prints a line at once, whether or not output is captured, from xdist's workers too."""

    def say(line: str) -> None:
        with uncaptured(config):
            print(line, file=sys.stderr, flush=True)

    return say


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Within it, what this process prints and what processes inherit of it is not captured."""
    context: AbstractContextManager[None] = config.pluginmanager.getplugin(
        "capturemanager"
    ).global_and_fixture_disabled()
    return context
