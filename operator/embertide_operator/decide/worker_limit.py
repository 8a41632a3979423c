"""The most workers that a job may have on this operator."""

from __future__ import annotations

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.settings import Settings
from embertide_operator.job.failures import Failure

TOO_MANY = "TooManyWorkers"
"""Reason of ``Accepted=False``, and of the failure of a job whose plan takes too many."""


def too_many_workers(job: EmbeddingJob, settings: Settings) -> str:
    """Why a job that asks for so many workers cannot start; "" where it can.

    It is asked before an attempt only, so that a lower limit stops no workers that run.
    """
    workers = job.spec.workers
    fixed = isinstance(workers.grid, GridShape)
    asked = workers.grid.workers if isinstance(workers.grid, GridShape) else workers.count
    if asked is None or not _is_over(asked, settings):
        return ""
    field = "grid" if fixed else "count"
    return f"spec.workers.{field}: asks for {asked} workers; {_allowed(settings)}"


def planned_too_many(grid: GridShape, settings: Settings) -> Failure | None:
    """The failure of a job whose plan takes more workers than it may have."""
    if not _is_over(grid.workers, settings):
        return None
    most, _ = settings.most_workers
    message = (
        f"the plan takes {grid.workers} workers (grid {grid}); {_allowed(settings)}. Set"
        f" spec.workers.count to at most {most}, which gives each worker more memory"
    )
    return Failure(TOO_MANY, message, retryable=False)


def _is_over(workers: int, settings: Settings) -> bool:
    most, _ = settings.most_workers
    return bool(most and workers > most)


def _allowed(settings: Settings) -> str:
    most, value = settings.most_workers
    return f"a job has at most {most} ({value} of the operator's chart)"
