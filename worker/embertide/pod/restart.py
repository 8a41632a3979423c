"""What a container of a pod leaves for the next one, should Kubernetes start it again.

An attempt is run once: a container that is started again only repeats what the one before reported.
"""

from __future__ import annotations

from pathlib import Path

from embertide.errors import WorkerFailed
from embertide.pod.settings import WorkSettings
from embertide.spec.reports import Ending, WorkerStatus


def begun_path(scratch: Path) -> Path:
    """The status at the start of the attempt."""
    return scratch / "begun.json"


def ended_path(scratch: Path) -> Path:
    """The status at its end."""
    return scratch / "ended.json"


def earlier_status(scratch: Path, settings: WorkSettings) -> WorkerStatus | None:
    """What an earlier container of this pod reported of this attempt; None for the first one."""
    ended = _read(ended_path(scratch), settings)
    if ended is not None:
        return ended
    begun = _read(begun_path(scratch), settings)
    if begun is None:
        return None
    ending = Ending(
        reason="WorkerFailed",
        message=f"{settings.description}: its container exited without reporting an error during"
        " the attempt and was started again",
        exit_code=WorkerFailed.exit_code,
        rank=settings.rank,
    )
    return begun.model_copy(update={"state": "failed", "failure": ending})


def _read(path: Path, settings: WorkSettings) -> WorkerStatus | None:
    if not path.exists():
        return None
    status = WorkerStatus.model_validate_json(path.read_text())
    ours = (status.job_uid, status.attempt) == (settings.job_uid, settings.attempt)
    return status if ours else None
