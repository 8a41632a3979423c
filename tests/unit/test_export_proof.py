"""The proof sees what a module does otherwise on other graphs, in other calls and other numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.trials import trials
from tests.support.models import shake
from tests.support.pyg import pyg

# ---- what the proof says


class Plain(nn.Module):
    """One convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(5, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_graphs_on_which_forward_fails_are_named() -> None:
    class NeedsEdges(Plain):
        def forward(self, x, edge_index):
            if edge_index.numel() == 0:
                raise ValueError("no edges")
            return self.conv(x, edge_index)

    proof = export_module(shake(NeedsEdges()), width=5).proof
    assert [one.name for one in proof.not_compared] == [
        "a graph without edges",
        "a graph of one node without edges",
    ]
    assert all("ValueError: no edges" in one.problem for one in proof.not_compared)
    (first, *_) = (one for one in proof.to_json()["graphs"] if "forward_fails" in one)
    assert first["nodes"] == 9
    assert "error" not in first


class NormOfEqualRows(nn.Module):
    """On features of zeros the norms divide what rounding has left by next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.gin = pyg.models.GIN(16, 24, 3, 10, norm="instance_norm")

    def forward(self, x, edge_index):
        return self.gin(x, edge_index)


def test_roundings_that_a_norm_magnifies_are_no_difference() -> None:
    torch.manual_seed(0)
    proof = export_module(NormOfEqualRows().eval()).proof
    assert "a graph with features of zeros" in [one.name for one in proof.not_compared]
    assert proof.largest_error <= TOLERANCE
    (left,) = (one for one in proof.to_json()["graphs"] if "not_compared" in one)
    assert "magnifies roundings" in left["not_compared"]


def test_the_error_in_float32_is_that_of_rounding() -> None:
    found = export_module(shake(Plain())).proof.float32_error
    assert found is not None
    assert 1e-9 < found < 1e-5


# ---- the graphs


@pytest.mark.parametrize(
    "types",
    [
        GraphTypes({"": 4}, edge_features={"": 2}),
        GraphTypes({"user": 3, "item": 0}, ("user:buys:item", "item:of:user", "user:knows:user")),
        GraphTypes({"": 4}, reached=True),
    ],
)
def test_graphs_have_what_real_ones_have(types: GraphTypes) -> None:
    graphs: dict[str, Any] = {one.name: one.graph for one in trials(types)}
    plain, *others = graphs.values()
    assert len(graphs) == (10 if types.reached else 12)
    assert ("a graph without edges" in graphs) is not types.reached
    for graph in graphs.values():
        for name, edges in graph.edges.items():
            ends = graph.shape(name)
            assert len(edges.src) == len(edges.dst) == len(edges.weight)
            assert all((one >= 0).all() for one in (edges.src, edges.dst))
            assert (edges.dst < ends[0]).all()
            assert (edges.src < ends[1]).all()
            reached = torch.bincount(edges.dst, minlength=ends[0]) > 0
            assert reached.all() or not types.reached
    first = next(iter(plain.edges.values()))
    pairs = first.src * 1000 + first.dst
    assert len(pairs.unique()) < len(pairs), "duplicates"
    if not types.typed:
        assert (first.src == first.dst).any(), "loops"
    values = [x for graph in (plain, *others[1:]) for x in graph.x.values() if x.any()]
    assert len({float(x.flatten()[0]) for x in values}) == len(values), "all are random anew"


def test_edges_in_another_order_are_the_same_edges() -> None:
    types = GraphTypes({"": 4}, edge_features={"": 2})
    plain, other = (one.graph.edges[""] for one, _ in zip(trials(types), range(2), strict=False))

    def rows(edges: Any) -> Any:
        columns = (edges.src, edges.dst, edges.weight)
        return sorted(torch.column_stack([*columns, edges.features]).tolist())

    assert rows(plain) == rows(other)
    assert not torch.equal(plain.src, other.src)


def test_types_with_no_edges_and_one_node_each() -> None:
    """Of several types, too, a module runs where some have nothing."""
    types = GraphTypes({"user": 5, "item": 4}, ("user:buys:item", "item:of:user"))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = {("user", "buys", "item"): (5, 4), ("item", "of", "user"): (4, 5)}
            self.conv = pyg.HeteroConv({one: pyg.SAGEConv(ends, 3) for one, ends in convs.items()})

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    proof = export_module(shake(Net()), graph=types).proof
    assert not proof.not_compared
    assert [(one.nodes, one.edges) for one in proof.graphs][-3:] == [(21, 0), (2, 2), (2, 0)]
