"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from embertide.spec.manifest import EmbeddingJob, StorageSettings

_GRID_FORM = "must be GRAPHxFEATURE, two whole numbers from 1, such as 2x2; or auto"


def parse_grid(text: str) -> tuple[int, int] | None:
    """``2x2`` -> (2, 2): graph partitions, feature partitions; ``auto`` -> None."""
    if text == "auto":
        return None
    parts = text.lower().split("x")
    # isascii, because int() reads any script's digits.
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise typer.BadParameter(f"{text!r} {_GRID_FORM}")
    graph, feature = int(parts[0]), int(parts[1])
    if graph < 1 or feature < 1:
        raise typer.BadParameter(f"{text!r} {_GRID_FORM}")
    return graph, feature


def check_workers(grid: tuple[int, int] | None, workers: int | None) -> None:
    """Refuse a number of workers that the grid on the same command line does not have."""
    if grid is None or workers is None or workers == grid[0] * grid[1]:
        return
    size = grid[0] * grid[1]
    raise typer.BadParameter(
        f"--workers {workers} does not fit --grid {grid[0]}x{grid[1]}, which has {size} workers; "
        "leave one of them out"
    )


JobArgument = Annotated[
    Path, typer.Argument(metavar="JOB.yaml", help="The EmbeddingJob manifest.", show_default=False)
]
GridOption = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="PxM",
        help="Graph partitions times feature partitions, such as 2x2, or auto. "
        "Overrides the manifest.",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Number of workers; the grid is chosen for it.",
        show_default=False,
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--endpoint-url", metavar="URL", help="An S3-compatible store.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for machines to stdout.")]


def grid_of(text: str | None) -> tuple[int, int] | None:
    """The grid option's value; None where it was not given or is auto."""
    return None if text is None else parse_grid(text)


def load_job(path: Path) -> EmbeddingJob:
    """Read the manifest; raises ManifestError."""
    from embertide.spec import load_manifest

    return load_manifest(path)


def with_workers(job: EmbeddingJob, **changes: Any) -> EmbeddingJob:
    """The job with some of ``spec.workers`` replaced by options of the command line."""
    workers = job.spec.workers.model_copy(update=changes)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"workers": workers})})


def location(name: str, text: str) -> str:
    """A URI or path of the command line, where relative paths start here."""
    from embertide.spec.manifest import normalise_uri

    try:
        return normalise_uri(text, Path.cwd())
    except ValueError as error:
        raise typer.BadParameter(f"{name} {error}") from None


def endpoint_settings(endpoint_url: str | None) -> StorageSettings | None:
    """The storage settings that ``--endpoint-url`` means."""
    from embertide.spec.manifest import StorageSettings

    if endpoint_url is None:
        return None
    try:
        return StorageSettings(endpoint_url=endpoint_url)
    except ValueError:
        message = f"--endpoint-url is {endpoint_url!r}; must be like https://minio.example:9000"
        raise typer.BadParameter(message) from None
