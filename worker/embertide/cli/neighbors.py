"""``embertide neighbors``: look at a version through the nearest embeddings of an id."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.drawing import escaped, new_table
from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    NodeTypeOption,
    OutputOption,
    Place,
    ResultOption,
    job_and_rest,
    place_of,
)
from embertide.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from embertide.io.storage.protocol import Storage
    from embertide.io.versions.neighbors import Answer, Batch, Metric, Neighbor
    from embertide.spec import EmbeddingJob
    from embertide.spec.manifest import FeatureInput, NodeInput


@dataclass(frozen=True)
class Question:
    """What is asked of the embeddings, and again of the features of the same node type."""

    ids: list[str]
    k: int
    metric: Metric
    prefix: str
    node_type: str | None
    from_type: str | None
    result: str | None


class MetricName(StrEnum):
    """How two embeddings are compared."""

    COSINE = "cosine"
    DOT = "dot"
    L2 = "l2"


def neighbors(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB.yaml] ID",
            help="The manifest, unless --output is given, then ids as in the input. "
            "Put -- before those that begin with - and are no numbers.",
            show_default=False,
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="How many neighbors of each id.")] = 10,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Compare only with ids that begin so; ID may leave it out.",
            show_default=False,
        ),
    ] = "",
    version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Default: the current version.", show_default=False),
    ] = None,
    node_type: NodeTypeOption = None,
    from_type: Annotated[
        str | None,
        typer.Option(
            "--from-type",
            metavar="TYPE",
            help="The node type of ID, where it is another one, as in the items of a user. "
            "Default: the one of --node-type, or another one that has it.",
            show_default=False,
        ),
    ] = None,
    result: ResultOption = None,
    metric: Annotated[
        MetricName, typer.Option(help="cosine and dot are similarities, l2 is a distance.")
    ] = MetricName.COSINE,
    features: Annotated[
        bool,
        typer.Option("--features", help="Beside them, the nearest by the raw input features."),
    ] = False,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show the nearest embeddings of some ids.

    Exact: compares with every row of the version, which is streamed, so it may be larger than
    memory. With --features one sees what the graph adds to the features alone. Ids that are not
    there are reported after the answers for the others, with exit code 3.

    [bold]Examples[/bold]

      embertide neighbors job.yaml nginx
      embertide neighbors job.yaml 42 7 -k 5 --metric l2
      embertide neighbors job.yaml nginx --features
      embertide neighbors job.yaml 42 --prefix item:
      embertide neighbors job.yaml u_17 --node-type item
      embertide neighbors --output s3://shop/out 42
    """
    job_path, ids = job_and_rest(words, output, "ID")
    if features and job_path is None:
        raise typer.BadParameter("--features needs JOB.yaml, which names the features")
    if features and from_type not in (None, node_type):
        raise typer.BadParameter("--features compares nodes of one type; leave --from-type out")
    place = place_of(job_path, output, endpoint_url)
    question = Question(ids, k, metric.value, prefix, node_type, from_type, result)
    answers = _search(place, question, version, features)
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, _as_json(answers))
    else:
        from rich.console import Console

        console = Console()
        for name in dict.fromkeys(name for answer in answers.values() for name in answer.found):
            columns = {by: answer.found.get(name, []) for by, answer in answers.items()}
            of = answers["embeddings"].types.get(name, "")
            print_neighbors(console, f"{of} {name}".strip(), columns, metric)
    unknown = [text for answer in answers.values() for text in answer.unknown.values()]
    if unknown:
        raise InputError("\n".join(unknown))


def _search(
    place: Place, question: Question, version: str | None, features: bool
) -> dict[str, Answer]:
    """Answers by what was compared: the vectors of a node type and result, and its features."""
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.catalog import latest
    from embertide.io.versions.neighbors import nearest, nearest_in_version

    storage = open_storage(place.storage)
    # Looked up once: a version published between two passes must not change the answer.
    chosen = version if version is not None else latest(storage, place.uri).version
    asked = question.ids, question.k, question.metric
    answers = {
        "embeddings": nearest_in_version(
            storage,
            place.uri,
            chosen,
            *asked,
            question.prefix,
            node_type=question.node_type,
            from_type=question.node_type if features else question.from_type,
            result=question.result,
        )
    }
    if features:
        job = place.job
        assert job is not None
        node, raw = _with_features(job, question.node_type)
        answers["features"] = nearest(
            lambda: _batches(storage, node, raw), *asked, raw.location, question.prefix
        )
    return answers


def _with_features(job: EmbeddingJob, node_type: str | None) -> tuple[NodeInput, FeatureInput]:
    """The node type that is asked for, by default the first, and its features."""
    nodes = {node.name: node for node in job.spec.input.nodes}
    node = nodes.get(node_type) if node_type else next(iter(nodes.values()))
    if node is None or node.features is None:
        raise InputError(
            f"node type {node_type or next(iter(nodes))!r} has no features in the job, whose node"
            f" types are {', '.join(nodes)}; leave --features out"
        )
    return node, node.features


def _batches(storage: Storage, node: NodeInput, features: FeatureInput) -> Iterable[Batch]:
    from embertide.io.readers.feature_schema import feature_schema
    from embertide.io.readers.features import read_features, split_features
    from embertide.io.readers.places import places_of
    from embertide.io.readers.sources import Sources
    from embertide.io.readers.table_formats import FoldersAbove
    from embertide.spec.tables import TABLE_FORMATS

    if features.format not in TABLE_FORMATS:
        places = [*places_of(storage, features), features.ids_uri]
        FoldersAbove(storage).refuse_tables(filter(None, places))
    sources = Sources(storage)
    schema = feature_schema(storage, features, sources=sources)
    for split in split_features(storage, features, ids=node.ids, schema=schema, sources=sources):
        for batch in read_features(storage, features, node.ids, split, schema):
            yield batch.ids, batch.values


def _as_json(answers: dict[str, Answer]) -> dict[str, object]:
    return {
        by: {
            name: [{"id": n.id, "score": n.score} for n in near]
            for name, near in answer.found.items()
        }
        for by, answer in answers.items()
    }


def print_neighbors(
    console: Console, name: str, columns: dict[str, list[Neighbor]], metric: MetricName
) -> None:
    """The table of one id: a pair of columns for each of what was compared."""
    table = new_table(f"Nearest to {escaped(name)}", [], [""])
    for by in columns:
        table.add_column(f"by {by}", overflow="fold")
        table.add_column(metric.value, justify="right", no_wrap=True)
    for row in range(max(len(near) for near in columns.values())):
        cells = []
        for near in columns.values():
            known = row < len(near)
            cells += [escaped(str(near[row].id)), f"{near[row].score:.4f}"] if known else ["", ""]
        table.add_row(str(row + 1), *cells)
    console.print(table)
