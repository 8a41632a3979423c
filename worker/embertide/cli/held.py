"""``embertide release`` and ``embertide discard``: what happens to a version that a gate holds."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.options import EndpointOption, JsonOption, OutputOption, job_and_rest, place_of
from embertide.cli.versions import print_how_to_push

if TYPE_CHECKING:
    from embertide.cli.options import Place
    from embertide.io.storage.protocol import Storage

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB.yaml] [VERSION]",
        help="The manifest, unless --output is given, then a version as `embertide versions` "
        "lists it. Default: the newest held one, if no newer version is current.",
        show_default=False,
    ),
]


def release(
    words: Words = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a version that the gate holds the current one.

    Look at it first: `embertide report` has what is beyond a bound. Only the pointer moves, in
    one atomic step. The next run compares its version with this one.

    [bold]Examples[/bold]

      embertide release job.yaml
      embertide release --output s3://shop/out V
    """
    place, storage, version = _held_version(words, output, endpoint_url)

    from embertide.io.versions import releasing

    info = releasing.release(storage, place.uri, version)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, dataclasses.asdict(info))
        return
    print(f"{info.version} is now the current version of {place.uri}")
    print_how_to_push(place.job)


def discard(
    words: Words = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Remove a version that the gate holds.

    Readers keep the current version. The next run goes on either way; a held version that stays
    is removed once keepVersions newer ones are held.

    [bold]Examples[/bold]

      embertide discard job.yaml
      embertide discard --output s3://shop/out V
    """
    place, storage, version = _held_version(words, output, endpoint_url)

    from embertide.io.versions.releasing import remove_held

    remove_held(storage, place.uri, version)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "discarded", "version": version})
        return
    print(f"{version} of {place.uri} is removed")


def _held_version(
    words: list[str] | None, output: str | None, endpoint_url: str | None
) -> tuple[Place, Storage, str]:
    """The output, and the held version that the words name."""
    arguments = words or []
    if output is None and len(arguments) == 1:
        arguments = [*arguments, ""]
    if output is not None and not arguments:
        arguments = [""]
    if not arguments:
        raise typer.BadParameter("give JOB.yaml, or --output URI")
    job_path, versions = job_and_rest(arguments, output, "VERSION")
    if len(versions) != 1:
        raise typer.BadParameter(f"give one VERSION, not {len(versions)}: {' '.join(versions)}")
    place = place_of(job_path, output, endpoint_url)

    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.releasing import newest_held

    storage = open_storage(place.storage)
    return place, storage, versions[0] or newest_held(storage, place.uri)
