"""Three tiers of tests: what every change needs, what a release needs, and all there is.

========= ========================= ===========================================================
tier 1    ``make test``             minutes; needs a compiler at most
tier 2    ``make test-all``, CI     more packages, an S3 server, a Kubernetes node, a browser
tier 3    ``make test-exhaustive``  hours: every model on every grid in every mode
========= ========================= ===========================================================

A test is of the first tier unless ``pytest.mark.tier(n)`` names another, on it, one of its
parameters or its file's ``pytestmark``, or it needs what only a later tier has (``needs.py``,
:data:`FOLDERS`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.needs import needed

FOLDERS = {
    "cluster": "a Kubernetes node",
    "indexes": "vector indexes",
    "s3": "an S3 server",
}
"""Folders of the second tier, and what their tests need."""
LONG = {2: "longer runs and other packages", 3: "every model on every grid, more examples"}
"""What is in a tier beside what needs something, by tier."""
COMMANDS = {2: "make test-all", 3: "make test-exhaustive"}

_STATED = re.compile(r"^pytestmark = .*\bmark\.tier\((\d)\)", re.MULTILINE)
_LEFT = pytest.StashKey[Counter[tuple[int, str]]]()


def tier_of(item: pytest.Item) -> tuple[int, str]:
    """A test's tier, and what is in that tier that it needs."""
    stated = [int(mark.args[0]) for mark in item.iter_markers("tier")]
    tier, why = max(stated, default=1), ""
    if needed([item]) or item.get_closest_marker("cluster"):
        tier, why = max(tier, 2), "programs that are built"
    of_folder = FOLDERS.get(item.path.parent.name, why)
    return tier, of_folder if tier == 2 and of_folder else LONG.get(tier, "")


def tier_of_file(path: Path) -> tuple[int, str]:
    """The least tier of a file's tests as far as it is known without importing the file."""
    if path.parent.name in FOLDERS:
        return 2, FOLDERS[path.parent.name]
    stated = _STATED.search(path.read_text(encoding="utf-8"))
    tier = int(stated[1]) if stated else 1
    return tier, LONG.get(tier, "")


def leave_out(config: pytest.Config, tier: int, why: str, tests: int = 1) -> None:
    """Count tests, or files of them, that are left to a later tier."""
    config.stash.setdefault(_LEFT, Counter())[tier, why] += tests


def left_out(config: pytest.Config) -> Counter[tuple[int, str]]:
    """What was left to later tiers, by tier and what it needs."""
    return config.stash.get(_LEFT, Counter[tuple[int, str]]())


def left_as_list(config: pytest.Config) -> list[tuple[int, str, int]]:
    """What was left out as plain values, for another process."""
    return [(tier, why, count) for (tier, why), count in left_out(config).items()]


def take_left(config: pytest.Config, left: Iterable[tuple[int, str, int]]) -> None:
    """Set what another process left out, which has collected the same tests."""
    config.stash[_LEFT] = Counter({(tier, why): count for tier, why, count in left})


def is_of_room(item: pytest.Item, room: str | None) -> bool:
    """Whether a test's file names a package of the worker or the operator: all do for None."""
    if room is None:
        return True
    text = item.path.read_text(encoding="utf-8")
    return re.search(rf"\b(embertide|embertide_operator)\.{re.escape(room)}\b", text) is not None


def summary(config: pytest.Config) -> list[str]:
    """A line for each tier that has tests which were left out."""
    left = left_out(config)
    return [
        f"left to `{command}`: {sum(some.values())} tests and files ("
        + ", ".join(f"{why} {count}" for why, count in some.most_common())
        + ")"
        for tier, command in COMMANDS.items()
        if (some := Counter({why: count for (of, why), count in left.items() if of == tier}))
    ]
