"""The push that a job's ``spec.push`` describes: of a command, a run and a pod alike."""

from __future__ import annotations

from collections.abc import Callable

from embertide.edge.indexes.push.plan import Options, default_name
from embertide.edge.indexes.push.push import Pushed, push
from embertide.edge.indexes.push.targets import open_index
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.naming import LABEL_SCHEDULE
from embertide.spec.push import Push
from embertide.spec.storage import StorageSettings


def reader_name(job: EmbeddingJob) -> str:
    """The name that readers use where the job does not set one: the job's or its schedule's.

    Each night a schedule makes a job of another name, and readers need one that stays.
    """
    return default_name(job.metadata.labels.get(LABEL_SCHEDULE) or job.metadata.name)


def options_of(
    wanted: Push,
    name: str,
    *,
    version: str | None = None,
    held: bool = False,
    restart: bool = False,
) -> Options:
    """What to push, and how.

    Args:
        name: that readers use where ``wanted`` does not set one.
        version: None is the current one.
    """
    return Options(
        name=wanted.name or name,
        version=version,
        node_type=wanted.node_type,
        result=wanted.result,
        metric=wanted.metric,
        vectors=wanted.vectors,
        normalize=wanted.normalize,
        search_index=wanted.search_index,
        deltas=wanted.rows == "auto",
        keep=wanted.keep_versions,
        held=held,
        restart=restart,
    )


def push_to(
    location: str,
    storage: Storage,
    output_uri: str,
    options: Options,
    settings: StorageSettings | None,
    on_rows: Callable[[int, int], None] = lambda _done, _all: None,
) -> Pushed:
    """Open the index and push; see :func:`embertide.edge.indexes.push.push.push` for the errors.

    Args:
        settings: how to access an index in S3; None is the environment's.
        on_rows: called with the rows that are in the index, and all rows.
    """
    index = open_index(location, settings)
    try:
        return push(storage, output_uri, index, options, on_rows)
    finally:
        index.close()


def push_current(
    storage: Storage,
    job: EmbeddingJob,
    on_rows: Callable[[int, int], None] = lambda _done, _all: None,
) -> Pushed:
    """Push the current version of a job's output as its ``spec.push`` says.

    Raises:
        EmbertideError: see :func:`embertide.edge.indexes.push.push.push`.
    """
    wanted = job.spec.push
    assert wanted is not None, "a job without spec.push pushes nothing"
    options = options_of(wanted, reader_name(job))
    return push_to(wanted.uri, storage, job.spec.published_uri, options, job.spec.storage, on_rows)
