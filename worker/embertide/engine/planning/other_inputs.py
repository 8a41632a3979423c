"""Inputs other than nodes and edges: pairs that get scores, targets, references."""

from __future__ import annotations

from collections.abc import Sequence

from embertide.errors import InputError
from embertide.io.readers.edges import split_edges
from embertide.io.readers.nodes import split_nodes
from embertide.io.readers.reference import reference_uri, split_reference
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EmbeddingJob, Input, NodeInput
from embertide.spec.result_names import UNNAMED


def split_pairs(storage: Storage, data: Input, sources: Sources) -> list[Split]:
    """The splits of the pairs that get scores, if there are any."""
    if data.pairs is None:
        return []
    edges = data.pairs.edges
    kinds = data.node(edges.source_type).ids, data.node(edges.destination_type).ids
    return split_edges(storage, edges, ids=kinds, sources=sources)


def split_chosen(storage: Storage, job: EmbeddingJob, sources: Sources) -> list[Split]:
    """The splits of the table of targets, if there is one."""
    targets = job.spec.inference.targets
    if targets is None or targets.table is None:
        return []
    name = targets.node_type or _only_type(job)
    ids = None if name is None else job.spec.input.node(name).ids
    return split_nodes(storage, targets.table, ids=ids, sources=sources)


def _only_type(job: EmbeddingJob) -> str | None:
    """The one node type that may be published; None where there are several."""
    names = job.spec.output.node_types or [node.name for node in job.spec.input.nodes]
    return names[0] if len(names) == 1 else None


def references(
    storage: Storage, job: EmbeddingJob, node: NodeInput, results: Sequence[str]
) -> dict[str, list[Split]]:
    """The model's own references for a node type, those that there are, by result."""
    several, model = len(job.spec.input.nodes) > 1, job.spec.model.uri
    if model is None:
        return {}
    names = ["", *results, *(job.spec.output.results or [])]
    uris = {
        name: reference_uri(model, node.name if several else None, name)
        for name in dict.fromkeys(names)
    }
    there = {name: uri for name, uri in uris.items() if storage.stat(uri) is not None}
    if "" in there and results and UNNAMED not in results:
        raise InputError(
            f"{there['']} does not name the result that it is of: the model gives"
            f" {', '.join(results)}; name it {uris[results[0]].rpartition('/')[2]}, say"
        )
    return {name: split_reference(storage, uri, node.ids) for name, uri in there.items()}
