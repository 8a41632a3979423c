"""The last lines of a container that failed: what it leaves, and what the status keeps of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from embertide.pod import logs
from embertide.pod.endings import write_ending
from embertide.pod.redact import redact
from embertide.spec.naming import ENV_CREDENTIALS_FOLDER, ENV_STORES_FOLDER
from embertide.spec.reports import Ending
from tests.support.decisions import lived

CRASH = Ending(reason="Internal", message="KeyError: 7", exit_code=1, rank=1)
LINES = [f"2026-11-21T12:00:{i:02}Z INFO line {i}" for i in range(60)]
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=="


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A container's log; its handlers are removed again."""
    found = logging.getLogger("embertide")
    before, propagate, level = list(found.handlers), found.propagate, found.level
    logs.log_to_stderr()
    logs._last.clear()
    yield found
    found.handlers[:], found.propagate = before, propagate
    found.setLevel(level)


def test_an_ending_has_the_last_lines(log: logging.Logger, tmp_path: Path) -> None:
    for i in range(60):
        log.info("line %d", i)
    try:
        raise KeyError(7)
    except KeyError:
        log.exception("unexpected")
    write_ending(tmp_path / "log", CRASH)
    left = Ending.parse((tmp_path / "log").read_text())
    assert left is not None
    lines = left.log.splitlines()
    assert len(lines) == 40
    assert lines[0].endswith("INFO line 25")
    assert lines[-1] == "KeyError: 7"
    assert lines[-4] == "Traceback (most recent call last):"


@pytest.mark.parametrize("letter", ["x", "é", "𝕏", '"'])
def test_the_oldest_lines_give_way_before_the_message(letter: str) -> None:
    log = "\n".join(f"{i} {letter * 300}" for i in range(40))
    text = CRASH.model_copy(update={"log": log}).to_text()
    assert len(text.encode()) <= 4000
    left = Ending.parse(text)
    assert left is not None
    assert left.message == CRASH.message
    assert left.log
    assert log.endswith(left.log)


def test_credentials_are_taken_out(
    log: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(SECRET + "\n")
    monkeypatch.setenv(ENV_CREDENTIALS_FOLDER, str(tmp_path))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-a-session")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "short")
    log.error("signed with %s and token-of-a-session, short", SECRET)
    message = f"the store says {SECRET}"
    write_ending(tmp_path / "log", CRASH.model_copy(update={"message": message}))
    text = (tmp_path / "log").read_text()
    assert json.loads(text)["message"] == "the store says [redacted]"
    assert logs.last_lines().endswith("signed with [redacted] and [redacted], short")
    assert SECRET not in text


def test_credentials_of_each_store_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "AWS_SECRET_ACCESS_KEY").write_text(SECRET + "\n")
    assert redact(f"with {SECRET}", {ENV_STORES_FOLDER: str(tmp_path)}) == "with [redacted]"


def test_without_credentials_nothing_changes(tmp_path: Path) -> None:
    assert redact("as it is", {ENV_CREDENTIALS_FOLDER: str(tmp_path)}) == "as it is"


@pytest.mark.parametrize("line", ["{i}", "{i} " + "é" * 200])
def test_the_status_keeps_the_last_lines_within_bounds(line: str) -> None:
    lines = [line.replace("{i}", str(i)) for i in range(60)]
    ended = {"exit": {"exitCode": 2, "message": "\n".join(lines)}}
    kept = lived("created", {"pods": ["running", ended]}, backoffLimit=0).status["failureLog"]
    assert len(kept.encode()) <= 4096
    assert kept.splitlines() == lines[-len(kept.splitlines()) :]
    assert len(kept.splitlines()) == (40 if line == "{i}" else 10)
