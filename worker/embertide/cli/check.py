"""``embertide check``: whether a description is that of the model that was trained."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from embertide.cli import leave_imports
from embertide.cli.options import (
    AtOption,
    JobArgument,
    JsonOption,
    NodeTypeOption,
    ResultOption,
    TimeZoneOption,
    load_job,
    location,
)


def check(
    job_path: JobArgument,
    against: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Parquet with ids and vectors that your own forward gave; a path or URI.",
            show_default=False,
        ),
    ],
    node_type: NodeTypeOption = None,
    result: ResultOption = None,
    id_column: Annotated[str, typer.Option(metavar="NAME", help="Its column of ids.")] = "id",
    vector_column: Annotated[
        str, typer.Option(metavar="NAME", help="Its column of vectors.")
    ] = "embedding",
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Largest difference that is agreement, as a share of the largest value. "
            "Default: the model's, 0.001.",
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option("--search/--no-search", help="Look for the cause of a difference."),
    ] = True,
    at: AtOption = None,
    time_zone: TimeZoneOption = "UTC",
    json_output: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")
    ] = False,
) -> None:
    """Compare the embeddings of some nodes with those of your own forward.

    Computes in this process with all neighbours and publishes nothing. Where they differ, the
    exit code is 4. With a model.yaml it then tries small changes, shows which makes them agree and
    names the first layer that can differ; with an exported model it tries changes of the manifest.
    docs/check.md shows how to write the reference.

    [bold]Examples[/bold]

      embertide check job.yaml --against reference.parquet
      embertide check job.yaml --against s3://b/ref.parquet
      embertide check job.yaml --against r.parquet --no-search
    """
    if tolerance is not None and not tolerance > 0:
        raise typer.BadParameter(f"--tolerance is {tolerance}; must be above 0")
    job, uri = load_job(job_path, at, time_zone), location("--against", against)

    from embertide.cli.progress_view import progress_view, write_json
    from embertide.edge.check.check import check_job
    from embertide.errors import ModelError
    from embertide.io.readers.reference import ReferenceColumns

    leave_imports()  # They need not be gone through after each stage.

    with progress_view(
        json_output=json_output, quiet=quiet, stdout=sys.stdout, stderr=sys.stderr
    ) as on_progress:
        checked = check_job(
            job,
            uri,
            node_type=node_type,
            result=result,
            columns=ReferenceColumns(id_column, vector_column),
            tolerance=tolerance,
            search=search,
            on_progress=on_progress,
        )
    if json_output:
        write_json(sys.stdout, {"event": "check", **checked.to_json()})
    for sentence in checked.omissions.sentences:
        print(f"warning: {sentence}", file=sys.stderr)
    if not checked.agrees:
        raise ModelError(str(checked))
    if json_output:
        return
    agreement = checked.agreement
    assert agreement is not None
    print(
        f"Agrees: {agreement.rows} rows, largest difference {agreement.largest_difference:.3g},"
        f" {agreement.largest_error:.3g} of the largest value (up to {agreement.tolerance:g} is"
        " agreement)"
    )
