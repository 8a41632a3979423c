"""Which URIs the inputs of a job name, and which names count under each."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.io.readers.places import expand
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.places import ObjectInput
from embertide.spec.tables import TABLE_FORMATS


def _object_inputs(job: EmbeddingJob) -> list[ObjectInput]:
    """The inputs that are objects: edges, features and node tables, unless they are tables."""
    inputs = (item for _, item in job.spec.object_inputs)
    return [item for item in inputs if item.format not in TABLE_FORMATS]


def fitting_uris(storage: Storage, job: EmbeddingJob) -> dict[str, list[str]]:
    """Each place of an input -> its URI, or those that fit it where it is a pattern."""
    places = {place for item in _object_inputs(job) for place in item.places}
    return {place: expand(storage, place) for place in sorted(places)}


def uris_of(job: EmbeddingJob, fitted: Mapping[str, list[str]]) -> list[str]:
    """What the manifest names as edges, features, their ids, and node tables, unless as tables."""
    uris = [uri for item in _object_inputs(job) for place in item.places for uri in fitted[place]]
    features = [node.features for node in job.spec.input.nodes if node.features is not None]
    return [*uris, *(uri for item in features if (uri := item.ids_uri) is not None)]


def included_names(job: EmbeddingJob, fitted: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """URI -> patterns of the names that inputs include there; none where an input has all."""
    inputs = [
        (item.include, uri)
        for item in _object_inputs(job)
        for place in item.places
        for uri in fitted[place]
    ]
    features = [node.features for node in job.spec.input.nodes if node.features is not None]
    inputs += [(item.include, item.ids_uri) for item in features if item.ids_uri is not None]
    whole = {uri for include, uri in inputs if include is None}
    patterns: dict[str, list[str]] = {}
    for include, uri in inputs:
        if include is not None and uri not in whole:
            patterns.setdefault(uri, []).append(include)
    return patterns
