"""The container that pushes a job's version into the index of ``spec.push``, and ends.

It imports neither torch nor the pipeline. Where it ends early, the next one goes on with the part
that this one was at.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from embertide.errors import ManifestError
from embertide.launch.signals import StopRequest
from embertide.pod.once import answer_once
from embertide.pod.settings import ContainerFiles
from embertide.spec import naming
from embertide.spec.reports import PushReport
from embertide.spec.run_status import MAX_ENTRIES

if TYPE_CHECKING:
    from embertide.edge.indexes.push.push import Pushed

_LOG_SECONDS = 10.0
"""How often the rows that are in the index are logged."""
_LONGEST = 1000

_log = logging.getLogger("embertide.pod")


def push(stop: StopRequest) -> int:
    """Leave a PushReport, or an Ending, as the termination message; returns the exit code."""
    return answer_once(stop, make_report)


def make_report(files: ContainerFiles) -> PushReport:
    """Push the current version; only the one that the environment names, where it names one.

    Raises:
        EmbertideError: see :func:`embertide.edge.indexes.push.push.push`.
    """
    from embertide.edge.indexes.push.configured import push_current
    from embertide.edge.indexes.push.protocol import Overtaken
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.catalog import latest

    job = files.read_job()
    if job.spec.push is None:
        raise ManifestError([("spec.push", "is not set; nothing can be pushed")], "the job")
    files.make_temporary()
    storage, output = open_storage(job.spec.storage, _log.warning), job.spec.published_uri
    expected = os.environ.get(naming.ENV_VERSION, "")
    current = latest(storage, output).version
    if expected not in ("", current):
        return PushReport(current=current)
    try:
        return _report(push_current(storage, job, _logging()))
    except Overtaken:
        current = latest(storage, output).version
        if expected not in ("", current):
            return PushReport(current=current)
        raise


def _logging() -> Callable[[int, int], None]:
    """Logs how far the push is, now and then."""
    last = time.monotonic()

    def on_rows(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LOG_SECONDS:
            last = time.monotonic()
            _log.info("%d of %d rows are in the index", done, total)

    return on_rows


def _report(done: Pushed) -> PushReport:
    kept = ", ".join(done.kept)
    return PushReport(
        version=done.version,
        rows=sum(table.rows for table in done.tables),
        names=[table.alias for table in done.tables][:MAX_ENTRIES],
        seconds=round(done.seconds, 3),
        not_dropped=kept[:_LONGEST] or None,
    )
