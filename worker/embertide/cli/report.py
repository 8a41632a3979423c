"""``embertide report``: the report of the run that published a version."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    OptionalJob,
    OutputOption,
    place_of,
)
from embertide.errors import OutputError

_STDOUT = "-"


def report(
    job_path: OptionalJob = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="V",
            help="A version as `embertide versions` lists it. Default: the current one.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the page; - is stdout. Default: report-V.html here.",
            show_default=False,
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the page in the browser, too.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Write the report of the run that published a version, as one HTML page.

    Where the time went, what moved between workers, how evenly they worked, memory against its
    plan, inputs, model, settings and software. The page loads nothing and can be sent as it is.
    Every run also writes it into its version, as _report.html.

    [bold]Examples[/bold]

      embertide report job.yaml --open
      embertide report job.yaml --version V --out v.html
      embertide report --output s3://shop/out --out out.html
      embertide report job.yaml --json   # the data, no page
    """
    if open_page and (json_output or out == _STDOUT):
        raise typer.BadParameter("--open shows a file; leave out --json and --out -")
    if json_output and out is not None:
        raise typer.BadParameter("--json writes to stdout; leave out --out")
    place = place_of(job_path, output, endpoint_url)

    from embertide.facts.report import draw_page
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.catalog import find_version, latest
    from embertide.io.versions.manifest import read_manifest
    from embertide.io.versions.run_reports import read_report

    storage = open_storage(place.storage)
    info = (
        latest(storage, place.uri) if version is None else find_version(storage, place.uri, version)
    )
    run_report = read_report(storage, place.uri, info.version)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, run_report.to_json())
        return
    page = draw_page(run_report, read_manifest(storage, place.uri, info.version)[0])
    if out == _STDOUT:
        sys.stdout.write(page)
        return
    path = Path(out or f"report-{info.version}.html")
    _write(path, page)
    print(path)
    if open_page and not webbrowser.open(path.absolute().as_uri()):
        print(f"embertide: found no browser here; open {path}", file=sys.stderr)


def _write(path: Path, page: str) -> None:
    """Write the page.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; name another file with --out"
        ) from error
