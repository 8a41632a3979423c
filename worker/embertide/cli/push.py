"""``embertide push``: a version into an index that serves it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from embertide.cli.options import (
    EndpointOption,
    JsonOption,
    NodeTypeOption,
    OptionalJob,
    OutputOption,
    ResultOption,
    VersionOption,
    place_of,
)
from embertide.cli.versions import named_version

if TYPE_CHECKING:
    from embertide.cli.options import Place
    from embertide.edge.indexes.push.push import Pushed
    from embertide.spec.push import Push

_HOW = {
    "full": "was loaded",
    "delta": "was made of the version before and its delta",
    "there": "was there",
}


def push(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="The index, in place of the manifest's spec.push: postgresql://HOST/DB,"
            " qdrant+https://HOST:6333, milvus+https://HOST:19530, lancedb:///PATH,"
            " lancedb+s3://BUCKET/PREFIX.",
            show_default=False,
        ),
    ] = None,
    job_path: OptionalJob = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The alias or view that readers use. Default: the job's name, or the output's"
            " last folder.",
            show_default=False,
        ),
    ] = None,
    version: VersionOption = "current",
    node_type: NodeTypeOption = None,
    result: ResultOption = None,
    metric: Annotated[
        Literal["cosine", "l2", "ip"] | None,
        typer.Option(
            "--metric", help="By which readers search. Default: cosine.", show_default=False
        ),
    ] = None,
    vectors: Annotated[
        Literal["float32", "float16"] | None,
        typer.Option("--vectors", help="Element type. Default: float32.", show_default=False),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Divide vectors by their L2 norm, but zero ones. Default: no.",
            show_default=False,
        ),
    ] = None,
    search_index: Annotated[
        bool | None,
        typer.Option(
            "--search-index/--no-search-index",
            help="Build an HNSW index before the switch (PostgreSQL). Default: yes.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        Literal["auto", "all"] | None,
        typer.Option(
            "--rows",
            help="all: send every row, though the version has a delta. Default: auto.",
            show_default=False,
        ),
    ] = None,
    held: Annotated[
        bool, typer.Option("--held", help="Push a version although its gate holds it.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            metavar="N",
            help="Versions to keep in the index; older are dropped. Default: 2.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Load again what an earlier push of the version began."),
    ] = False,
    output: OutputOption = None,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Load a published version into an index, and switch its readers to it.

    A new table or collection is loaded and verified; then the alias or view that readers use
    moves to it in one step, and older ones are dropped. Readers never see half a version. A push
    that was interrupted goes on where it ended. To go back, push the older version.

    Without --to the index and all options are those of the manifest's spec.push, which the
    options given here override.

    Secrets come from the environment: PGPASSWORD, QDRANT_API_KEY, MILVUS_TOKEN.

    [bold]Examples[/bold]

      embertide push job.yaml   # as spec.push says
      embertide push job.yaml --to postgresql://db/shop
      embertide push job.yaml --to qdrant+https://q:6333
      embertide push job.yaml --to URL --version previous
      embertide push --output s3://shop/e --to URL --name e
    """
    from embertide.edge.indexes.push.configured import options_of, push_to
    from embertide.io.storage.opening import open_storage

    place = place_of(job_path, output, endpoint_url)
    options = {
        "name": name,
        "node_type": node_type,
        "result": result,
        "metric": metric,
        "vectors": vectors,
        "normalize": normalize,
        "search_index": search_index,
        "rows": rows,
        "keep_versions": keep,
    }
    wanted = _wanted(to, place, {key: value for key, value in options.items() if value is not None})
    storage = open_storage(place.storage)
    chosen = None if version == "current" else named_version(storage, place.uri, version)
    how = options_of(wanted, _default_name(place), version=chosen, held=held, restart=restart)
    with push_progress(shown=not json_output) as on_rows:
        done = push_to(wanted.uri, storage, place.uri, how, place.storage, on_rows)
    show_pushed(done, json_output=json_output)


def _wanted(to: str | None, place: Place, options: dict[str, Any]) -> Push:
    """The index of ``--to``, or that of the manifest, with the options of the command line."""
    from embertide.spec.push import Push

    if to is not None:
        # Not validated: the index's own messages name what is wrong with it.
        return Push.model_construct(uri=to, **options)
    configured = None if place.job is None else place.job.spec.push
    if configured is None:
        raise typer.BadParameter("give --to URL, or the index in spec.push of JOB.yaml")
    return configured.model_copy(update=options)


def _default_name(place: Place) -> str:
    from embertide.edge.indexes.push.configured import reader_name
    from embertide.edge.indexes.push.plan import default_name

    return default_name(place.uri) if place.job is None else reader_name(place.job)


def show_pushed(done: Pushed, *, json_output: bool) -> None:
    """Print what readers see now."""
    if not json_output:
        _print(done)
        return
    from embertide.cli.progress_view import write_json

    write_json(sys.stdout, {"event": "pushed", **asdict(done)})


@contextmanager
def push_progress(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rows")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print(done: Pushed) -> None:
    for table in done.tables:
        print(
            f"{table.alias}: {table.rows:,} rows of {done.version}; {table.table}"
            f" {_HOW[table.made]}, and is verified"
        )
        if table.previous not in ("", done.version):
            print(f"  readers saw {table.previous} before")
    for name in done.dropped:
        print(f"dropped {name}")
    for name in done.kept:
        print(f"not dropped: {name}, since it is in use; each push tries again")
