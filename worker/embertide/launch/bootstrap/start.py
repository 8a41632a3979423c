"""What a laptop's run and a pod's attempt have in common: plan, check, order, launch.

Both are called inside ``fork_server(*preloads(...))``. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import psutil

from embertide.errors import GridError
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.launch.bootstrap.fork_server import call, call_alone
from embertide.launch.bootstrap.launcher import launch
from embertide.launch.failure import Cause
from embertide.launch.run_folder import RunFolder
from embertide.launch.scratch import check_scratch
from embertide.launch.settings import Rendezvous, WorkerSettings
from embertide.launch.stage_reporter import StageReporter
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob

if TYPE_CHECKING:
    from embertide.engine.planning.inputs import Inputs
    from embertide.io.storage.protocol import Storage

_FIRST_BYTES = 256 << 20
"""Bytes that the disk reads while the workers' process imports: more would not be there yet."""


def prepare(
    folder: RunFolder,
    job: EmbeddingJob,
    storage: Storage,
    *,
    version: str,
    grid: GridShape | None,
    workers: int | None = None,
    tables: Mapping[str, int] | None = None,
    container: int | None = None,
    workers_here: int | None = None,
    began: float,
    on_progress: OnProgress,
    on_planned: Callable[[Estimate], None],
    on_listed: Callable[[Inputs], None] = lambda _inputs: None,
) -> Estimate:
    """List the inputs, choose the grid, see that the output can be published to, write the order.

    Args:
        grid: the manifest's by default, else one chosen for ``workers``.
        tables: versions of tables to read, by their fields in ``spec.input``; of others the one
            that the job asks for.
        container: bytes of each worker's container; None: unknown, or no container.
        workers_here: how many of the workers are on this host, share its scratch folder and can
            read each other's tensors in place; None: all.
        began: when the command or the attempt began, in seconds since the epoch.
        on_progress: may be called from another thread.
        on_listed: called once the inputs are listed; may end it by raising.
        on_planned: called before anything is written; may refuse by raising.

    Raises:
        Confirmed: the current version is what the run would compute.
        EmbertideError: inputs or model cannot be read, the grid does not fit, a worker would need
            more than the job's ``workers.memory`` or its GPU has, the folder for tensors on disk is
            unfit, or nothing could be published to the output.
    """
    from embertide.engine.planning.base_version import confirm_unchanged
    from embertide.engine.planning.inputs import list_inputs
    from embertide.engine.planning.order import WorkOrder
    from embertide.engine.planning.room import make_room
    from embertide.engine.planning.sizes import check_sizes
    from embertide.io.storage.reading_ahead import begin_to_read
    from embertide.io.versions.layers.sweeping import give_back
    from embertide.io.versions.pointer import found
    from embertide.io.versions.probe import check_output

    follows = found(storage, job.spec.published_uri)
    inputs = list_inputs(storage, job, tables)
    on_progress(Progress("plan", message=f"{len(inputs.objects())} input objects"))
    check_sizes(storage, job, inputs, lambda text: on_progress(Progress("plan", message=text)))
    if change := confirm_unchanged(storage, job, inputs):
        on_progress(Progress("plan", message=f"a version is computed: {change}"))
    on_listed(inputs)
    begin_to_read(first_read(inputs), _FIRST_BYTES)
    # Waits for the fork server's imports.
    with folder.following(on_progress):
        estimate = call(plan_run, job, inputs, grid, workers, folder, container, workers_here)
    if estimate.problem:
        raise GridError(estimate.problem)
    check_scratch(job, estimate, workers_here or estimate.grid.workers)
    on_planned(estimate)
    no_room = make_room(storage, job, inputs, estimate, version) or estimate.unkept
    output = job.spec.output.uri
    with storage.making_room(output, partial(give_back, storage, output, version)):
        check_output(storage, job.spec.published_uri, version)
    folder.write_order(
        WorkOrder(
            inputs,
            version,
            estimate.peak_memory_per_worker_bytes,
            estimate.memory_per_worker_bytes,
            estimate.traffic,
            began,
            estimate.model_digest,
            [layer.layer for layer in estimate.layers if layer.kept and not no_room],
            estimate.panel,
            estimate.parts_bytes,
            bool(estimate.spill and estimate.spill.graph),
            estimate.budget.sentence if estimate.budget else "",
            follows,
            no_room,
        )
    )
    folder.write_job(job)
    return estimate


def first_read(inputs: Inputs) -> list[str]:
    """The objects that a run reads first: features, and the ids beside them."""
    pairs = ((split.uri, split.ids_uri) for split in inputs.features)
    return list(dict.fromkeys(uri for pair in pairs for uri in pair if uri is not None))


def plan_run(
    job: EmbeddingJob,
    inputs: Inputs,
    grid: GridShape | None,
    workers: int | None,
    folder: RunFolder,
    container: int | None = None,
    workers_here: int | None = None,
) -> Estimate:
    """Choose the grid where it is left open, and estimate the run; retries go into ``folder``.

    Args:
        workers_here: as of :func:`prepare`. Workers in pods exchange rows, which takes more memory
            than reading them in place.

    Raises:
        EmbertideError: the model cannot be read, or the grid does not fit.
    """
    from embertide.engine.planning.device import free_device_bytes
    from embertide.engine.planning.estimate import choose_grid, estimate_within, may_read_in_place
    from embertide.engine.planning.matching import read_job_model
    from embertide.io.storage.opening import open_storage

    chosen = choose_grid(job, inputs, grid, workers)
    reporter = StageReporter(folder.append_progress, "plan")
    storage = open_storage(job.spec.storage, reporter.waits)
    in_place = workers_here in (None, chosen.workers) and may_read_in_place(job)
    program = read_job_model(storage, job, inputs).program()
    return estimate_within(
        program,
        job,
        inputs,
        chosen,
        in_place=in_place,
        container=container,
        device_bytes=free_device_bytes(job, workers_here or chosen.workers),
    )


def launch_workers(
    folder: RunFolder,
    settings: WorkerSettings,
    rendezvous: Rendezvous | None,
    on_progress: OnProgress,
) -> Cause | None:
    """Run this launcher's workers to their end; returns why they failed, if so.

    Args:
        rendezvous: with the other pods; None: all workers are on this machine.

    Raises:
        ProcessDied: the launcher itself was killed.
    """
    with folder.following(on_progress):
        return call_alone(launch, settings, rendezvous)


def interface_of(address: str) -> str:
    """The network interface that has an address, "" when none has."""
    for name, there in psutil.net_if_addrs().items():
        if any(found.address == address for found in there):
            return name
    return ""
