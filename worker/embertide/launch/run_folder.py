"""The folder through which a launcher and its workers talk; nothing else passes between them.

job.json, order.json    what to do
progress.jsonl          how far the run is, from rank 0, or from the one worker of a pod
report.json             what was published, from rank 0, once every worker is done
metrics-<rank>.json     how a worker is doing, where somebody wants to know
error-<rank>.json       why a worker failed (``postmortem.py``)
logs/                   what libraries printed in the workers
delivered-<rank>        the worker's part is written and may become visible from here on
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embertide.errors import OutputError
from embertide.telemetry.progress import OnProgress, Progress

POLL_SECONDS = 0.1


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        OutputError: no space, or not allowed.
    """
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; free space there, or set TMPDIR to"
            " another folder"
        ) from error


def metrics_path(folder: Path, rank: int) -> Path:
    """Where a worker says how it is doing."""
    return folder / f"metrics-{rank}.json"


def delivered_path(folder: Path, rank: int) -> Path:
    """What is there once a worker's part may become visible."""
    return folder / f"delivered-{rank}"


def last_stage(folder: Path) -> str:
    """What the run was doing last, "" before it did anything."""
    path = folder / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return str(json.loads(lines[-1])["stage"]) if lines else ""


@contextmanager
def repeating(act: Callable[[], None], period_seconds: float) -> Iterator[None]:
    """Call ``act`` from a thread every so often, and once more at the end."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(period_seconds):
            act()
        act()

    thread = threading.Thread(target=repeat, name=act.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def following(path: Path, on_progress: OnProgress) -> Iterator[None]:
    """Pass on what a worker appends to its progress file, from a thread."""
    at = 0

    def follow() -> None:
        nonlocal at
        at = _pass_on(path, at, on_progress)

    with repeating(follow, POLL_SECONDS):
        yield


def _pass_on(path: Path, at: int, on_progress: OnProgress) -> int:
    """Report complete lines from byte ``at``; returns where to go on."""
    if not path.exists():
        return at
    with path.open("rb") as file:
        file.seek(at)
        text = file.read()
    complete = text[: text.rfind(b"\n") + 1]
    for line in complete.splitlines():
        fields: dict[str, Any] = json.loads(line)
        on_progress(Progress(**fields))
    return at + len(complete)
