"""Which of a model's tables a job reads, and which its features replace."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.models.tables import tables_of
from embertide.spec.manifest import EmbeddingJob
from embertide.storage.protocol import Storage

UNREAD = (
    "the model brings a table for the nodes of type {node_type!r}, {uri}, but the manifest gives"
    " them features: these were read in the table's place. Leave the features out to use the"
    " table, or make sure that they are its rows, by the job's own ids"
)
"""Warning of a table of the model that a run does not read."""


def tables_by_type(storage: Storage, job: EmbeddingJob) -> dict[str, str]:
    """Node type -> URI of the model's table of it."""
    found = tables_of(storage, job.spec.model.uri)
    names = [one.name for one in job.spec.input.nodes]
    if "" in found and len(names) == 1:
        return {names[0]: found[""]}
    return {name: uri for name, uri in found.items() if name in names}


def unread_tables(job: EmbeddingJob, tables: Mapping[str, str]) -> dict[str, str]:
    """Tables of node types whose features the manifest gives, from another file."""
    given = {node.name: node.features.location for node in job.spec.input.nodes if node.features}
    # A table's file has a name of its own, by its digest, wherever it was copied to.
    return {
        name: uri
        for name, uri in tables.items()
        if name in given and given[name].rpartition("/")[2] != uri.rpartition("/")[2]
    }
