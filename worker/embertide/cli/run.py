"""``embertide run``: the job, start to end, on this machine."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.ids import IdsFromOption, IdsOption, chosen_nodes
from embertide.cli.options import (
    AtOption,
    GpuMemoryOption,
    GridOption,
    JobArgument,
    JsonOption,
    MemoryOption,
    NodeTypeOption,
    ScratchOption,
    TimeZoneOption,
    WorkersOption,
    check_workers,
    grid_of,
    load_job,
    process_began,
    with_device,
    with_memory,
    with_workers,
)
from embertide.errors import EmbertideError, VersionHeld, VersionPassed

if TYPE_CHECKING:
    from embertide.facts.telemetry.report import RunReport
    from embertide.spec.manifest import EmbeddingJob

_HELD = (
    "{version} is complete but held: {why}. Readers keep the version before; embertide release"
    " makes it current, embertide discard removes it"
)
_PASSED = (
    "{version} is complete but not current: {why}. embertide versions lists both, embertide"
    " rollback switches"
)
_NOT_PUSHED = (
    "{version} is published, but the index of spec.push does not have it: {why}. embertide push"
    " tries again"
)


class Device(StrEnum):
    """Where the workers compute."""

    CPU = "cpu"
    CUDA = "cuda"


def run(
    job_path: JobArgument,
    grid: GridOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    gpu_memory: GpuMemoryOption = None,
    scratch: ScratchOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Computing threads of each worker. Default: the machine's cores, shared out.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option(
            help="Where the workers compute. Overrides the manifest.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compute a version also where the current one is up to date. Overrides the "
            "manifest.",
        ),
    ] = False,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Keep every layer below the output, so that after a failure the next run goes on "
            "there; or keep none, and use none. Overrides the manifest.",
            show_default=False,
        ),
    ] = None,
    ids: IdsOption = None,
    ids_from: IdsFromOption = None,
    node_type: NodeTypeOption = None,
    push: Annotated[
        bool,
        typer.Option(
            "--push/--no-push",
            help="Push the version into the index of the manifest's spec.push, where it has one.",
            show_default=False,
        ),
    ] = True,
    at: AtOption = None,
    time_zone: TimeZoneOption = "UTC",
    json_output: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")
    ] = False,
) -> None:
    """Compute the embeddings of all nodes and publish them as a new version.

    Reads the edges, features and model that JOB.yaml names, computes on a grid of worker
    processes on this machine, writes and verifies the result, and only then makes it visible.
    Whatever goes wrong, the previous version stays as it is. Where inputs, model and job are those
    of the current version, it is confirmed and nothing is computed.

    [bold]Examples[/bold]

      embertide run job.yaml
      embertide run job.yaml --grid 2x2
      embertide run job.yaml --workers 4 --threads 1
      embertide run job.yaml --memory 2GiB --scratch /mnt/nvme
      embertide run job.yaml --force   # though unchanged
      embertide run job.yaml --resume   # keeps each layer
      embertide run job.yaml --ids 17,42   # these alone
      embertide run job.yaml --at now   # fills {date-1d}
      embertide run job.yaml --json | tail -1   # the report

    Where spec.output.gate holds the version, the command ends with exit code 11: readers keep
    the previous one until `embertide release`. Where a run that began later has published by then,
    or someone has rolled back, that version stays current, and the exit code is 13.

    With --ids or --ids-from only what these nodes need is computed, and the version has their rows
    alone. It is published apart from those of all nodes, below the output in _targets.

    Where the manifest has an index (spec.push), the current version is pushed into it, as
    `embertide push JOB.yaml` does.

    Progress goes to stderr and the result to stdout. With --json both go to stdout, one JSON
    object a line: "event" is progress, report or error.
    """
    chosen = grid_of(grid)
    check_workers(chosen, workers)
    job = load_job(job_path, at, time_zone)
    if device is not None:
        job = with_device(job, device.value)
    job = with_memory(job, memory, gpu_memory)
    if grid == "auto":
        job = with_workers(job, grid="auto")
    if scratch is not None:
        job = with_workers(job, scratch=str(scratch.absolute()))

    job = chosen_nodes(job, ids, ids_from, node_type)
    if resume and job.spec.inference.targets is not None:
        raise typer.BadParameter("--resume keeps layers, of which a run of some nodes keeps none")
    if force:
        job = job.forced()
    if resume is not None:
        job = job.resuming("always" if resume else "never")

    from embertide.cli.progress_view import progress_view, write_json
    from embertide.launch.local import run_job

    if push and job.spec.push is not None:
        from embertide.edge.indexes.push.targets import require_client

        require_client(job.spec.push.uri)

    with progress_view(
        json_output=json_output, quiet=quiet, stdout=sys.stdout, stderr=sys.stderr
    ) as on_progress:
        report = run_job(
            job,
            grid=chosen,
            workers=workers,
            threads=threads,
            on_progress=on_progress,
            began=process_began(),
        )
    if json_output:
        write_json(sys.stdout, {"event": "report", **report.to_json()})
    else:
        from rich.console import Console

        from embertide.cli.tables import print_report

        print_report(Console(), report)
    if report.held:
        raise VersionHeld(_HELD.format(version=report.version, why="; ".join(report.held)))
    if not report.current:
        raise VersionPassed(_PASSED.format(version=report.version, why=report.not_current))
    if push and job.spec.push is not None:
        _push(job, report, json_output=json_output, quiet=quiet)


def _push(job: EmbeddingJob, report: RunReport, *, json_output: bool, quiet: bool) -> None:
    """Push the current version; what fails leaves it published.

    Raises:
        EmbertideError: of the push, which says that the version is published.
    """
    from embertide.cli.push import push_progress, show_pushed
    from embertide.edge.indexes.push.configured import push_current
    from embertide.io.storage.opening import open_storage

    try:
        with push_progress(shown=not (json_output or quiet)) as on_rows:
            done = push_current(open_storage(job.spec.storage), job, on_rows)
    except EmbertideError as error:
        raise type(error)(_NOT_PUSHED.format(version=report.version, why=error)) from error
    show_pushed(done, json_output=json_output)
