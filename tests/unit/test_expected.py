"""Texts that differ from their file fail with a difference, and are written by ``--update``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.expected import Expected, read

NAMES = ("one", "two", "three")
FILE = "some.txt"


def update(folder: Path, name: str, text: str, names: tuple[str, ...] = NAMES) -> list[str]:
    """The differences that were written."""
    changed: list[str] = []
    Expected(True, changed.append, folder).check(FILE, name, text, names)
    return changed


def failure(folder: Path, name: str, text: str, names: tuple[str, ...] = NAMES) -> str:
    with pytest.raises(pytest.fail.Exception) as caught:
        Expected(False, pytest.fail, folder).check(FILE, name, text, names)
    return str(caught.value)


def test_what_is_found_is_written_in_the_order_of_the_cases(tmp_path: Path) -> None:
    assert update(tmp_path, "two", "b\n\nc  \n\n") == ["--- some.txt: two\n+++ found\n+b\n+\n+c\n"]
    assert update(tmp_path, "one", "a")
    assert (tmp_path / FILE).read_text() == "== one\na\n== two\nb\n\nc\n"
    assert update(tmp_path, "one", "a") == []
    Expected(False, pytest.fail, tmp_path).check(FILE, "two", "b\n\nc", NAMES)


def test_a_difference_names_the_case(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("for all\n")
    update(tmp_path, "one", "same\nold")
    told = failure(tmp_path, "one", "same\nnew")
    assert told.startswith("--- some.txt: one\n+++ found\n same\n-old\n+new\npytest --update")
    assert "+text\n" in failure(tmp_path, "two", "text")
    assert read(tmp_path / FILE) == {"one": "same\nold\n"}
    assert (tmp_path / FILE).read_text() == "for all\n== one\nsame\nold\n"


def test_entries_of_no_case_fail_and_are_dropped(tmp_path: Path) -> None:
    for name in NAMES:
        update(tmp_path, name, "a")
    assert "has ['two']" in failure(tmp_path, "one", "a", ("one", "three"))
    assert "another order" in failure(tmp_path, "one", "a", ("three", "two", "one"))
    assert update(tmp_path, "one", "a", ("three", "one")) == [
        "some.txt: other entries, or their order\n"
    ]
    assert (tmp_path / FILE).read_text() == "== three\na\n== one\na\n"
