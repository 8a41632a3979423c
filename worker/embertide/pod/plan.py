"""The planner's container: which grid, how much memory, before any worker is asked for."""

from __future__ import annotations

import logging
import os
import time

from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.sizing import container_bytes, volume_bytes
from embertide.errors import GridError
from embertide.launch.signals import StopRequest
from embertide.pod.memory import human_bytes
from embertide.pod.once import answer_once
from embertide.pod.settings import ContainerFiles, read_container, read_target_memory
from embertide.pod.summary import output_report
from embertide.spec.reports import OutputReport, PlanResult
from embertide.spec.version_names import new_version

TARGET_BYTES = 8 << 30
"""What the work of one worker may take where the grid is the planner's choice."""

_log = logging.getLogger("embertide.pod")


def plan(stop: StopRequest) -> int:
    """Leave a PlanResult, the OutputReport of a version that is up to date, or an Ending, as the
    termination message; returns the exit code."""
    return answer_once(stop, make_plan)


def make_plan(files: ContainerFiles) -> PlanResult | OutputReport:
    """List the inputs, see that the output can be published to, choose the grid, estimate.

    Where the current version is what the job would compute, it is confirmed and no worker starts.

    Raises:
        EmbertideError: the inputs or the model cannot be read, nothing could be published, or the
            grid does not fit.
    """
    target, container = read_target_memory(os.environ, TARGET_BYTES), read_container(os.environ)
    job = files.read_job()
    files.make_temporary()
    from embertide.engine.planning.base_version import confirm_unchanged
    from embertide.engine.planning.inputs import list_inputs
    from embertide.engine.planning.sizes import check_sizes
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.probe import check_output

    began = time.monotonic()
    storage = open_storage(job.spec.storage, _log.warning)
    inputs = list_inputs(storage, job)
    _log.info("listed %d objects in %.1f s", len(inputs.objects()), time.monotonic() - began)
    check_sizes(storage, job, inputs, _log.warning)
    try:
        change = confirm_unchanged(storage, job, inputs)
    except Confirmed as confirmed:
        return output_report(confirmed.version, job, confirmed=True)
    _log.info("a version is computed: %s", change)
    check_output(storage, job.spec.published_uri, new_version())
    # Last, since this imports torch.
    from embertide.engine.planning.estimate import estimate_within, fitting_grid
    from embertide.engine.planning.matching import read_job_model

    program = read_job_model(storage, job, inputs).program()
    grid = fitting_grid(program, job, inputs, target)
    found = estimate_within(program, job, inputs, grid, container=container)
    if found.problem:
        raise GridError(found.problem)
    memory = container_bytes(found.peak_memory_per_worker_bytes)
    _log.info("grid %s, %s for each worker", grid, human_bytes(memory))
    for budget in found.budgets:
        _log.info("%s", budget.sentence)
    return PlanResult(
        grid=grid,
        memory_per_worker_bytes=memory,
        bytes_exchanged=found.traffic_total_bytes,
        nodes=found.nodes,
        edges=found.edges,
        scratch_bytes=volume_bytes(found.spill.disk_bytes) if found.spill else 0,
        tables={table.field: table.version for table in inputs.tables},
    )
