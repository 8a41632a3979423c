"""``embertide plan``: what a job would take, before anything runs."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
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
    TimeZoneOption,
    WorkersOption,
    check_workers,
    grid_of,
    load_job,
    process_began,
    with_memory,
    with_workers,
)

if TYPE_CHECKING:
    from embertide.errors import EmbertideError
    from embertide.facts.telemetry.estimate import Estimate
    from embertide.spec.manifest import EmbeddingJob


def plan(
    job_path: JobArgument,
    grid: GridOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    gpu_memory: GpuMemoryOption = None,
    files: Annotated[bool, typer.Option("--files", help="List every input object.")] = False,
    ids: IdsOption = None,
    ids_from: IdsFromOption = None,
    node_type: NodeTypeOption = None,
    at: AtOption = None,
    time_zone: TimeZoneOption = "UTC",
    json_output: JsonOption = False,
) -> None:
    """Show what a job needs: memory, time, bytes read, sent and written, without running it.

    Looks at the inputs' sizes and metadata, and whether the output can be written, which takes
    seconds and leaves nothing. Other grids are shown beside the chosen one: graph partitions
    split the nodes among workers, feature partitions the columns.

    [bold]Examples[/bold]

      embertide plan job.yaml
      embertide plan job.yaml --grid 4x2
      embertide plan job.yaml --workers 8 --json
      embertide plan job.yaml --memory 2GiB   # does it fit?
      embertide plan job.yaml --ids 17,42   # these alone
    """
    chosen = grid_of(grid)
    check_workers(chosen, workers)
    job = with_memory(load_job(job_path, at, time_zone), memory, gpu_memory)
    if grid == "auto":
        job = with_workers(job, grid="auto")
    job = chosen_nodes(job, ids, ids_from, node_type)

    from embertide.engine.planning.estimate import estimate_job

    start = time.time() - process_began()  # this far a run imports the same
    estimate = estimate_job(job, grid=chosen, workers=workers, start_seconds=start)
    problem = _output_problem(job)
    if problem is not None:
        estimate = replace(estimate, output_problem=str(problem))
    _show(estimate, files, json_output)
    if problem is not None:
        raise problem


def _output_problem(job: EmbeddingJob) -> EmbertideError | None:
    from embertide.io.storage.opening import open_storage
    from embertide.launch.output import output_problem

    return output_problem(open_storage(job.spec.storage), job.spec.published_uri)


def _show(estimate: Estimate, files: bool, json_output: bool) -> None:
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, estimate.to_json())
        return

    from rich.console import Console

    from embertide.cli.tables import print_estimate

    print_estimate(Console(), estimate, files)
