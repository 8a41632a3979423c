"""The planner's container: which grid, how much memory, before any worker is asked for."""

from __future__ import annotations

import logging
import os
import threading
import time

from embertide.launch.signals import StopRequest
from embertide.planning.sizing import container_bytes
from embertide.pod.endings import ending_of, write_termination_message
from embertide.pod.logs import log_to_stderr
from embertide.pod.memory import human_bytes
from embertide.pod.settings import ContainerFiles, read_target_memory
from embertide.spec.reports import PlanResult

TARGET_BYTES = 8 << 30
"""What the work of one worker may take where the grid is the planner's choice."""

_TICK_SECONDS = 0.1
_STOPPED = 143

_log = logging.getLogger("embertide.pod")


def plan(stop: StopRequest) -> int:
    """Leave a PlanResult, or an Ending, as the termination message; returns the exit code."""
    log_to_stderr()
    files = ContainerFiles.of(os.environ)
    found: list[tuple[str, int]] = []

    def answer() -> None:
        try:
            result = make_plan(files)
        except BaseException as error:
            ending = ending_of(error)
            _log.error("failed: %s: %s", ending.reason, ending.message)
            found.append((ending.to_text(), ending.exit_code))
        else:
            _log.info("planned: %s", result.to_text())
            found.append((result.to_text(), 0))

    # In a thread, so that a signal is answered while a library is busy.
    thread = threading.Thread(target=answer, name="plan", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.asked:
        thread.join(_TICK_SECONDS)
    if not found:
        return _STOPPED
    message, code = found[0]
    write_termination_message(files.termination_log, message)
    return code


def make_plan(files: ContainerFiles) -> PlanResult:
    """List the inputs, choose the grid, estimate.

    Raises:
        EmbertideError: the inputs or the model cannot be read, or the grid does not fit.
    """
    target = read_target_memory(os.environ, TARGET_BYTES)
    job = files.read_job()
    files.make_temporary()
    from embertide.planning.inputs import list_inputs
    from embertide.storage.opening import open_storage

    began = time.monotonic()
    storage = open_storage(job.spec.storage, _log.warning)
    inputs = list_inputs(storage, job)
    _log.info("listed %d objects in %.1f s", len(inputs.objects()), time.monotonic() - began)
    # Last, since this imports torch.
    from embertide.planning.estimate import estimate, fitting_grid

    grid = fitting_grid(storage, job, inputs, target)
    found = estimate(storage, job, inputs, grid)
    memory = container_bytes(found.peak_memory_per_worker_bytes)
    _log.info("grid %s, %s for each worker", grid, human_bytes(memory))
    return PlanResult(
        grid=grid,
        memory_per_worker_bytes=memory,
        bytes_exchanged=found.traffic_total_bytes,
        nodes=found.nodes,
        edges=found.edges,
    )
