"""``embertide export``: a trained module becomes a model that jobs can run."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embertide.cli.options import EndpointOption, JsonOption, endpoint_settings, location

if TYPE_CHECKING:
    from embertide.tracing.export import Export


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="Your file and the class in it, or a function that makes the module; NAME.METHOD"
            " takes a method, such as encode, in place of forward, NAME.PART.METHOD one of a"
            " part.",
            show_default=False,
        ),
    ],
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The trained state_dict: safetensors, or torch's own; a path or URI. Required,"
            " but with --explain.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the model goes; a path or URI. Required, but with --explain.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        str, typer.Option(metavar="JSON", help="The arguments that NAME is called with.")
    ] = "{}",
    key: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help="Where the state_dict is in a file that holds several, such as ema.state_dict.",
            show_default=False,
        ),
    ] = "",
    inputs: Annotated[
        str,
        typer.Option(
            metavar="JSON",
            help="What arguments of forward are, if their names do not show it: x, edge_index, "
            "edge_weight, edge_features, edge_type, graph, blocks or data.",
        ),
    ] = "{}",
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="What forward is called with, in a .pt, .safetensors or .npz file, or a job's "
            ".yaml: columns and types come from it, and from tensors of integers the categories.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Columns of the features, if the module does not show them.",
            show_default=False,
        ),
    ] = None,
    edge_features: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Features of each edge, if the module does not show them; with --graph a job has "
            "them.",
            show_default=False,
        ),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="JOB.yaml|JSON",
            help="Node types and relations, where the module knows several: a job's file, or "
            '{"nodes": {"user": 64}, "edges": ["user:follows:user"]}, and {"user:follows:user": 3} '
            "where edges have features.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]NAME",
            help="An nn.Embedding or parameter with a row for each node (of a type), beside its "
            "features or in their place. May be given several times.",
            show_default=False,
        ),
    ] = None,
    table_ids: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]PATH",
            help="npy file with the id that each row of the type's tables is of, where ids are not "
            "0 to rows - 1. May be given once for each node type.",
            show_default=False,
        ),
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Columns of the features that hold categories, whole numbers from 0: "
            '{"0": 10} says how many column 0 has; with --graph {"user": {"0": 10}}.',
            show_default=False,
        ),
    ] = None,
    edge_categories: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='The same of edges: {"0": 4}; with --graph {"user:buys:item": {"0": 4}}.',
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Names of what forward returns, where it returns several tensors: of a tuple in "
            "its order, - for one to leave out; of a dict those to keep. Default: all.",
            show_default=False,
        ),
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="A method or part of NAME that gives pairs of nodes scores, such as decode.",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Write nothing; show what was understood: arguments, graph, layers and steps with"
            " your lines, what is read from other nodes, and whether program and module agree.",
        ),
    ] = False,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Turn a trained PyG or DGL module, as it is, into a model that jobs run.

    Imports your file here, runs forward once on a small random graph and writes what it does as
    a program: readable text, weights, and the proof that module and program agree in float64.
    Workers read those files and never your code. docs/export.md says what a module may do.

    [bold]Examples[/bold]

      embertide export net.py:Net --weights w.pt --out model
      embertide export net.py:Net --explain
      embertide export net.py:Net --init '{"dim": 128}' ...
      embertide export net.py:Net ... --out s3://shop/model
      embertide export net.py:Net --edge-features 3 ...
      embertide export net.py:Net --sample batch.pt ...
      embertide export net.py:Net --table emb --width 16 ...
      embertide export hetero.py:Net --graph job.yaml ...
      embertide export net.py:Net --results hidden,logits ...
    """
    arguments, roles = _mapping("--init", init), _mapping("--inputs", inputs)
    weights_uri = _required("--weights", weights, optional=explain)
    out_uri = None if explain else _required("--out", out)

    from embertide.io.storage.opening import open_storage
    from embertide.tracing.export import export_file

    export_it = partial(
        export_file,
        target,
        open_storage(endpoint_settings(endpoint_url)),
        weights_uri,
        out_uri,
        init=arguments,
        inputs=roles,
        width=width,
        graph=graph,
        tables=_tables(table or []),
        table_ids=_table_ids(table_ids or []),
        edge_features=edge_features,
        categories=_if_given("--categories", categories),
        edge_categories=_if_given("--edge-categories", edge_categories),
        sample=None if sample is None else location("--sample", sample),
        key=key,
        decoder=decoder,
        results=[] if results is None else [name.strip() for name in results.split(",")],
    )
    if explain:
        from embertide.cli.explain import explaining
        from embertide.tracing.explanation import Understood

        understood = Understood()
        with explaining(understood, initialised=weights is None, json_output=json_output):
            export_it(understood=understood)
    else:
        _show(export_it(), out_uri, json_output)


def _show(done: Export, uri: str | None, json_output: bool) -> None:
    """What was written, layer by layer."""
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "export", "uri": uri, **done.to_json()})
        return
    from rich.console import Console

    from embertide.cli.explain import proved
    from embertide.cli.show import draw

    draw(Console(), done.summary, steps=False)
    if done.sample is not None:
        print(f"From the sample, and the options beside it: {str(done.sample) or 'nothing'}")
    for line in proved(done.exported.module, done.proof):
        print(line)
    for warning in done.proof.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(uri)


def _required(option: str, text: str | None, *, optional: bool = False) -> str | None:
    """The URI of an option that must be there, unless it is ``optional``."""
    if text is None and not optional:
        raise typer.BadParameter(f"{option} is missing; only --explain does without it")
    return None if text is None else location(option, text)


def _tables(options: list[str]) -> dict[str, list[str]]:
    """Node type -> its tables; "" where no type is named."""
    tables: dict[str, list[str]] = {}
    for text in options:
        node_type, _, name = text.rpartition("=")
        if not name or name in tables.get(node_type, ()):
            raise typer.BadParameter(f"--table is {text}; give [TYPE=]NAME, once for each table")
        tables.setdefault(node_type, []).append(name)
    return tables


def _table_ids(options: list[str]) -> dict[str, str]:
    """Node type -> URI of the ids of its tables' rows; "" where no type is named."""
    ids: dict[str, str] = {}
    for text in options:
        node_type, _, path = text.rpartition("=")
        if not path or node_type in ids:
            raise typer.BadParameter(
                f"--table-ids is {text}; give [TYPE=]PATH, once for each node type"
            )
        ids[node_type] = location("--table-ids", path)
    return ids


def _if_given(option: str, text: str | None) -> dict[str, Any] | None:
    """The option's object; None where a sample may show it."""
    return None if text is None else _mapping(option, text)


def _mapping(option: str, text: str) -> dict[str, Any]:
    """A JSON object of the command line."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{option} is {text}; must be an object such as {{"a": 1}}')
    return value
