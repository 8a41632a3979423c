"""``pytest.mark.needs``: what tests need that is built or downloaded once for a machine.

All of it is there before the first test begins, outside of every time limit (``once.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import pytest

from tests.support import chart_sources, orchestrators
from tests.support.cluster.programs import CLUSTER_PROGRAMS
from tests.support.cluster.requirements import missing
from tests.support.go_programs import MODULES, build
from tests.support.once import Say, add_named

_OF_MARKS = {"s3": ("s3",), "cluster": CLUSTER_PROGRAMS}
"""What every test with a mark needs."""
_OF_FIXTURES = {"s3_server": ("s3",)}
QUICK = frozenset({"s3"})
"""What is built on every machine; the rest is for those who work on the chart, rules and images."""


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


def provide(names: Iterable[str], say: Say = print) -> None:
    """Build or download what is missing.

    Raises:
        RuntimeError: a build failed, or there is nothing of that name.
    """
    for name in names:
        _provider(name)(say)
        add_named(name)


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
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    return say
