"""A whole made-up job: graph, features, weights, and the manifest that runs it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import yaml

from embertide.edge.synth import hetero
from embertide.edge.synth.options import SynthOptions
from embertide.edge.synth.write import (
    Progress,
    Written,
    edge_feature_names,
    write_edges,
    write_features,
)
from embertide.errors import ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import StorageSettings


@dataclass(frozen=True)
class SynthReport:
    """What was written. ``seconds`` are of wall clock; ``size`` is in bytes, model excluded."""

    job_uri: str
    edges_uri: str
    features_uri: str
    model_uri: str
    output_uri: str
    nodes: int
    edges: int
    objects: int
    size: int
    edge_seconds: float
    feature_seconds: float


@dataclass(frozen=True)
class _Places:
    edges: str
    features: str
    feature_ids: str
    nodes: str
    model: str
    output: str
    job: str

    @classmethod
    def under(cls, uri: str) -> _Places:
        root = uri.rstrip("/") + "/"
        return cls(
            edges=root + "edges/",
            features=root + "features/",
            feature_ids=root + "feature-ids/",
            nodes=root + "nodes/",
            model=root + "model/",
            output=root + "embeddings/",
            job=root + "job.yaml",
        )


def synthesize(
    storage: Storage,
    out_uri: str,
    options: SynthOptions,
    progress: Progress | None = None,
    settings: StorageSettings | None = None,
) -> SynthReport:
    """Write a job ready for ``embertide run`` under ``out_uri``.

    ``job.yaml`` comes last, so that it only exists when everything it names does; ``settings``
    go into it. Raises OutputError when edges or features are there already, since files of
    two graphs would be read as one; ModelError for widths that do not go together; StorageError
    as the store does.
    """
    places = _Places.under(out_uri)
    for uri in (places.edges, places.features, places.feature_ids, places.nodes):
        _refuse_used(storage, uri)
    report = progress or _silent
    # First, since the widths and heads asked for may be refused.
    _write_model(storage, places.model, options)
    began = time.perf_counter()
    edges = _write_edges(storage, places, options, report)
    edges_done = time.perf_counter()
    features = _write_features(storage, places, options, report)
    features_done = time.perf_counter()
    storage.write(places.job, manifest_text(places, options, settings).encode())
    written = [storage.stat(uri) for uri in (*edges.uris, *features.uris)]
    return SynthReport(
        job_uri=places.job,
        edges_uri=places.edges,
        features_uri=places.features,
        model_uri=places.model,
        output_uri=places.output,
        nodes=options.nodes,
        edges=options.edges,
        objects=len(written),
        size=sum(info.size for info in written if info is not None),
        edge_seconds=edges_done - began,
        feature_seconds=features_done - edges_done,
    )


def _silent(what: str, done: int, total: int) -> None:
    """Discard progress."""


def _write_edges(
    storage: Storage, places: _Places, options: SynthOptions, report: Progress
) -> Written:
    write = hetero.write_all_edges if options.hetero else write_edges
    return write(storage, places.edges, options, report)


def _write_features(
    storage: Storage, places: _Places, options: SynthOptions, report: Progress
) -> Written:
    features, ids = places.features, places.feature_ids
    if options.hetero:
        return hetero.write_all_features(storage, features, ids, places.nodes, options, report)
    return write_features(storage, features, ids, options, report)


def _refuse_used(storage: Storage, uri: str) -> None:
    try:
        found = storage.list(uri)
    except ObjectMissing:
        return
    raise OutputError(
        f"{uri} holds {len(found)} objects already; delete them or choose another place"
    )


def _write_model(storage: Storage, uri: str, options: SynthOptions) -> None:
    # Models need torch, which takes seconds to import; edges and features do without.
    from embertide.models.synth import write_random_model, write_random_typed_model

    if options.hetero:
        widths = dict.fromkeys(hetero.WITH_FEATURES, options.width)
        write_random_typed_model(
            storage,
            uri,
            hetero.relations(),
            widths,
            layers=options.layers,
            hidden=options.hidden,
            out=options.out,
            seed=options.seed,
        )
        return
    write_random_model(
        storage,
        uri,
        options.conv,
        layers=options.layers,
        width_in=options.width,
        hidden=options.hidden,
        out=options.out,
        heads=options.heads,
        edge_features=options.edge_features,
        seed=options.seed,
    )


def manifest_text(places: _Places, options: SynthOptions, settings: StorageSettings | None) -> str:
    """The EmbeddingJob as yaml."""
    spec: dict[str, Any] = {
        "input": {"edges": _edge_inputs(places, options), "nodes": _node_inputs(places, options)},
        "model": {"uri": places.model},
        "output": {"uri": places.output},
    }
    if settings is not None:
        spec["storage"] = settings.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": options.name},
        "spec": spec,
    }
    return yaml.safe_dump(job, sort_keys=False)


def _edge_inputs(places: _Places, options: SynthOptions) -> list[dict[str, Any]]:
    edges: dict[str, Any] = {"uri": places.edges, "format": options.edge_format}
    if options.weights:
        edges["columns"] = {"weight": 2 if options.edge_format == "npy" else "weight"}
    if options.edge_features:
        first, columns = 2 + options.weights, edge_feature_names(options)
        numbers = list(range(first, first + len(columns)))
        edges["features"] = {"columns": numbers if options.edge_format == "npy" else columns}
    return hetero.edge_inputs(places.edges, edges) if options.hetero else [edges]


def _node_inputs(places: _Places, options: SynthOptions) -> list[dict[str, Any]]:
    if not options.hetero:
        features = _feature_input(options, places.features, places.feature_ids)
        return [_node_input(options, options.nodes) | {"features": features}]
    found = []
    for name, count in hetero.counts(options).items():
        nodes = {"name": name, **_node_input(options, count)}
        if name in hetero.WITH_FEATURES:
            uris = f"{places.features}{name}/", f"{places.feature_ids}{name}/"
            nodes["features"] = _feature_input(options, *uris)
        elif options.ids != "dense":
            nodes["table"] = {"uri": f"{places.nodes}{name}/"}
        found.append(nodes)
    return found


def _node_input(options: SynthOptions, count: int) -> dict[str, Any]:
    nodes: dict[str, Any] = {"ids": options.ids}
    return nodes | ({"count": count} if options.ids == "dense" else {})


def _feature_input(options: SynthOptions, uri: str, ids_uri: str) -> dict[str, Any]:
    features: dict[str, Any] = {"uri": uri, "format": options.feature_format}
    if options.feature_format == "parquet":
        features |= {"idColumn": "id", "vectorColumn": "x"}
    elif options.ids != "dense":
        features["idsUri"] = ids_uri
    return features
