"""The package's functions for Python: the same as the commands, with values instead of screens.

Each takes locations as the command line does: ``s3://bucket/path``, ``file:///path``, or a path,
where relative ones start in the current directory. Everything is imported by the function that
needs it, so that reading loads no torch and planning no S3 client.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, StorageSettings, normalise_uri
from embertide.spec.problems import dotted
from embertide.spec.problems import explain as problems_in

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import nn

    from embertide.facts.telemetry.estimate import Estimate
    from embertide.facts.telemetry.progress import OnProgress
    from embertide.facts.telemetry.report import RunReport
    from embertide.io.versions.catalog import VersionInfo
    from embertide.io.versions.deltas import Changes
    from embertide.io.versions.embeddings import Embeddings
    from embertide.io.versions.neighbors import Neighbor
    from embertide.tracing.export import Export
    from embertide.tracing.table_rows import TableIds

    Location = str | os.PathLike[str]
    Job = EmbeddingJob | Location | Mapping[str, Any]


def read(
    output_uri: Location,
    version: str | None = None,
    *,
    ids: Iterable[int | str] | None = None,
    missing: Literal["error", "skip"] = "error",
    node_type: str | None = None,
    result: str | None = None,
    targets: bool = False,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> Embeddings:
    """The embeddings of a version, or of one of its node types, in memory: all, or some ids'.

    Examples::

        table = embertide.read("embeddings").table
        ids, vectors = embertide.read("s3://shop/embeddings", region="eu-west-1").to_numpy()
        frame = embertide.read("embeddings", "20261121T041922Z-3fa9c1").to_pandas()
        ids, vectors = embertide.read("embeddings", ids=[3, 17]).to_numpy()
        logits = embertide.read("embeddings", result="logits").table

    Args:
        output_uri: where a job publishes: its ``output.uri``.
        version: one of `list_versions`; by default the current one.
        ids: of the rows to read, which come in this order, each id once; only the parts that may
            have them are opened. By default all rows, in the order of the parts.
        missing: what happens where the version does not have one of the ids: ``error``, or ``skip``
            to leave it out.
        node_type: which embeddings, where a version has those of several node types.
        result: which result, where the model gives several.
        targets: read the versions of some nodes alone (``inference.targets``), which are apart from
            those of all nodes.
        endpoint_url: of an S3-compatible store, such as ``https://minio.example:9000``.
        region: of the bucket. Credentials come from the environment, a profile or a role.
        path_style: whether the bucket is part of the path; by default it is where there is an
            ``endpoint_url``.

    Raises:
        InputError: no such node type or result, or none given where there are several; lists them.
            Or an id is not there, or is no string or number as the version's are.
        ObjectMissing: nothing was published yet, or there is no such complete version; lists
            those there are.
        OutputError: a part is missing or damaged.
        StorageError: the store refused or failed.
        ValueError: the location or a setting is malformed.
    """
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.reading import read_version

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    storage, uri = open_storage(settings), _versions_of(output_uri, targets)
    if ids is None:
        return read_version(storage, uri, version, node_type, result)
    from embertide.io.versions.lookup import read_rows_of

    return read_rows_of(storage, uri, ids, version, node_type, missing, result)


def read_delta(
    output_uri: Location,
    version: str | None = None,
    *,
    node_type: str | None = None,
    result: str | None = None,
    targets: bool = False,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> Changes:
    """What changed in a version since the one before, where the job has ``output.delta``.

    Example::

        changes = embertide.read_delta("embeddings")
        assert changes.base == version_that_i_have  # else read the version in full
        ids, vectors = changes.upserts["id"], changes.upserts["embedding"]
        gone = changes.deletes

    Args are those of `read`.

    Raises:
        InputError: the version has no delta, and why; or no such node type or result.
        ObjectMissing, OutputError, StorageError, ValueError: as `read`.
    """
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.deltas import read_changes

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    uri = _versions_of(output_uri, targets)
    return read_changes(open_storage(settings), uri, version, node_type, result)


def read_scores(
    output_uri: Location,
    version: str | None = None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> pa.Table:
    """The scores of the pairs of a version, as a ``pyarrow.Table``, in the order of the pairs.

    Its columns are ``source``, ``destination`` and ``score``.

    Example::

        scores = embertide.read_scores("embeddings").to_pandas()

    Args and errors are those of `read`; a version without pairs is an InputError.
    """
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.score_parts import read_score_table

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    return read_score_table(open_storage(settings), _uri(output_uri), version)


def neighbors(
    output_uri: Location,
    ids: Iterable[int | str] | int | str,
    *,
    k: int = 10,
    metric: Literal["cosine", "dot", "l2"] = "cosine",
    prefix: str = "",
    version: str | None = None,
    node_type: str | None = None,
    from_type: str | None = None,
    result: str | None = None,
    targets: bool = False,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> dict[str, list[Neighbor]]:
    """The nearest embeddings of some ids, best first; exact, with bounded memory.

    Example::

        for near in embertide.neighbors("embeddings", "u_17", node_type="item")["u_17"]:
            print(near.id, near.score)

    Args:
        ids: one id or several; the result has each as text.
        k: how many neighbors of each.
        metric: ``cosine`` and ``dot`` are similarities, ``l2`` is a distance.
        prefix: only ids that begin with it are compared with.
        node_type: whose embeddings are compared with, in a version of several types.
        from_type: the node type of ``ids``; by default ``node_type``, and where it does not have an
            id another type that does.
        version, result, targets, endpoint_url, region, path_style: as for `read`.

    Raises:
        InputError: an id is not there, or in several types; or as `read`.
        ObjectMissing, OutputError, StorageError, ValueError: as `read`.
    """
    from embertide.errors import InputError
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions.catalog import latest
    from embertide.io.versions.neighbors import nearest_in_version

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    storage, uri = open_storage(settings), _versions_of(output_uri, targets)
    if k < 1 or metric not in ("cosine", "dot", "l2"):
        raise ValueError(
            f"k is {k} and metric {metric!r}; must be at least 1, and cosine, dot or l2"
        )
    given = ids if isinstance(ids, Iterable) and not isinstance(ids, str) else [ids]
    answer = nearest_in_version(
        storage,
        uri,
        version if version is not None else latest(storage, uri).version,
        [str(one) for one in given],
        k,
        metric,
        prefix,
        node_type=node_type,
        from_type=from_type,
        result=result,
    )
    if answer.unknown:
        raise InputError("\n".join(answer.unknown.values()))
    return answer.found


def list_versions(
    output_uri: Location,
    *,
    targets: bool = False,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> list[VersionInfo]:
    """The complete versions of an output, oldest first; [] before the first.

    Example::

        newest = embertide.list_versions("embeddings")[-1]
        print(newest.version, newest.rows, newest.dim, newest.current)

    Args and errors are those of `read`.
    """
    from embertide.io.storage.opening import open_storage
    from embertide.io.versions import catalog

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    return catalog.list_versions(open_storage(settings), _versions_of(output_uri, targets))


def plan(
    job: Job,
    *,
    grid: GridShape | str | None = None,
    workers: int | None = None,
    at: str | None = None,
    time_zone: str = "UTC",
) -> Estimate:
    """What a run of a job would read, hold in memory and send; nothing is computed.

    Example::

        estimate = embertide.plan("job.yaml", grid="2x2")
        print(estimate.peak_memory_per_worker_bytes, estimate.traffic_total_bytes)

    Args:
        job: a manifest's path, its YAML text, the same as a dict, or an `EmbeddingJob`. In text
            and dicts all locations are absolute, as there is no file that they could start at.
        grid: such as ``"2x2"``; by default the manifest's, else a graph partition for each of
            ``workers``.
        workers: how many; by default the manifest's ``count``, else one.
        at: fill the job's placeholders, such as ``{date-1d}``, as a schedule does at that time:
            ``now``, ``2026-11-22`` or ``2026-11-22T03:00``.
        time_zone: of ``at`` and of the placeholders.

    Raises:
        ManifestError: the job is malformed; has every problem.
        EmbertideError: the inputs or the model cannot be read, or the grid does not fit.
        ValueError: ``grid`` is malformed, or does not have ``workers`` workers.
    """
    from embertide.engine.planning.estimate import estimate_job

    return estimate_job(_job(job, at, time_zone), grid=_grid(grid, workers), workers=workers)


def run(
    job: Job,
    *,
    grid: GridShape | str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    force: bool = False,
    at: str | None = None,
    time_zone: str = "UTC",
    on_progress: OnProgress | None = None,
) -> RunReport:
    """Compute the embeddings of all nodes and publish them as a new version.

    Where inputs, model and job are those of the current version, it is confirmed instead: the
    report is that of the run that computed it, and its ``confirmed`` is True.

    The workers are processes of this machine, as with ``embertide run``. Ctrl-C stops them.
    Unlike the command, this does not push the version into the index of ``spec.push``.

    Example::

        report = embertide.run("job.yaml", workers=4)
        ids, vectors = embertide.read("embeddings", report.version).to_numpy()

    Args:
        job: as for `plan`.
        grid: as for `plan`.
        workers: as for `plan`.
        threads: compute threads of each worker; by default the cores, shared evenly.
        force: compute a version also where the current one is up to date.
        at, time_zone: as for `plan`.
        on_progress: called with each `embertide.facts.telemetry.progress.Progress`; by default a
            notebook or IPython shows a line that is rewritten, and other programs show nothing.

    Raises:
        EmbertideError: whatever went wrong, as its own type. The previous version stays.
        ValueError: ``grid`` is malformed, or does not have ``workers`` workers.
    """
    from embertide.facts.telemetry.notebook_progress import line_in_notebooks
    from embertide.launch.local import run_job

    manifest, shape = _job(job, at, time_zone), _grid(grid, workers)
    with line_in_notebooks(on_progress) as shown:
        return run_job(
            manifest.forced() if force else manifest,
            grid=shape,
            workers=workers,
            threads=threads,
            on_progress=shown,
        )


def export(
    module: nn.Module,
    out: Location | None = None,
    *,
    explain: bool = False,
    sample: object = None,
    inputs: Mapping[str, str] | None = None,
    width: int | None = None,
    graph: Job | None = None,
    tables: Mapping[str, str | Sequence[str]] | Sequence[str] | str | None = None,
    table_ids: Mapping[str, TableIds] | TableIds | None = None,
    edge_features: int | None = None,
    categories: Mapping[Any, Any] | None = None,
    edge_categories: Mapping[Any, Any] | None = None,
    results: Sequence[str] = (),
    decoder: str | nn.Module | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    path_style: bool | None = None,
) -> Export:
    """Write a trained PyG or DGL module as a model that jobs run.

    Runs ``forward`` on small random graphs, writes what it does as a program and proves that both
    agree in float64; docs/export.md says what a module may do. The module stays as it is.

    Example::

        done = embertide.export(model, "s3://shop/model")
        print(done.proof.largest_error, [layer.name for layer in done.summary.layers])
        print(embertide.export(model, explain=True).explanation.arguments)

    Args:
        module: as it was trained, with its weights.
        out: the folder, which a job's ``model.uri`` then names; not needed with ``explain``.
        explain: write nothing; ``explanation`` of the result has what was understood.
        sample: real tensors that ``forward`` takes, in its order or by its arguments' names, such
            as ``(x, edge_index)``, also as dicts by type: they give width, edge_features, graph and
            categories where these are left out. Of integers each column is categories, as many as
            its largest value + 1. ``sample`` of the result has what was taken.
        inputs: argument of ``forward`` -> ``x``, ``edge_index``, ``edge_weight``,
            ``edge_features``, ``edge_type``, ``graph``, ``blocks`` or ``data``, where its name
            does not tell.
        width: columns of the features, where the module does not tell.
        graph: node types and relations of a module that knows several: a job, or a mapping
            ``{"nodes": {"user": 64}, "edges": [("user", "follows", "user")]}`` with the columns of
            each type's features (of PyG's ``data``: ``data.num_node_features`` and
            ``data.edge_types``, or ``data.num_edge_features`` where edges have features).
        tables: node type -> an ``nn.Embedding`` or parameter with a row for each of its nodes,
            or several of them, which the model reads beside their features or in their place; the
            names alone in a graph of one type.
        table_ids: node type -> the id that each row of its tables is of, whole numbers or texts;
            the ids alone in a graph of one type. Without, row i is of the dense id i.
        edge_features: columns of the edges' features in a graph of one type, where the module
            does not tell them.
        categories: columns of the features that hold categories, whole numbers from 0, and how
            many: ``{0: 10}``; with ``graph`` by node type, ``{"user": {0: 10}}``.
        edge_categories: the same of edges, by relation.
        results: names of what ``forward`` returns, where it returns several tensors: of a tuple in
            its order, ``"-"`` for one to leave out; of a dict those to keep.
        decoder: what gives pairs of nodes scores: the name of a method or part of the module, such
            as ``"decode"``, or a module.
        endpoint_url, region, path_style: as for `read`.

    Raises:
        ModelError: the module does what no program can say, or the two differ; names the line of
            its code. Or the sample does not fit. Nothing is written.
        ValueError: there is no ``out``, or it is malformed.
    """
    from embertide.io.storage.opening import open_storage
    from embertide.tracing.export import export_module
    from embertide.tracing.graph_types import named_types
    from embertide.tracing.sample import Sample, read_sample

    settings = _settings(endpoint_url=endpoint_url, region=region, path_style=path_style)
    if out is None and not explain:
        raise ValueError("out is missing; only explain=True does without it")
    uri, storage = None if out is None else _uri(out, "model"), open_storage(settings)
    named = tables if isinstance(tables, Mapping) else {"": tables} if tables else {}
    ids = table_ids if isinstance(table_ids, Mapping) else {"": table_ids}
    shown = Sample()
    if sample is not None:
        shown = read_sample(module, sample, inputs or {}, tables=bool(named))
    types = None if graph is None else named_types(graph, storage)
    used = shown.under(types, width, edge_features, categories, edge_categories)
    with nullcontext() if sample is None else used.in_errors():
        done = export_module(
            module,
            inputs=inputs,
            width=used.width,
            graph=used.graph,
            tables=named,
            table_ids={kind: of for kind, of in ids.items() if of is not None},
            edge_features=used.edge_features,
            weighted=used.weighted,
            categories=used.categories,
            edge_categories=used.edge_categories,
            results=results,
            decoder=decoder,
        )
    done = done if sample is None else replace(done, sample=used)
    if uri is not None and not explain:
        done.write(storage, uri)
    return done


def _job(job: Job, at: str | None, time_zone: str) -> EmbeddingJob:
    """The job, with its placeholders filled in, which need a time."""
    from embertide.submit.firing import Firing
    from embertide.submit.template import job_at, refuse_placeholders

    if isinstance(job, EmbeddingJob):
        if at is not None:
            raise ValueError("at fills a manifest's path, text or dict; this is an EmbeddingJob")
        refuse_placeholders(job)
        return job
    given = json.dumps(job) if isinstance(job, Mapping) else job
    place = given if isinstance(given, str) else Path(given)
    return job_at(place, None if at is None else Firing.of_text(at, time_zone))


def _grid(grid: GridShape | str | None, workers: int | None) -> GridShape | None:
    shape = GridShape.parse(grid) if isinstance(grid, str) else grid
    if shape is not None and workers not in (None, shape.workers):
        raise ValueError(
            f"workers is {workers}, but the grid {shape} has {shape.workers}; leave one of them out"
        )
    return shape


def _uri(location: Location, what: str = "output") -> str:
    try:
        return normalise_uri(os.fspath(location), Path.cwd())
    except ValueError as error:
        raise ValueError(f"the {what}'s location {error}") from None


def _versions_of(output_uri: Location, targets: bool) -> str:
    """Where the versions are: those of all nodes, or of some alone."""
    from embertide.spec.version_names import targets_uri

    uri = _uri(output_uri)
    return targets_uri(uri) if targets else uri


def _settings(**given: Any) -> StorageSettings:
    try:
        return StorageSettings(**given)
    except ValidationError as error:
        problems = problems_in(StorageSettings, error)
        raise ValueError("; ".join(f"{dotted(loc)} {text}" for loc, text in problems)) from None
