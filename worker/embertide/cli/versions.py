"""``embertide versions`` and ``embertide rollback``: what is published, and going back."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.format import human_bytes
from embertide.cli.options import (
    EndpointOption,
    JobArgument,
    JsonOption,
    endpoint_settings,
    load_job,
    location,
)

if TYPE_CHECKING:
    from rich.table import Table

    from embertide.spec.manifest import StorageSettings
    from embertide.versions.catalog import VersionInfo


def versions(
    job_path: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="The manifest.", show_default=False),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Look at this output, without a manifest.", show_default=False
        ),
    ] = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the published versions of an output, oldest first; * marks the current one.

    [bold]Examples[/bold]

      embertide versions job.yaml
      embertide versions --output s3://shop/embeddings/products
      embertide versions job.yaml --json
    """
    uri, settings = _output(job_path, output, endpoint_url)

    from embertide.storage.opening import open_storage
    from embertide.versions.catalog import list_versions

    found = list_versions(open_storage(settings), uri)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, [dataclasses.asdict(info) for info in found])
    elif not found:
        print(f"nothing was published to {uri} yet")
    else:
        from rich.console import Console

        Console().print(_table(uri, found))


def rollback(
    job_path: JobArgument,
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="As `embertide versions` lists it.")
    ],
    json_output: JsonOption = False,
) -> None:
    """Make an earlier version the current one.

    Only the pointer moves, in one atomic step; no version is removed. Run `embertide rollback`
    again with the newer version to go forward.

    [bold]Examples[/bold]

      embertide versions job.yaml
      embertide rollback job.yaml 20261121T041922Z-3fa9c1
    """
    from embertide.storage.opening import open_storage
    from embertide.versions import publish

    job = load_job(job_path)
    storage = open_storage(job.spec.storage)
    info = publish.rollback(storage, job.spec.output.uri, version)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, dataclasses.asdict(info))
        return
    print(f"{info.version} is now the current version of {job.spec.output.uri}")


def _output(
    job_path: Path | None, output: str | None, endpoint_url: str | None
) -> tuple[str, StorageSettings | None]:
    """The output's uri and how to reach it, from the manifest or from the options."""
    if (job_path is None) == (output is None):
        raise typer.BadParameter("give either JOB.yaml or --output URI")
    if output is not None:
        return location("--output", output), endpoint_settings(endpoint_url)
    assert job_path is not None
    if endpoint_url is not None:
        raise typer.BadParameter("--endpoint-url goes with --output; JOB.yaml has its own")
    job = load_job(job_path)
    return job.spec.output.uri, job.spec.storage


def _table(uri: str, found: list[VersionInfo]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(uri), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("version", no_wrap=True)
    for name in ("published (UTC)", "rows", "width", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for info in found:
        table.add_row(
            "*" if info.current else "",
            info.version,
            # To the second; --json has it whole.
            info.created[:19].replace("T", " "),
            f"{info.rows:,}",
            str(info.dim),
            human_bytes(info.size),
        )
    return table
