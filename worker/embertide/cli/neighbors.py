"""``embertide neighbors``: look at a version through the nearest embeddings of an id."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.options import JobArgument, JsonOption, load_job

if TYPE_CHECKING:
    from rich.console import Console

    from embertide.spec import EmbeddingJob
    from embertide.storage.protocol import Storage
    from embertide.versions.neighbors import Batch, Neighbor

    Found = dict[str, dict[str, list[Neighbor]]]


class MetricName(StrEnum):
    """How two embeddings are compared."""

    COSINE = "cosine"
    DOT = "dot"
    L2 = "l2"


def neighbors(
    job_path: JobArgument,
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID",
            help="Ids as in the input. Put -- before negative ones.",
            show_default=False,
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="How many neighbors of each id.")] = 10,
    version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Default: the current version.", show_default=False),
    ] = None,
    metric: Annotated[
        MetricName, typer.Option(help="cosine and dot are similarities, l2 is a distance.")
    ] = MetricName.COSINE,
    features: Annotated[
        bool,
        typer.Option("--features", help="Beside them, the nearest by the raw input features."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show the nearest embeddings of some ids.

    Exact: compares with every row of the version, which is streamed, so it may be larger than
    memory. With --features one sees what the graph adds to the features alone.

    [bold]Examples[/bold]

      embertide neighbors job.yaml nginx
      embertide neighbors job.yaml 42 7 -k 5 --metric l2
      embertide neighbors job.yaml nginx --features
      embertide neighbors job.yaml nginx --version 20261121T041922Z-3fa9c1
    """
    job = load_job(job_path)
    found = _search(job, ids, k, version, metric, features)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, _as_json(found))
        return

    from rich.console import Console

    console = Console()
    for name in dict.fromkeys(ids):
        _print_neighbors(console, name, {by: result[name] for by, result in found.items()}, metric)


def _search(
    job: EmbeddingJob,
    ids: list[str],
    k: int,
    version: str | None,
    metric: MetricName,
    features: bool,
) -> Found:
    """Results by what was compared, then by id."""
    from embertide.storage.opening import open_storage
    from embertide.versions.catalog import latest
    from embertide.versions.neighbors import nearest
    from embertide.versions.reading import iter_embeddings

    storage = open_storage(job.spec.storage)
    uri = job.spec.output.uri
    # Looked up once: a version published between two passes must not change the answer.
    chosen = version if version is not None else latest(storage, uri).version

    def embeddings() -> Iterable[Batch]:
        return iter_embeddings(storage, uri, chosen)

    found: Found = {
        "embeddings": nearest(embeddings, ids, k, metric.value, f"{uri} version {chosen}")
    }
    if features:
        uri = job.spec.input.nodes[0].features.uri
        found["features"] = nearest(
            lambda: _feature_batches(storage, job), ids, k, metric.value, uri
        )
    return found


def _feature_batches(storage: Storage, job: EmbeddingJob) -> Iterable[Batch]:
    from embertide.readers.feature_schema import feature_schema
    from embertide.readers.features import read_features, split_features

    node = job.spec.input.nodes[0]
    schema = feature_schema(storage, node.features)
    for split in split_features(storage, node.features, ids=node.ids, schema=schema):
        for batch in read_features(storage, node.features, node.ids, split, schema):
            yield batch.ids, batch.values


def _as_json(found: Found) -> dict[str, object]:
    return {
        by: {name: [{"id": n.id, "score": n.score} for n in near] for name, near in result.items()}
        for by, result in found.items()
    }


def _print_neighbors(
    console: Console, name: str, columns: dict[str, list[Neighbor]], metric: MetricName
) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"Nearest to {escape(name)}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", justify="right")
    for by in columns:
        table.add_column(f"by {by}", overflow="fold")
        table.add_column(metric.value, justify="right")
    for row in range(max(len(near) for near in columns.values())):
        cells = []
        for near in columns.values():
            known = row < len(near)
            cells += [escape(str(near[row].id)), f"{near[row].score:.4f}"] if known else ["", ""]
        table.add_row(str(row + 1), *cells)
    console.print(table)
