"""The part of a graph that few edges reach: the same edges, whose nodes have other numbers."""

from __future__ import annotations

import numpy as np
import torch

from embertide.engine.pipeline.embed import near_graph
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.spec.relations import Relation

BUYS, FOLLOWS = Relation("user", "buys", "item"), Relation("user", "follows", "user")
USERS, ITEMS, OTHERS = 50, 30, 7


def _located(nodes: int) -> Located:
    places = torch.stack([torch.zeros(nodes), torch.arange(nodes).flip(0)], 1).int()
    names = np.arange(nodes) + 1000
    return Located(RowRanges((0, nodes), 1), places, names, names.view(np.uint64))


def _csr(rows: int, edges: dict[int, list[int]]) -> Csr:
    lengths = torch.tensor([len(edges.get(row, [])) for row in range(rows)])
    cols = torch.tensor([col for row in sorted(edges) for col in edges[row]], dtype=torch.int32)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    weights = torch.arange(len(cols)).float()
    return Csr(0, indptr, cols, weights, weights.reshape(-1, 1) + 0.5)


def _edges(csr: Csr, sources: torch.Tensor, targets: torch.Tensor) -> list[tuple[int, int]]:
    ends = zip(sources[csr.cols.long()].tolist(), targets[csr.row_ids()].tolist(), strict=True)
    return list(ends)


def test_edges_weights_and_names_are_those_of_the_whole_graph() -> None:
    whole = TypedGraph(
        {"user": _located(USERS), "item": _located(ITEMS), "other": _located(OTHERS)},
        {BUYS: _csr(ITEMS, {3: [2, 40], 29: [40]}), FOLLOWS: _csr(USERS, {0: [], 7: [49, 49, 1]})},
    )
    near = near_graph(whole, {"user": torch.tensor([30, 11])})
    users, items = near.ids["user"], near.ids["item"]
    assert users.tolist() == [1, 2, 7, 11, 30, 40, 49]
    assert items.tolist() == [3, 29]
    # A type without edges has a node all the same.
    assert near.ids["other"].tolist() == [0]
    buys, follows = (near.graph.sub_ranges[of] for of in (BUYS, FOLLOWS))
    assert isinstance(buys, Csr)
    assert isinstance(follows, Csr)
    assert _edges(buys, users, items) == [(2, 3), (40, 3), (40, 29)]
    assert _edges(follows, users, users) == [(49, 7), (49, 7), (1, 7)]
    assert buys.weights is not None
    assert buys.weights.tolist() == [0, 1, 2]
    located = near.graph.located["user"]
    assert (located.ranges.nodes, located.ranges.workers) == (7, (0, 7))
    assert np.asarray(located.names).tolist() == (users + 1000).tolist()
    assert located.locations[:, 1].tolist() == (USERS - 1 - users).tolist()
    assert located.keys.tolist() == (users + 1000).tolist()
