"""The trace of a run on one machine, sent once the run is over, however it ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from embertide.errors import Interrupted
from embertide.facts.report.otlp.send import asked, send
from embertide.facts.report.otlp.tree import Failure, Node, TracedRun, of_failure, of_report
from embertide.launch.failure import Cause
from embertide.launch.run_folder import RunFolder
from embertide.launch.signals import Stopped
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob

SNAPSHOT_SECONDS = 2.0
"""How often a worker writes down what it has done, from which a failed run's trace is made."""


@dataclass
class Noted:
    """What is known of a run on one machine while it runs.

    Attributes:
        confirmed: whether it computed nothing, of which there is no trace.
    """

    grid: GridShape | None = None
    cause: Cause | None = None
    confirmed: bool = False


def snapshot_period() -> float:
    """Seconds between two snapshots of a worker on this machine; 0 where nothing needs them."""
    return SNAPSHOT_SECONDS if asked() else 0.0


@contextmanager
def traced(folder: RunFolder, job: EmbeddingJob, version: str, began: float) -> Iterator[Noted]:
    """Send the trace of the run in the block, if the environment asks for it.

    Args:
        began: when the command began, in seconds since the epoch.
    """
    run = TracedRun(
        job=job.metadata.name,
        version=version,
        output=job.spec.published_uri,
        began=began,
        key=f"{version}/{secrets.token_hex(16)}",
    )
    noted = Noted()
    try:
        yield noted
    except BaseException as error:
        failure = _failure(error, noted)
        send(lambda: _failed(folder, replace(run, grid=noted.grid), failure), run.key)
        raise
    if noted.confirmed:
        return
    # Nothing is taken back by stopping now: the version is published.
    with suppress(Stopped):
        send(lambda: _published(folder, replace(run, grid=noted.grid)), run.key)


def _published(folder: RunFolder, run: TracedRun) -> Node:
    report = folder.read_report()
    assert report is not None
    return of_report(run, report, time.time())


def _failed(folder: RunFolder, run: TracedRun, failure: Failure) -> Node:
    ranks = range(run.grid.workers if run.grid is not None else 0)
    snapshots = [folder.read_snapshot(rank) for rank in ranks]
    return of_failure(run, [item for item in snapshots if item is not None], failure)


def _failure(error: BaseException, noted: Noted) -> Failure:
    """What the trace says of an error; its reason is the one that a job's status would have."""
    if isinstance(error, Stopped):
        error = error.interrupted
    return Failure(
        outcome="stopped" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed",
        reason=type(error).__name__.removesuffix("Error"),
        message=str(error),
        at=time.time(),
        rank=noted.cause.rank if noted.cause is not None else None,
    )
