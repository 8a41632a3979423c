"""``embertide layers``: what attempts have kept below an output, and removing it."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.drawing import escaped, new_table
from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    OptionalJob,
    OutputOption,
    place_of,
)
from embertide.facts.telemetry.format import human_bytes, human_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from embertide.io.versions.layers.catalog import KeptLayers


def layers(
    job_path: OptionalJob = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Remove all that no attempt may be using; the next run computes it."
        ),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the layers that are kept below an output, the oldest first.

    After a failed attempt, one with the same inputs, model and job goes on after the last of them;
    they are removed once its version is published, and 24 hours after the last was written. Those
    of the current version, which refresh.keep keeps, are for the next run: it computes the rows
    that have changed.

    [bold]Examples[/bold]

      embertide layers job.yaml
      embertide layers --output s3://shop/embeddings --remove
    """
    place = place_of(job_path, output, endpoint_url)

    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.layers.catalog import list_layers, remove_layers

    storage = open_storage(place.storage)
    kept = list_layers(storage, place.uri)
    removed = remove_layers(storage, place.uri, kept) if remove else []
    if json_output:
        from embertide.cli.progress_view import write_json

        gone = {item.key for item in removed}
        rows = [{**dataclasses.asdict(item), "removed": item.key in gone} for item in kept]
        write_json(sys.stdout, rows)
    elif not kept:
        print(f"no layers are kept below {place.uri}")
    else:
        from rich.console import Console

        console = Console()
        console.print(_table(place.uri, kept))
        for line in _remarks(kept, removed, remove):
            console.print(escaped(line), highlight=False)


def _table(uri: str, layers: list[KeptLayers]) -> Table:
    table = new_table(escaped(uri), ["key", "layers"], ["size", "age"])
    for item in layers:
        numbers = ", ".join(map(str, item.layers))
        done = f"{numbers} of {item.of}" if item.layers else "none complete"
        age = human_seconds(max(0.0, time.time() - item.modified))
        table.add_row(item.key, done, human_bytes(item.size), age)
    return table


def _remarks(layers: list[KeptLayers], removed: list[KeptLayers], remove: bool) -> list[str]:
    """What was removed, what an attempt may be using, and what is damaged."""
    lines = [f"{problem}; that layer is computed again" for i in layers for problem in i.problems]
    stays = "stays: " if remove else ""
    lines += [f"{stays}{item.key} is in use by an attempt" for item in layers if item.in_use]
    digests = [item.key for item in layers if item.with_digests and item not in removed]
    lines += [f"{key} is for the next run, with digests of rows" for key in digests]
    graphs = [item.key for item in layers if item.with_graph and item not in removed]
    lines += [f"{key} has the graph, which is read in place of its edges" for key in graphs]
    if removed:
        lines.append(f"removed {human_bytes(sum(item.size for item in removed))}")
    return lines
