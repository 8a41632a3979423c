"""``embertide plan``: what a job would take, before anything runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from embertide.cli.options import (
    GridOption,
    JobArgument,
    JsonOption,
    WorkersOption,
    check_workers,
    grid_of,
    load_job,
    with_workers,
)


def plan(
    job_path: JobArgument,
    grid: GridOption = None,
    workers: WorkersOption = None,
    files: Annotated[bool, typer.Option("--files", help="List every input object.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show what a job will read, hold in memory and send, without running it.

    Looks at the inputs' sizes and metadata only, which takes seconds. Try several grids before
    a long run: graph partitions split the nodes among workers, feature partitions the columns.

    [bold]Examples[/bold]

      embertide plan job.yaml
      embertide plan job.yaml --grid 4x2
      embertide plan job.yaml --workers 8 --json
    """
    chosen = grid_of(grid)
    check_workers(chosen, workers)
    job = load_job(job_path)
    if grid == "auto":
        job = with_workers(job, grid="auto")

    from embertide.planning.estimate import estimate_job

    estimate = estimate_job(job, grid=chosen, workers=workers)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, estimate.to_json())
        return

    from rich.console import Console

    from embertide.cli.tables import print_estimate

    print_estimate(Console(), estimate, files)
