"""``embertide embed``: the embeddings of some nodes, without publishing anything."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli import leave_imports
from embertide.cli.ids import IdsOption, split_ids, typed_ids
from embertide.cli.options import (
    AtOption,
    JobArgument,
    NodeTypeOption,
    ResultOption,
    TimeZoneOption,
    load_job,
)
from embertide.errors import InputError, OutputError
from embertide.facts.telemetry.format import human_count

if TYPE_CHECKING:
    from embertide.engine.pipeline.embed import OverFacts, SomeEmbeddings


class Format(StrEnum):
    """How rows are written."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def embed(
    job_path: JobArgument,
    ids: IdsOption = None,
    ids_from: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A text file with an id a line.", show_default=False),
    ] = None,
    node_type: NodeTypeOption = None,
    result: ResultOption = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="json: an object a line. parquet needs --out.", show_default=True
        ),
    ] = Format.JSON,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where they go. Default: stdout.",
            show_default=False,
        ),
    ] = None,
    over_kept: Annotated[
        bool,
        typer.Option(
            "--over-kept",
            help="Compute each layer over the rows that the current version has kept of the"
            " neighbours (refresh.keep), also after inputs have changed. Default: over all rows"
            " that they are made of, as the inputs are now.",
        ),
    ] = False,
    at: AtOption = None,
    time_zone: TimeZoneOption = "UTC",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")
    ] = False,
) -> None:  # fmt: skip
    """Compute the embeddings of some nodes and print them; publishes nothing.

    Reads all inputs in this process and goes over the edges that these nodes need, layer by layer.
    The vectors are those of a run of one worker, up to rounding where the model multiplies along
    edges. An id that is not among the nodes ends the command with exit code 3.

    With --over-kept neighbours have the rows and degrees of the current version, however much has
    changed since: a new node's embedding takes its own in-edges alone. It is then not that of a run
    over the inputs of now; the command, json and parquet name the version.

    [bold]Examples[/bold]

      embertide embed job.yaml --ids 17,42
      embertide embed job.yaml --ids 9 --over-kept   # new
      embertide embed job.yaml --ids-from new.txt --format csv
    """
    job = load_job(job_path, at, time_zone)
    asked = [*split_ids(ids or []), *(_lines(ids_from) if ids_from else [])]
    if not asked:
        raise typer.BadParameter("give the ids with --ids or --ids-from")
    if form is Format.PARQUET and out is None:
        raise typer.BadParameter("--format parquet needs --out FILE")
    if out is not None and not out.parent.is_dir():
        raise OutputError(f"{out} cannot be written: there is no folder {out.parent}")

    from embertide.cli.progress_view import progress_view
    from embertide.engine.pipeline.embed import embed_job, embed_over_kept

    leave_imports()  # They need not be gone through after each stage.

    compute = embed_over_kept if over_kept else embed_job
    with progress_view(
        json_output=False, quiet=quiet, stdout=sys.stdout, stderr=sys.stderr
    ) as on_progress:
        embedded = compute(
            job,
            typed_ids(job, node_type, asked),
            node_type=node_type,
            result=result,
            on_progress=on_progress,
        )
    _write(embedded, form, out)
    if not quiet:
        print(_summary(embedded), file=sys.stderr)
    for warning in embedded.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _lines(path: Path) -> list[str]:
    """The ids of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return [line for line in path.read_text().splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--ids-from: {path} cannot be read: {error}") from error


def _summary(embedded: SomeEmbeddings) -> str:
    """What was computed, for people."""
    if embedded.over is not None:
        return "; ".join([f"{len(embedded.ids)} embeddings", *_rests_on(embedded, embedded.over)])
    share = f"{human_count(embedded.edges)} of {human_count(embedded.all_edges)} edges"
    after = f", after the kept layer {embedded.resumed} of {embedded.resumed_of}"
    text = f"{len(embedded.ids)} embeddings over {share}{after if embedded.resumed else ''}"
    return f"{text}; {embedded.unused}" if embedded.unused else text


def _rests_on(embedded: SomeEmbeddings, over: OverFacts) -> list[str]:
    """What rows over kept ones rest on, for people."""
    if embedded.unchanged:
        return [f"nothing has changed: they are those that version {over.version} has kept"]
    facts = [
        f"over {human_count(embedded.edges)} edges; neighbours have the rows and degrees that"
        f" version {over.version} has kept"
    ]
    if over.new:
        facts.append(f"{over.new:,} new neighbours, which it does not have, were computed alike")
    if over.newer:
        facts.append(f"the first layer read newer features of {over.newer:,} neighbours")
    if over.tolerance:
        facts.append(f"the version was computed with refresh.tolerance {over.tolerance:g}")
    return facts


def _write(embedded: SomeEmbeddings, form: Format, out: Path | None) -> None:
    """Rows as asked for.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        if form is Format.PARQUET:
            assert out is not None
            _write_parquet(embedded, out)
        elif out is None:
            sys.stdout.write(_text(embedded, form))
        else:
            out.write_text(_text(embedded, form))
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}") from error


def _text(embedded: SomeEmbeddings, form: Format) -> str:
    rows = zip(embedded.ids, embedded.vectors.tolist(), strict=True)
    if form is Format.JSON:
        more = {} if embedded.over is None else {"over": asdict(embedded.over)}
        lines = [json.dumps({"id": item, "embedding": vector} | more) for item, vector in rows]
        return "".join(f"{line}\n" for line in lines)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", *(f"x{column}" for column in range(embedded.vectors.shape[1]))])
    writer.writerows([item, *vector] for item, vector in rows)
    return text.getvalue()


def _write_parquet(embedded: SomeEmbeddings, out: Path) -> None:
    """In the columns that published parts have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from embertide.io.versions.rows import schema_of

    kind = "string" if isinstance(embedded.ids[0], str) else "int64"
    schema = schema_of(kind, embedded.vectors.dtype, embedded.vectors.shape[1])
    values = pa.array(embedded.vectors.reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(values, type=schema.field(1).type)
    ids = pa.array(embedded.ids, schema.field(0).type)
    if embedded.over is not None:
        schema = schema.with_metadata({"embertide.over": json.dumps(asdict(embedded.over))})
    pq.write_table(pa.Table.from_arrays([ids, vectors], schema=schema), out)
