"""``embertide versions`` and ``embertide rollback``: what is published, and going back."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.drawing import escaped, new_table
from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    OptionalJob,
    OutputOption,
    job_and_rest,
    place_of,
)
from embertide.errors import ObjectMissing
from embertide.facts.telemetry.format import human_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from embertide.io.storage.protocol import Storage
    from embertide.io.versions.catalog import VersionInfo
    from embertide.spec.manifest import EmbeddingJob

_WIDE = 80
"""Columns of a terminal that holds a table of versions with its times."""
_ROW_TYPE = 16
"""Width, in columns, of the cell that shows how rows were held."""


def versions(
    job_path: OptionalJob = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the published versions of an output, oldest first; * marks the current one, ! held ones.

    Below is how the current one differs from the one before it, and why others are held.

    [bold]Examples[/bold]

      embertide versions job.yaml
      embertide versions --output s3://shop/embeddings
      embertide versions job.yaml --json
    """
    place = place_of(job_path, output, endpoint_url)

    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.catalog import list_versions

    published = list_versions(open_storage(place.storage), place.uri)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, [dataclasses.asdict(info) for info in published])
    elif not published:
        print(f"nothing was published to {place.uri} yet")
    else:
        from rich.console import Console

        console = Console()
        console.print(versions_table(place.uri, published, console.width))
        for line in remarks(published):
            console.print(escaped(line), highlight=False)


def rollback(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB.yaml] VERSION",
            help="The manifest, unless --output is given, then a version as `embertide "
            "versions` lists it, or previous: the one before the current.",
            show_default=False,
        ),
    ],
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make an earlier version the current one.

    Only the pointer moves, in one atomic step; no version is removed. Run `embertide rollback`
    again with the newer version to go forward.

    [bold]Examples[/bold]

      embertide rollback job.yaml previous
      embertide rollback job.yaml 20261121T041922Z-3fa9c1
      embertide rollback --output s3://shop/out previous
    """
    job_path, versions = job_and_rest(words, output, "VERSION")
    if len(versions) != 1:
        raise typer.BadParameter(f"give one VERSION, not {len(versions)}: {' '.join(versions)}")
    place = place_of(job_path, output, endpoint_url)

    from embertide.io.storage.opening import open_storage
    from embertide.io.versions import publish

    storage = open_storage(place.storage)
    version = named_version(storage, place.uri, versions[0])
    info = publish.rollback(storage, place.uri, version)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, dataclasses.asdict(info))
        return
    print(f"{info.version} is now the current version of {place.uri}")
    print_how_to_push(place.job)


def print_how_to_push(job: EmbeddingJob | None) -> None:
    """Where the job has an index: that it still has another version, and how to push this one."""
    if job is None or job.spec.push is None:
        return
    from embertide.spec.naming import PUSH_REQUESTED

    print(
        "The index of spec.push keeps the version that it has until the next push: embertide push"
        f" JOB.yaml, or on Kubernetes kubectl annotate --overwrite ej {job.metadata.name}"
        f' {PUSH_REQUESTED}="$(date -u +%FT%TZ)"'
    )


def named_version(storage: Storage, uri: str, name: str) -> str:
    """The version that a word of the command line means: ``current``, ``previous``, or a name."""
    from embertide.io.versions.catalog import latest

    if name == "current":
        return latest(storage, uri).version
    return _previous(storage, uri) if name == "previous" else name


def _previous(storage: Storage, uri: str) -> str:
    """The complete version before the current one that is not held.

    Raises:
        ObjectMissing: there is none.
    """
    from embertide.io.versions.catalog import latest, list_versions

    current = latest(storage, uri).version
    there = list_versions(storage, uri)
    before = there[: [info.version for info in there].index(current)]
    earlier = [info.version for info in before if not info.held]
    if not earlier:
        raise ObjectMissing(
            f"{uri} has no version before the current one, {current}; embertide versions lists"
            " what there is"
        )
    return earlier[-1]


def versions_table(uri: str, published: list[VersionInfo], width: int) -> Table:
    """The table for a terminal of ``width`` columns.

    A narrow one leaves out the width and when they were published, which the names nearly show.
    The type in which rows were kept is shown where any were kept in another type than float32.
    """
    rounded = any(info.row_type != "float32" for info in published)
    narrow = width < _WIDE + _ROW_TYPE * rounded
    numbers = ["rows", "size"] if narrow else ["published (UTC)", "rows", "width", "size"]
    if rounded:
        numbers.append("rows held in")
    table = new_table(escaped(uri), ["", "version"], numbers)
    for info in published:
        # To the second; --json has it whole.
        created, rows = info.created[:19].replace("T", " "), info.counted
        wide = [created, rows, str(info.dim)]
        cells = [*([rows] if narrow else wide), human_bytes(info.size)]
        cells += [info.row_type] * rounded
        table.add_row("*" if info.current else "!" if info.held else "", info.version, *cells)
    return table


def remarks(published: list[VersionInfo]) -> list[str]:
    """How the current version differs from the one before it, and why others are held."""
    current = [
        f"* {sentence}"
        for info in published
        if info.current and info.comparison is not None
        for sentence in info.comparison.sentences
    ]
    others = [
        f"! {info.version} is held: {'; '.join(info.held)}" for info in published if info.held
    ]
    return [*current, *others]
