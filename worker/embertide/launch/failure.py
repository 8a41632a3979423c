"""Why a run ended: what failing workers write down, and what is made of it afterwards.

One dead worker takes the others down with broken connections, within milliseconds and in any
order, so the first to report is seldom the first to fail. Every worker that can still speak
leaves a word in the run's folder: its own error, or that it lost a peer. The launcher knows how
processes ended. Together they tell the cause.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embertide.errors import EmbertideError, WorkerFailed
from embertide.spec.grid import GridShape

_MEMORY_WORDS = ("can't allocate memory", "out of memory", "MemoryError")
_TAIL_LINES = 5
_CRASH, _CRASH_LINES = "Fatal Python error", 4


@dataclass(frozen=True)
class Exit:
    """How a worker process ended; a negative ``exit_code`` is the signal that killed it.

    ``local`` is its number among its launcher's workers.
    """

    rank: int
    exit_code: int
    local: int


@dataclass(frozen=True)
class Cause:
    """Why a run failed.

    Attributes:
        rank: whose failure it is.
        peer: only that another worker was lost, which some other launcher knows more about.
        internal: an exception that is no message for users; the log has its traceback.
        silent: the worker died without a word, killed by the system or somebody.
    """

    error: EmbertideError
    rank: int
    peer: bool = False
    internal: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Workers:
    """Where the workers of one run leave their words, and the P x M grid they form."""

    folder: Path
    grid: GridShape


def leave_word(folder: Path, rank: int, error: Exception, *, peer: bool) -> None:
    """Write down a worker's error; ``peer`` says that it is only that another worker is gone."""
    word = {
        "rank": rank,
        "time": time.time(),
        "peer": peer,
        "error": error.to_json() if isinstance(error, EmbertideError) else None,
        "message": f"{type(error).__name__}: {error}",
    }
    path = folder / f"error-{rank}.json"
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(word))
    draft.replace(path)


def first_cause(workers: Workers, exits: Iterable[Exit], stage: str) -> Cause | None:
    """The error that started it: a worker's own word, else the worker that died silently.

    None when nobody said anything and nobody died.

    Args:
        exits: of the workers that the launcher saw fail.
        stage: what the run was doing, "" while it started.
    """
    words: list[dict[str, Any]] = [
        json.loads(path.read_text()) for path in workers.folder.glob("error-*.json")
    ]
    words.sort(key=lambda word: float(word["time"]))
    own = [word for word in words if not word["peer"]]
    for word in own:
        if word["error"] is not None:
            return Cause(EmbertideError.from_json(word["error"]), word["rank"])
    when = f"during {stage}" if stage else "while it started"
    if own:
        text = f"{workers.grid.describe(own[0]['rank'])} failed {when}: {_unknown(own[0])}"
        return Cause(WorkerFailed(text), own[0]["rank"], internal=True)
    spoke = {word["rank"] for word in words}
    for ended in exits:
        if ended.rank not in spoke:
            text = f"{workers.grid.describe(ended.rank)} {_died(workers, ended, when)}"
            return Cause(WorkerFailed(text), ended.rank, silent=True)
    if not words:
        return None
    rank, why = words[0]["rank"], words[0]["message"]
    text = f"{workers.grid.describe(rank)} lost the connection to another worker {when}: {why}"
    return Cause(WorkerFailed(text), rank, peer=True)


def _unknown(word: dict[str, Any]) -> str:
    message = str(word["message"]).splitlines()[0]
    if any(hint in message for hint in _MEMORY_WORDS):
        return f"{message}. Use more workers, or machines with more memory"
    return f"{message}. EMBERTIDE_DEBUG=1 shows where"


def _died(workers: Workers, ended: Exit, when: str) -> str:
    if ended.exit_code >= 0:
        text = f"ended with exit code {ended.exit_code} {when}"
    else:
        text = f"was killed by {signal.Signals(-ended.exit_code).name} {when}"
    if ended.exit_code == -signal.SIGKILL:
        return f"{text}; if that was the system running out of memory, use more workers"
    last = _last_words(workers.folder, ended.local)
    return f"{text}; its last words:\n{last}" if last else text


def _last_words(folder: Path, local: int) -> str:
    """The end of what the process wrote, such as a native library's last message.

    After a crash, Python writes where it was: the innermost call first, then all that led there.
    """
    lines = [line for line in log_lines(folder, local) if line.strip()]
    crashes = [at for at, line in enumerate(lines) if line.startswith(_CRASH)]
    end = crashes[0] + _CRASH_LINES if crashes else len(lines)
    return "\n".join(f"  {line}" for line in lines[max(0, end - _TAIL_LINES) : end])


def log_path(folder: Path, local: int) -> Path:
    """Where a launcher's worker writes what libraries print."""
    return folder / "logs" / f"{local}.log"


def log_lines(folder: Path, local: int) -> list[str]:
    """What a launcher's worker wrote there."""
    path = log_path(folder, local)
    return path.read_text(errors="replace").splitlines() if path.exists() else []
