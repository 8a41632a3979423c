"""``embertide init``: a job for edges that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.options import EndpointOption, endpoint_settings, location

if TYPE_CHECKING:
    from embertide.edge.synth.from_edges import Begun


def init(
    edges: Annotated[
        str,
        typer.Argument(
            metavar="EDGES",
            help="A file of edges or a folder of them, here or on S3: parquet, csv, tsv or npy.",
            show_default=False,
        ),
    ],
    fastrp: Annotated[  # noqa: ARG001
        bool, typer.Option("--fastrp", help="The model: FastRP, which is the only one.")
    ] = True,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="SRC,DST",
            help="Names of the columns of both ends. Default: by their names, else the first two.",
            show_default=False,
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            "--weight",
            metavar="NAME",
            help="Column of the weights. Default: weight or w, if there is one.",
            show_default=False,
        ),
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(
            "--types",
            metavar="A,B",
            help="Node types of both ends, where they differ, such as user,item. Default: one.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="Where the job is written.")
    ] = ".",
    name: Annotated[str, typer.Option("--name", help="Name of the job.")] = "embeddings",
    endpoint_url: EndpointOption = None,
) -> None:
    """Write a job that computes embeddings of a graph by its edges alone, without training.

    The model is FastRP (docs/builtin-models.md). Edges count in both directions.

    [bold]Examples[/bold]

      embertide init --fastrp edges.parquet
      embertide init clicks.csv --types user,item --to shop
      embertide init s3://bucket/edges/ --to s3://bucket/job
    """
    from embertide.edge.synth.from_edges import begin_job
    from embertide.io.storage.opening import open_storage

    settings = endpoint_settings(endpoint_url)
    begun = begin_job(
        open_storage(settings),
        location("EDGES", edges),
        location("--to", to),
        columns=_pair("--columns", columns),
        weight=weight,
        types=_pair("--types", types),
        name=name,
        settings=settings,
    )
    print(_described(begun))


def _pair(option: str, text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    first, comma, second = text.partition(",")
    if not (first and comma and second) or "," in second:
        raise typer.BadParameter(f"{option} is {text!r}; give two names, such as a,b")
    return first, second


def _described(begun: Begun) -> str:
    columns = begun.columns
    weight = "no weights" if columns.weight is None else f"weight {columns.weight}"
    nodes = ", ".join(
        f"{count:,} {kind}{'' if count == 1 else 's'} ({begun.ids[kind]} ids)"
        for kind, count in begun.nodes.items()
    )
    job = begun.job_uri.removeprefix("file://")
    return (
        f"{begun.edges:,} edges from {columns.source} to {columns.destination}, {weight}; {nodes}\n"
        f"Run it: embertide run {job}"
    )
