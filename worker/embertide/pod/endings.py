"""From whatever ended a container to an Ending, and to where Kubernetes looks for it."""

from __future__ import annotations

import logging
from pathlib import Path

from embertide.errors import EmbertideError, ProcessDied, WorkerFailed
from embertide.launch.failure import Cause
from embertide.pod.logs import last_lines
from embertide.pod.memory import human_bytes
from embertide.pod.redact import redact
from embertide.pod.settings import WorkSettings
from embertide.spec.reports import Ending

INTERNAL = "Internal"
OUT_OF_MEMORY = "OutOfMemory"

_log = logging.getLogger("embertide.pod")


class AttemptFailed(Exception):
    """The worker process failed, or the others could not be met; says what is known of it."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(str(cause.error))
        self.cause = cause


def ending_of(error: BaseException, rank: int | None = None) -> Ending:
    """What to report of an exception; one that is no message for users goes to the log whole."""
    if isinstance(error, AttemptFailed):
        cause = error.cause
        if cause.memory:
            code = WorkerFailed.exit_code
            return Ending(reason=OUT_OF_MEMORY, message=str(error), exit_code=code, rank=cause.rank)
        if cause.internal:
            return Ending(reason=INTERNAL, message=str(error), exit_code=1, rank=cause.rank)
        return _described(cause.error, cause.rank, peer=cause.peer)
    if isinstance(error, EmbertideError):
        return _described(error, rank)
    _log.error("unexpected", exc_info=error)
    message = f"{type(error).__name__}: {error}"
    return Ending(reason=INTERNAL, message=message, exit_code=1, rank=rank)


def _described(error: EmbertideError, rank: int | None, *, peer: bool = False) -> Ending:
    return Ending(
        reason=type(error).__name__.removesuffix("Error"),
        message=str(error),
        exit_code=error.exit_code,
        rank=rank,
        permanent=error.permanent,
        peer=peer,
    )


def explains_itself(error: BaseException) -> bool:
    """Whether an error names its cause; not where a process was killed or met a broken pipe.

    The kernel kills one process of a container that has no memory left, seldom the one that
    reports it: such as the fork server, whose end is an EOFError to the process that asks it.
    """
    if isinstance(error, AttemptFailed):
        return not (error.cause.silent or error.cause.internal)
    return isinstance(error, EmbertideError) and not isinstance(error, ProcessDied)


def out_of_memory(settings: WorkSettings, stage: str, used: int | None) -> Ending:
    """The system killed a process because the container had no memory left.

    Args:
        used: the most bytes that the container has used; None where that is not known.
    """
    when = f"during {stage}" if stage else "while it started"
    return Ending(
        reason=OUT_OF_MEMORY,
        message=f"{settings.description} ran out of memory {when}:"
        f" {_memory_of(settings.memory_limit, used)}; use more workers or raise"
        " spec.workers.resources.limits.memory",
        exit_code=WorkerFailed.exit_code,
        rank=settings.rank,
    )


def _memory_of(limit: int | None, used: int | None) -> str:
    may = f"its memory limit is {human_bytes(limit)}" if limit else "its container has a limit"
    return f"its container used {human_bytes(used)}, {may}" if used else may


def write_ending(path: Path, ending: Ending) -> None:
    """Leave an Ending as the termination message, with the last lines of the log."""
    write_termination_message(path, ending.model_copy(update={"log": last_lines()}).to_text())


def write_termination_message(path: Path, text: str) -> None:
    """Kubernetes reads it when the container has ended; outside of it there is no such file."""
    try:
        path.write_text(redact(text))
    except OSError as error:
        _log.warning("no termination message was left at %s: %s", path, error.strerror)
