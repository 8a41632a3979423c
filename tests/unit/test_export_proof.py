"""The proof sees what a module does otherwise on other graphs, in other calls and other numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import Export, export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.trials import LARGE, trials
from tests.support import export_silent as silent
from tests.support.models import shake
from tests.support.pyg import pyg

FILE = silent.__file__
LINES = Path(FILE).read_text().splitlines()

AT_A_LINE = {
    **dict.fromkeys(
        ("VeryManyNodes", "VeryLong", "VeryManyEdges", "VeryLarge", "BeyondMany"),
        rf"depends on the number of nodes or edges.*they have up to {LARGE} nodes",
    ),
    **dict.fromkeys(("AsInTraining", "EvenNodes"), "depends on the number of nodes or edges"),
    "AllHaveEdges": r"unique gives a number of rows that depends on values, and it is read",
    "SomeLarge": r"nonzero gives a number of rows that depends on values",
    "SomeRows": r"picking rows by a condition gives a number of rows that depends on values",
    "SomeWeights": r"masked_select gives a number of rows that depends on values",
}

KEPT = r"forward changes {} and reads it in the next call"
OTHER_WAY = (
    r"On this graph the module does something else .* the first other step is \S+ \(\w+\) at "
)
ANYWHERE = {
    "ManyNodes": rf"on a graph of {LARGE} nodes \(.*{OTHER_WAY}.*export_silent\.py:\d+ \(conv\)",
    "OneNode": rf"on a graph of one node with a self-loop \(1 nodes, 1 edges.*{OTHER_WAY}",
    "NoEdges": rf"on a graph without edges \(9 nodes, 0 edges.*{OTHER_WAY}",
    "NoLoops": rf"on a graph without self-loops and duplicate edges \(.*{OTHER_WAY}",
    **dict.fromkeys(
        ("TrainedType", "ParametersType", "DefaultType"),
        r"forward gives something else in float32 than in float64: the largest error is (1|0\.5)\.",
    ),
    **dict.fromkeys(("Count", "First", "CountTensor"), KEPT.format("calls")),
    "Cache": KEPT.format("cached"),
    "History": KEPT.format("seen"),
    "Running": KEPT.format("mean"),
    **dict.fromkeys(("Now", "Noise"), "draws random numbers in eval mode"),
    "Switched": "dropout stays active in eval mode",
}

RIGHT = ("Guarded", "Kept", "Seeded", "NeedsEdges", "Spread")


def exported(name: str) -> Export:
    return export_module(shake(getattr(silent, name)()), width=5)


def failure(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        exported(name)
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize("name", AT_A_LINE)
def test_what_no_graph_would_show_is_refused_at_its_line(name: str) -> None:
    told = failure(name)
    (line,) = [n for n, text in enumerate(LINES, 1) if text.endswith(f"  # {name}")]
    assert told.startswith(f"{FILE}:{line}: ")
    assert re.search(AT_A_LINE[name], told)


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_differs_shows(name: str) -> None:
    assert re.search(ANYWHERE[name], failure(name))


@pytest.mark.parametrize("name", RIGHT)
def test_what_differs_nowhere_is_exported(name: str) -> None:
    assert exported(name).proof.largest_error <= TOLERANCE


def test_every_module_is_tried() -> None:
    classes = {name for name, one in vars(silent).items() if isinstance(one, type)}
    assert classes - {"Base"} == {*AT_A_LINE, *ANYWHERE, *RIGHT}


# ---- what the proof says


def test_graphs_on_which_forward_fails_are_named() -> None:
    proof = exported("NeedsEdges").proof
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


class Defaults(silent.Base):
    def forward(self, x, edge_index, pe=None, temperature=1.0, *more, **others):
        return self.conv(x if pe is None else x + pe, edge_index) / temperature


def test_arguments_that_are_not_passed_are_named() -> None:
    proof = export_module(shake(Defaults()), width=5).proof
    assert proof.left_out == ("pe", "temperature", "*more", "**others")
    assert proof.to_json()["arguments_left_out"] == list(proof.left_out)


def test_the_error_in_float32_is_that_of_rounding() -> None:
    found = exported("Kept").proof.float32_error
    assert found is not None
    assert 1e-9 < found < 1e-5


def test_a_module_of_float64_is_not_tried_in_float32() -> None:
    module: nn.Module = shake(silent.TrainedType()).double()
    assert export_module(module, width=5).proof.float32_error is None


def test_the_functions_of_python_are_themselves_again() -> None:
    before = len
    failure("VeryLong")
    assert len is before


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
