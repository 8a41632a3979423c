"""The container that looks once whether a job's inputs are ready.

It ends after one look, so that nothing of a job that waits stays in the cluster; the operator
decides when the next one looks. It imports neither torch nor the pipeline.
"""

from __future__ import annotations

import logging

from embertide.launch.signals import StopRequest
from embertide.pod.once import answer_once
from embertide.pod.settings import ContainerFiles
from embertide.spec.reports import InputsReport

_log = logging.getLogger("embertide.pod")


def look(stop: StopRequest) -> int:
    """Leave an InputsReport, or an Ending, as the termination message; returns the exit code."""
    return answer_once(stop, make_report)


def make_report(files: ContainerFiles) -> InputsReport:
    """Look at every input that the job waits for.

    Raises:
        EmbertideError: a store refuses or does not answer, or the manifest is wrong.
    """
    from embertide.engine.planning.readiness import missing_inputs
    from embertide.io.storage.opening import open_storage

    job = files.read_job()
    files.make_temporary()
    return InputsReport.of(missing_inputs(open_storage(job.spec.storage, _log.warning), job))
