"""Options and arguments that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from embertide.spec.grid import GridShape
    from embertide.spec.manifest import EmbeddingJob, StorageSettings


def grid_of(text: str | None) -> GridShape | None:
    """The grid option's value; None where it was not given or is auto."""
    if text in (None, "auto"):
        return None
    from embertide.spec.grid import GridShape

    try:
        return GridShape.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; or auto") from None


def check_workers(grid: GridShape | None, workers: int | None) -> None:
    """Refuse a number of workers that the grid on the same command line does not have."""
    if grid is None or workers is None or workers == grid.workers:
        return
    raise typer.BadParameter(
        f"--workers {workers} does not fit --grid {grid}, which has {grid.workers} workers; "
        "leave one of them out"
    )


JobArgument = Annotated[
    Path, typer.Argument(metavar="JOB.yaml", help="The EmbeddingJob manifest.", show_default=False)
]
OptionalJob = Annotated[
    Path | None, typer.Argument(metavar="JOB.yaml", help="The manifest.", show_default=False)
]
VersionOption = Annotated[
    str,
    typer.Option(
        "--version",
        metavar="VERSION",
        help="Which version: as `embertide versions` lists it, or previous.",
    ),
]
NodeTypeOption = Annotated[
    str | None,
    typer.Option(
        "--node-type",
        metavar="TYPE",
        help="Which embeddings, where there are those of several node types.",
        show_default=False,
    ),
]
ResultOption = Annotated[
    str | None,
    typer.Option(
        "--result",
        metavar="NAME",
        help="Which result, where the model gives several.",
        show_default=False,
    ),
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
        help="Number of workers: as many graph partitions. Default: the manifest's, else 1.",
        show_default=False,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Most memory of a worker, with its imports, such as 2GiB: tensors that do not fit "
        "are on disk, and edges and the graph where that is not enough. Overrides the manifest.",
        show_default=False,
    ),
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-memory",
        metavar="SIZE",
        help="Most memory of its GPU that a worker may take with device cuda, such as 8GiB: "
        "tensors that do not fit are in host memory. Overrides the manifest. Default: what is "
        "free.",
        show_default=False,
    ),
]
ScratchOption = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="Folder on a local disk for what does not fit in --memory. Overrides the "
        "manifest. Default: the system's folder for temporary files.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="URI",
        help="Look at this output, without a manifest.",
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


AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Fill {date-1d} and the like in JOB.yaml as a schedule does at a time, such as now "
        "or 2026-11-22.",
        show_default=False,
    ),
]
TimeZoneOption = Annotated[
    str, typer.Option("--time-zone", metavar="ZONE", help="Of --at and {date}.")
]


def load_job(path: Path, at: str | None = None, time_zone: str = "UTC") -> EmbeddingJob:
    """Read the manifest, and fill its placeholders, which need a time; raises ManifestError."""
    from embertide.submit.firing import Firing
    from embertide.submit.template import job_at

    if at is None and time_zone != "UTC":
        raise typer.BadParameter("--time-zone is of --at; give both")
    try:
        firing = None if at is None else Firing.of_text(at, time_zone)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return job_at(path, firing)


def process_began() -> float:
    """When this process began, in seconds since the epoch: the user's wait starts there."""
    import psutil

    return float(psutil.Process().create_time())


def with_workers(job: EmbeddingJob, **changes: Any) -> EmbeddingJob:
    """The job with some of ``spec.workers`` replaced by options of the command line."""
    workers = job.spec.workers.model_copy(update=changes)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"workers": workers})})


def with_device(job: EmbeddingJob, device: str) -> EmbeddingJob:
    """The job on another device; a CPU has no use for the memory that the manifest gives a GPU."""
    memory = {"device_memory": None} if device == "cpu" else {}
    return with_workers(job, device=device, **memory)


_NO_GPU = (
    "--gpu-memory has no effect with device cpu: set spec.workers.device: cuda (run --device cuda),"
    " or leave it out"
)


def with_memory(
    job: EmbeddingJob, memory: str | None, gpu_memory: str | None = None
) -> EmbeddingJob:
    """The job with the memory of a worker and of its GPU that the command line sets, if it does."""
    from embertide.spec.workers import parse_memory

    options = {"--memory": memory, "--gpu-memory": gpu_memory}
    for option, text in options.items():
        try:
            parse_memory("1GiB" if text is None else text)
        except ValueError as error:
            raise typer.BadParameter(f"{option} {error}") from None
    if gpu_memory is not None and job.spec.workers.device != "cuda":
        raise typer.BadParameter(_NO_GPU)
    changes = {"memory": memory, "device_memory": gpu_memory}
    return with_workers(job, **{field: text for field, text in changes.items() if text is not None})


@dataclass(frozen=True)
class Place:
    """An output and how to reach it; ``job`` is None where no manifest was given."""

    uri: str
    storage: StorageSettings | None
    job: EmbeddingJob | None = None


def place_of(job_path: Path | None, output: str | None, endpoint_url: str | None) -> Place:
    """The output that the manifest or the options name."""
    if (job_path is None) == (output is None):
        raise typer.BadParameter("give either JOB.yaml or --output URI")
    if output is not None:
        return Place(location("--output", output), endpoint_settings(endpoint_url))
    assert job_path is not None
    if endpoint_url is not None:
        raise typer.BadParameter("--endpoint-url goes with --output; JOB.yaml has its own")
    from embertide.submit.template import job_to_read

    job = job_to_read(job_path)
    return Place(job.spec.published_uri, job.spec.storage, job)


def job_and_rest(words: list[str], output: str | None, rest: str) -> tuple[Path | None, list[str]]:
    """The manifest's path, which ``--output`` replaces, and the arguments after it.

    Args:
        rest: what those are called.
    """
    first = Path(words[0])
    if output is not None:
        if first.suffix in (".yaml", ".yml") and first.exists():
            raise typer.BadParameter("give either JOB.yaml or --output URI")
        return None, words
    if len(words) < 2:
        raise typer.BadParameter(f"give JOB.yaml and {rest}, or --output URI and {rest}")
    return first, words[1:]


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
