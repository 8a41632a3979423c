"""The first rows of every input, read before a check reads all of them.

Columns are known to be there from the objects' metadata. Only rows show their values: a column of
texts, of NaN, or of another type's ids is refused by its first rows, not after minutes of reading.
"""

from __future__ import annotations

from embertide.engine.planning.inputs import Inputs, NodeSplits
from embertide.errors import InputError
from embertide.io.readers.edges import read_edges
from embertide.io.readers.features import non_finite, read_features
from embertide.io.storage.protocol import Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.inputs import Input
from embertide.spec.nodes import NodeInput

_ROWS = 1024
_BYTES = 1 << 20


def read_samples(storage: Storage, wanted: Input, inputs: Inputs) -> None:
    """Read the first rows of the edges and features of some edge types and node types.

    Args:
        wanted: the types that are read; ``inputs`` may have more.

    Raises:
        InputError: names object, row or node, and column of the first bad value.
    """
    for node in wanted.nodes:
        _read_features(storage, node, inputs.by_nodes[node.name])
    for edge in wanted.edges:
        _read_edges(storage, wanted, edge, inputs)


def _read_features(storage: Storage, node: NodeInput, splits: NodeSplits) -> None:
    features = node.features
    if features is None:
        return
    for split in splits.features[:1]:
        batches = read_features(
            storage, features, node.ids, split, splits.schema, batch_bytes=_BYTES, count=node.count
        )
        batch = next(batches)
        bad, first = non_finite(batch)
        if bad:
            after = " after scaling" if features.scaling else ""
            raise InputError(
                f"{features.location}: of the first {len(batch)} feature rows of node type"
                f" {node.name!r} some have NaN or infinite values{after}, first node id {first!r}."
                " Clean or drop them, then check again."
            )


def _read_edges(storage: Storage, wanted: Input, edge: EdgeInput, inputs: Inputs) -> None:
    """The reader refuses what is no edge."""
    name = str(edge.relation)
    ends = wanted.node(edge.source_type), wanted.node(edge.destination_type)
    source, destination = (inputs.by_nodes[node.name].count(node) for node in ends)
    width = inputs.edge_features[name] if edge.features is not None else 0
    for split in inputs.by_edges[name][:1]:
        batches = read_edges(
            storage, edge, (ends[0].ids, ends[1].ids), split, _ROWS, (source, destination), width
        )
        next(batches, None)
