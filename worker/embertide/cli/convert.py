"""``embertide convert``: a version as files that an index reads."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    NodeTypeOption,
    OutputOption,
    ResultOption,
    VersionOption,
    job_and_rest,
    location,
    place_of,
)
from embertide.cli.versions import named_version

if TYPE_CHECKING:
    from embertide.edge.indexes.convert import Conversion
    from embertide.edge.indexes.layout import Layout

IndexName = Literal["parquet", "milvus", "pinecone", "vertex", "lancedb", "pgvector", "opensearch"]


def convert(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB.yaml] FOLDER",
            help="The manifest, unless --output is given, then an empty folder, here or on S3.",
            show_default=False,
        ),
    ],
    index: Annotated[
        IndexName, typer.Option("--for", metavar="INDEX", help="The index that reads the files.")
    ] = "parquet",
    version: VersionOption = "current",
    node_type: NodeTypeOption = None,
    result: ResultOption = None,
    vectors: Annotated[
        Literal["float32", "float16", "int8"] | None,
        typer.Option("--vectors", help="Element type. Default: float32.", show_default=False),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            min=1e-30,
            help="Of int8: a value is int8 times this. Default: the largest value becomes 127.",
            show_default=False,
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Divide vectors by their L2 norm, but zero ones.")
    ] = False,
    zero_rows: Annotated[
        Literal["keep", "skip", "refuse"] | None,
        typer.Option(
            "--zero-rows",
            help="What happens to zero vectors, which are listed. Default: keep; for pinecone"
            " refuse.",
            show_default=False,
        ),
    ] = None,
    lists: Annotated[
        Literal["list", "fixed"] | None,
        typer.Option(
            "--lists",
            help="Of parquet: whether a column of vectors has their length in its type.",
            show_default=False,
        ),
    ] = None,
    ids: Annotated[
        Literal["keep", "text", "integer"] | None,
        typer.Option(
            "--ids",
            help="Type of the ids. Default: as the index has it, else keep.",
            show_default=False,
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id-column", metavar="NAME", show_default=False)
    ] = None,
    vector_column: Annotated[
        str | None, typer.Option("--vector-column", metavar="NAME", show_default=False)
    ] = None,
    created_column: Annotated[
        str | None,
        typer.Option(
            "--created-column",
            metavar="NAME",
            help="Of parquet: a column that has when the version was published, for joins in time.",
            show_default=False,
        ),
    ] = None,
    version_column: Annotated[
        str | None,
        typer.Option(
            "--version-column",
            metavar="NAME",
            help="Of parquet: a column that has the version's name.",
            show_default=False,
        ),
    ] = None,
    file_bytes: Annotated[
        int | None,
        typer.Option(
            "--file-bytes",
            min=1 << 16,
            metavar="BYTES",
            help="Largest file. Default: as the index reads them best.",
            show_default=False,
        ),
    ] = None,
    file_rows: Annotated[
        int | None,
        typer.Option(
            "--file-rows", min=1, metavar="ROWS", help="Rows of a file.", show_default=False
        ),
    ] = None,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write a published version as files that an index reads.

    The files are below data/ in the folder; _convert.json has what they are and how the index
    reads them, and _zero_rows.txt lists the ids of zero vectors. Values and ids that do not fit
    are errors. docs/indexes.md describes each INDEX.

    [bold]Examples[/bold]

      embertide convert job.yaml out --for milvus
      embertide convert job.yaml s3://shop/out --for pinecone
      embertide convert job.yaml out --vectors int8 --normalize
      embertide convert --output s3://shop/e out --for pgvector
    """
    from dataclasses import replace

    from embertide.edge.indexes import presets
    from embertide.edge.indexes.convert import convert as convert_version
    from embertide.io.storage.opening import open_storage

    job_path, folders = job_and_rest(words, output, "FOLDER")
    if len(folders) != 1:
        raise typer.BadParameter(f"give one FOLDER, not {len(folders)}: {' '.join(folders)}")
    place, folder = place_of(job_path, output, endpoint_url), location("FOLDER", folders[0])
    if scale is not None and vectors != "int8":
        raise typer.BadParameter("--scale goes with --vectors int8")
    changes: dict[str, Any] = {
        "vectors": vectors,
        "scale": scale,
        "normalize": normalize or None,
        "zero_rows": zero_rows,
        "lists": lists,
        "ids": ids,
        "id_column": id_column,
        "vector_column": vector_column,
        "created_column": created_column,
        "version_column": version_column,
        "file_bytes": file_bytes,
        "file_rows": file_rows,
    }
    layout: Layout = replace(
        presets.PRESETS[index].layout,
        **{name: value for name, value in changes.items() if value is not None},
    )
    storage = open_storage(place.storage)
    done = convert_version(
        storage,
        place.uri,
        folder,
        index,
        layout,
        version=named_version(storage, place.uri, version),
        node_type=node_type,
        result=result,
    )
    if json_output:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "converted", **asdict(done)})
        return
    _print(done)


def _print(done: Conversion) -> None:
    from embertide.facts.telemetry.format import human_bytes

    size = human_bytes(sum(file.size for file in done.files))
    print(
        f"{done.rows:,} rows of {done.version} are in {done.uri}: {len(done.files):,} files, {size}"
    )
    if done.scale is not None:
        print(f"scale of the int8 values: {done.scale!r}")
    if done.zero_rows:
        what = "left out" if done.layout.zero_rows == "skip" else "kept"
        print(f"{done.zero_rows:,} rows are zero vectors; they are {what}, see _zero_rows.txt")
    if done.held:
        print(f"the version is held: {'; '.join(done.held)}")
    print(done.loading)
