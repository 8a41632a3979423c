"""The cover has every signature that a case of the catalogue has (``python -m tools.cover``)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from embertide.models.dgl_interop import why_no_dgl
from embertide.program.steps import Program
from tests.support.catalogue import catalogue
from tests.support.cover import FILE, is_typed, lines_of, needs_dgl, read_cover
from tests.support.hetero_programs import typed_catalogue
from tests.support.signatures import cover, signatures


def _models() -> dict[str, Program]:
    return {name: case.program for name, case in catalogue().items()}


@pytest.mark.parametrize("typed", [False, True], ids=["models", "types"])
def test_every_signature_has_a_case_in_the_cover(typed: bool) -> None:
    programs: Mapping[str, Program] = typed_catalogue() if typed else _models()
    chosen = {
        name: added
        for name, added in read_cover().items()
        if is_typed(name) == typed and not (why_no_dgl() and needs_dgl(name))
    }
    gone = sorted(chosen.keys() - programs.keys())
    assert not gone, f"tests/cover.txt has cases that the catalogue does not have: {gone}"
    found = {name: signatures(program) for name, program in programs.items()}
    stale = {n: sorted(added - found[n]) for n, added in chosen.items() if added - found[n]}
    assert not stale, "these cases no longer do what tests/cover.txt has: run python -m tools.cover"
    covered = set[str]().union(*(found[name] for name in chosen))
    left = {text: name for name, own in found.items() for text in own - covered}
    assert not left, f"no case of tests/cover.txt does this: run python -m tools.cover ({left})"


def test_the_cover_is_small_and_shows_what_each_case_adds() -> None:
    cases = {"a": {"1", "2", "3"}, "b": {"3", "4"}, "c": {"4", "5"}, "d": {"1", "2", "3"}}
    chosen = cover(cases, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 2.0})
    assert chosen == {"a": {"1", "2", "3"}, "c": {"4", "5"}}
    # The largest is chosen first, and is left out where smaller ones have it all.
    cases = {"all": {"1", "2", "3", "4"}, "left": {"1", "2", "5"}, "right": {"2", "3", "4", "6"}}
    chosen = cover(cases, {"all": 1.0, "left": 1.5, "right": 1.5})
    assert chosen == {"right": {"2", "3", "4", "6"}, "left": {"1", "5"}}


def test_the_file_is_read_as_it_is_written() -> None:
    assert "".join(lines_of(read_cover())) == FILE.read_text(encoding="utf-8")
