"""Control characters of ids and names reach no terminal, and change no other line."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from embertide.cli.drawing import visible
from embertide.cli.errors import error_exit
from embertide.cli.neighbors import MetricName, print_neighbors
from embertide.errors import InputError
from embertide.io.versions.neighbors import Neighbor

SCREEN = "a\x1b[2Jb\x07\x9b1m\u202ec\rd"
SHOWN = "a\\x1b[2Jb\\x07\\x9b1m\\u202ec\\rd"


def test_control_characters_are_shown() -> None:
    assert visible(SCREEN) == SHOWN
    assert visible("é 中 🙂\n[b]") == "é 中 🙂\n[b]"


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), error_exit([]):
        raise InputError(f"s3://b/{SCREEN}: wrong\n  second line")
    assert capsys.readouterr().err == f"embertide: error: s3://b/{SHOWN}: wrong\n  second line\n"


def test_neighbors() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120)
    print_neighbors(console, SCREEN, {"embeddings": [Neighbor(SCREEN, 1.0)]}, MetricName.COSINE)
    assert out.getvalue().count(SHOWN) == 2
    assert not set(out.getvalue()) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
