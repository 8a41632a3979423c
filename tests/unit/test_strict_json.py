"""What is written as JSON is JSON: numbers that it has none for are strings."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from embertide.cli.progress_view import write_json
from embertide.facts.telemetry.strict_json import json_text
from embertide.io.storage.opening import open_storage
from embertide.io.versions.manifest import write_manifest


def parsed(text: str) -> Any:
    """As a strict reader has it."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


VALUES = {"a": [1.5, float("nan")], "b": {"c": (float("inf"), -float("inf"))}, "d": None, "e": "é"}
PLAIN = {"a": [1.5, "NaN"], "b": {"c": ["Infinity", "-Infinity"]}, "d": None, "e": "é"}


def test_numbers_that_are_not_finite_are_strings() -> None:
    assert parsed(json_text(VALUES)) == PLAIN
    assert [float(name) for name in PLAIN["b"]["c"]] == list(VALUES["b"]["c"])  # type: ignore


def test_the_command_line_writes_json() -> None:
    out = io.StringIO()
    write_json(out, {"event": "check", "largestDifference": float("inf")})
    assert parsed(out.getvalue())["largestDifference"] == "Infinity"


def test_a_versions_manifest_is_json(tmp_path: Path) -> None:
    storage = open_storage(None)
    write_manifest(storage, f"file://{tmp_path}", "20260101T000000Z-000000", VALUES)
    (written,) = tmp_path.rglob("*.json")
    assert parsed(written.read_text()) == PLAIN


def test_what_cannot_be_written_at_all_is_an_error() -> None:
    with pytest.raises(TypeError):
        json_text({"a": object()})
