"""The part of a graph that some nodes' edges reach: its nodes alone, numbered in their order.

What is computed for few nodes then takes no time or memory for each node that there is. A row's
in-neighbours stay in their order, so that sums have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.engine.stages.features import read_some_features
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.spilled_csr import AnyCsr
from embertide.spec.relations import Relation


@dataclass(frozen=True)
class NearGraph:
    """The part of a graph.

    Attributes:
        ids: node type -> [k] dense ids of the nodes that are part of it, ascending.
    """

    graph: TypedGraph
    ids: dict[str, torch.Tensor]


def near_graph(whole: TypedGraph, some: Mapping[str, torch.Tensor]) -> NearGraph:
    """The nodes that some edge has an end at, and others; and all edges. Of one process.

    Args:
        some: node type -> [n] dense ids of nodes that are part of it in any case.
    """
    ids = {name: _near(whole, name, some.get(name)) for name in whole.located}
    sub_ranges: dict[Relation, AnyCsr] = {}
    for relation, csr in whole.sub_ranges.items():
        assert isinstance(csr, Csr), "it is in memory"
        sources, targets = ids[relation.source], ids[relation.destination]
        indptr = torch.zeros(len(targets) + 1, dtype=torch.int64)
        torch.cumsum(csr.indptr[targets + 1] - csr.indptr[targets], 0, out=indptr[1:])
        cols = torch.searchsorted(sources, csr.cols.long()).to(id_type(len(sources)))
        sub_ranges[relation] = Csr(0, indptr, cols, csr.weights, csr.features)
    located = {name: _located(whole.located[name], own) for name, own in ids.items()}
    return NearGraph(TypedGraph(located, sub_ranges), ids)


def _near(whole: TypedGraph, name: str, some: torch.Tensor | None) -> torch.Tensor:
    """[k] the nodes of a type; of each at least one, since no tensor is without rows."""
    near = torch.zeros(whole.located[name].ranges.nodes, dtype=torch.bool)
    if some is not None:
        near[some] = True
    for relation, csr in whole.sub_ranges.items():
        assert isinstance(csr, Csr), "it is in memory"
        if relation.source == name:
            near[csr.cols.long()] = True
        if relation.destination == name:
            near |= csr.indptr[1:] > csr.indptr[:-1]
    ids = near.nonzero().squeeze(1)
    return ids if len(ids) else torch.zeros(1, dtype=torch.int64)


def _located(whole: Located, ids: torch.Tensor) -> Located:
    at = ids.numpy()
    locations = whole.locations[ids] if len(whole.locations) else whole.locations
    return Located(RowRanges((0, len(ids)), 1), locations, whole.names.take(at), whole.keys[at])


def near_features(prepared: Prepared, near: NearGraph, of: str, rows: torch.Tensor) -> torch.Tensor:
    """[k, D] the features of some nodes of a type: read now, or among all that were.

    Args:
        rows: [N] bool, of the nodes that are near.
    """
    own = prepared.names[of]
    at = near.ids[own][rows]
    if (later := prepared.later.get(of)) is not None:
        return read_some_features(prepared.ctx, later, at.numpy())
    loaded, locations = prepared.loaded[of], near.graph.located[own].locations
    return loaded.data[at if loaded.placed else locations[rows, 1].long()]
