"""``embertide synth``: a made-up job of any size, ready to run."""

from __future__ import annotations

import dataclasses
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embertide.cli.options import EndpointOption, JsonOption, endpoint_settings, location

if TYPE_CHECKING:
    from embertide.edge.synth import SynthReport

_DEFAULT_NODES = 1 << 16
_DEFAULT_FACTOR = 20
_WEIGHTS = {"edges": 1.0, "features": 1.0}


class Kind(StrEnum):
    """The random graph."""

    RMAT = "rmat"
    UNIFORM = "uniform"


class Ids(StrEnum):
    """What identifies a node."""

    DENSE = "dense"
    INT64 = "int64"
    STRING = "string"


class EdgeFormat(StrEnum):
    """The format of the edges."""

    PARQUET = "parquet"
    CSV = "csv"
    NPY = "npy"


class FeatureFormat(StrEnum):
    """The format of the features."""

    PARQUET = "parquet"
    NPY = "npy"


def synth(
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="A directory or an s3:// prefix; must be unused.",
            show_default=False,
        ),
    ],
    kind: Annotated[Kind, typer.Option(help="rmat has hubs as real graphs do.")] = Kind.RMAT,
    hetero: Annotated[
        bool, typer.Option("--hetero", help="Three node types, six edge types; a model of sage.")
    ] = False,
    scale: Annotated[
        int | None,
        typer.Option(
            min=0, max=31, metavar="S", help="2^S nodes; instead of --nodes.", show_default=False
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"Default: {_DEFAULT_NODES}.", show_default=False),
    ] = None,
    edges: Annotated[
        int | None,
        typer.Option(min=0, metavar="E", help="Instead of --edge-factor.", show_default=False),
    ] = None,
    edge_factor: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="F",
            help=f"Edges for each node. Default: {_DEFAULT_FACTOR}.",
            show_default=False,
        ),
    ] = None,
    ids: Annotated[Ids, typer.Option(help="What identifies a node.")] = Ids.DENSE,
    weights: Annotated[bool, typer.Option("--weights", help="Edges have weights.")] = False,
    edge_features: Annotated[
        int, typer.Option(min=0, metavar="K", help="Features of each edge, with --conv edge_gat.")
    ] = 0,
    edge_format: Annotated[EdgeFormat, typer.Option(help="Format of edges.")] = EdgeFormat.PARQUET,
    feature_format: Annotated[
        FeatureFormat, typer.Option(help="Format of features.")
    ] = FeatureFormat.PARQUET,
    width: Annotated[int, typer.Option(min=1, help="Width of the features.")] = 128,
    conv: Annotated[
        str | None,
        typer.Option(
            help="Convolution of the model, such as gat. Default: gcn, with --hetero sage.",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 3,
    hidden: Annotated[int, typer.Option(min=1, help="Width between the layers.")] = 128,
    embedding: Annotated[int, typer.Option(min=1, help="Width of the embeddings.")] = 128,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; the same seed gives the same files.")
    ] = 0,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "synthetic",
    endpoint_url: EndpointOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Make up a job: a random graph, features, random weights and the manifest that runs it.

    Everything is written in a stream, so the graph may be larger than memory.

    [bold]Examples[/bold]

      embertide synth /data/toy
      embertide synth /data/rmat20 --scale 20 --edge-factor 20
      embertide synth s3://bucket/strings --ids string
      embertide synth /data/gat --conv gat --heads 4
      embertide synth /data/shop --hetero
      embertide synth /data/e --conv edge_gat --edge-features 8
    """
    nodes = _one_of("--scale", None if scale is None else 1 << scale, "--nodes", nodes)
    nodes = _DEFAULT_NODES if nodes is None else nodes
    by_factor = None if edge_factor is None else edge_factor * nodes
    edges = _one_of("--edge-factor", by_factor, "--edges", edges)
    shape: dict[str, Any] = {
        "kind": kind.value,
        "hetero": hetero,
        "nodes": nodes,
        "edges": _DEFAULT_FACTOR * nodes if edges is None else edges,
        "ids": ids.value,
        "weights": weights,
        "edge_features": edge_features,
        "edge_format": edge_format.value,
        "feature_format": feature_format.value,
        "width": width,
        "conv": conv or ("sage" if hetero else "gcn"),
        "layers": layers,
        "hidden": hidden,
        "out": embedding,
        "heads": heads,
        "seed": seed,
        "name": name,
    }
    report = _synthesize(out, shape, endpoint_url, json_output=json_output, quiet=quiet)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "report", **dataclasses.asdict(report)})
        return
    print(_described(report))


def _one_of(first: str, value: int | None, second: str, other: int | None) -> int | None:
    if value is not None and other is not None:
        raise typer.BadParameter(f"{first} and {second} set the same; give one of them")
    return value if value is not None else other


def _synthesize(
    out: str, shape: dict[str, Any], endpoint_url: str | None, *, json_output: bool, quiet: bool
) -> SynthReport:
    from embertide.cli.progress_view import progress_view
    from embertide.edge.synth import SynthOptions, synthesize
    from embertide.facts.telemetry.progress import Progress
    from embertide.io.storage.opening import open_storage

    options = SynthOptions(**shape)
    uri, settings = location("OUT", out), endpoint_settings(endpoint_url)
    with progress_view(
        json_output=json_output,
        quiet=quiet,
        stdout=sys.stdout,
        stderr=sys.stderr,
        weights=_WEIGHTS,
    ) as on_progress:

        def on_file(what: str, done: int, total: int) -> None:
            on_progress(Progress(what, fraction=done / max(1, total)))

        return synthesize(open_storage(settings), uri, options, on_file, settings)


def _described(report: SynthReport) -> str:
    from embertide.facts.telemetry.format import human_bytes, human_count

    seconds = report.edge_seconds + report.feature_seconds
    job = report.job_uri.removeprefix("file://")
    return (
        f"{report.nodes:,} nodes, {report.edges:,} edges: {human_bytes(report.size)} "
        f"in {report.objects} objects, {seconds:.1f} s "
        f"({human_count(report.edges / max(report.edge_seconds, 1e-9))} edges/s)\n"
        f"Run it: embertide run {job}"
    )
