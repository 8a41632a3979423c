"""Expected texts, kept in files that a review reads: one runner for refusals, messages, exports.

A file of ``tests/expected`` has the text of each case below a line ``== name``, in the order of the
cases. A test of the parameter ``name`` compares what it finds by the fixture ``expected``::

    def test_refusals(name: str, expected: Expected) -> None:
        expected.check("refusals.txt", name, message_of(CASES[name]), CASES)

``pytest --update`` writes what is found in place of comparing it, prints the differences and leaves
the texts of cases that it does not run. Inputs too may stand in the file, see ``inputs``, and above
the first name what all of them share.
"""

from __future__ import annotations

import difflib
import fcntl
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "expected"
CHANGED = "changed"
"""The property of a test's report that has the difference it wrote."""


class Expected:
    """Compares texts with those of files, or writes them there.

    ``changed`` is given the difference of a text that is written.
    """

    def __init__(self, update: bool, changed: Callable[[str], None], folder: Path = FOLDER) -> None:
        self._update, self._changed, self._folder = update, changed, folder

    def check(self, file: str, name: str, found: str, names: Iterable[str]) -> None:
        """Fail with a difference where the entry ``name`` of the file is not ``found``.

        ``names`` are those of all cases of the file, in its order: an entry of none fails too.
        Spaces at the ends of lines and empty lines at the end of a text are left out.
        """
        path, order = self._folder / file, list(names)
        text = "".join(f"{line.rstrip()}\n" for line in found.rstrip().splitlines())
        assert name in order
        assert not re.search(r"^== ", text, re.MULTILINE), "a text has a line of a name"
        entries = read(path)
        difference = _difference(file, name, entries.get(name), text)
        known = [one for one in order if one in entries]
        if not self._update:
            if difference:
                pytest.fail(f"{difference}pytest --update writes {path}", pytrace=False)
            if list(entries) != known:
                others = sorted(entries.keys() - set(order)) or "another order of the cases"
                pytest.fail(f"{file} has {others}; pytest --update writes it", pytrace=False)
        elif difference or list(entries) != known:
            _write(path, name, text, order)
            self._changed(difference or f"{file}: other entries, or their order\n")


def read(path: Path) -> dict[str, str]:
    """The texts of a file by their names; none of a file that is not there."""
    _, *rest = _parts(path)
    names = rest[::2]
    assert len(names) == len(set(names)), f"{path} has a name twice"
    return dict(zip(names, rest[1::2], strict=True))


def inputs(file: str) -> dict[str, str]:
    """What stands above a line ``--`` in the entries of a file whose cases are their own data.

    A test of such a case returns its input with that line above what is found.
    """
    return {name: text.partition("--\n")[0] for name, text in read(FOLDER / file).items()}


def preamble(path: Path) -> str:
    """What stands above the first name of a file."""
    return _parts(path)[0]


def _parts(path: Path) -> list[str]:
    """What is above all names, then names and texts in turn."""
    text = path.read_text("utf-8") if path.exists() else ""
    return re.split(r"^== (.*)\n", text, flags=re.MULTILINE)


def _write(path: Path, name: str, text: str, order: list[str]) -> None:
    """Put one entry in, as processes beside this one may; drop entries of no case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        entries = read(path) | {name: text}
        texts = (f"== {one}\n{entries[one]}" for one in order if one in entries)
        path.write_text(preamble(path) + "".join(texts), "utf-8")


def _difference(file: str, name: str, old: str | None, new: str) -> str:
    """A unified one in full, or nothing."""
    if old == new:
        return ""
    lines = difflib.unified_diff(
        (old or "").splitlines(), new.splitlines(), f"{file}: {name}", "found", n=999, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines if not line.startswith("@@"))


def print_changes(reporter: pytest.TerminalReporter) -> None:
    """What ``--update`` wrote, at a run's end."""
    for report in reporter.getreports("passed"):
        for key, text in report.user_properties:
            if key == CHANGED:
                reporter.write(str(text))
