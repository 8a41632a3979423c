"""``embertide.export(..., sample=...)``: what real tensors show, and those that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

import embertide
from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.sample import Sample, read_sample
from tests.support.export_texts import made
from tests.support.models import shake
from tests.support.pyg import pyg

Atoms, Looked = made("looked_up.txt", "atoms"), made("looked_up.txt", "looked up")
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])


class Plain(nn.Module):
    """Nothing shows how many columns x has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3))
        self.conv = pyg.SAGEConv(3, 2)

    def forward(self, x, edge_index):
        return self.conv(x @ self.weight, edge_index)


class WithEdges(nn.Module):
    """Nothing shows how many columns edge_attr has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5))
        self.conv = pyg.GINEConv(nn.Linear(5, 2))

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr @ self.weight)


BUYS, OF = ("user", "buys", "item"), ("item", "of", "user")
BOUGHT = torch.tensor([[0, 1, 1], [0, 0, 1]])
USERS = torch.tensor([[5], [0]])
ITEMS = torch.randn(2, 2)


class Buyers(nn.Module):
    """Categories of users, numbers of items, features of what users buy."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(6, 3)
        self.conv = pyg.HeteroConv(
            {BUYS: pyg.SAGEConv((3, 2), 4), OF: pyg.SAGEConv((2, 3), 4)},
        )

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict | {"user": self.emb(x_dict["user"][:, 0])}, edge_index_dict)


def exported(module: nn.Module, folder: Path, sample: object, **options: Any) -> Sample:
    """What an export took, of a module that was proved."""
    done = embertide.export(shake(module), folder, sample=sample, **options)
    assert done.proof.largest_error <= TOLERANCE
    assert done.sample is not None
    assert done.to_json()["sample"] == done.sample.to_json()
    return done.sample


@pytest.mark.parametrize("named", [False, True])
def test_columns_of_features(tmp_path: Path, named: bool) -> None:
    x = torch.randn(4, 5)
    sample = {"edge_index": EDGES, "x": x} if named else (x, EDGES)
    assert exported(Plain(), tmp_path, sample).width == 5


def test_without_a_sample_nothing_is_stated(tmp_path: Path) -> None:
    done = embertide.export(shake(Plain()), tmp_path, width=5)
    assert done.sample is None
    assert "sample" not in done.to_json()


def test_features_of_edges(tmp_path: Path) -> None:
    taken = exported(WithEdges(), tmp_path, (torch.randn(4, 5), EDGES, torch.randn(4, 4)))
    assert (taken.width, taken.edge_features) == (5, 4)


def test_integers_are_as_many_categories_as_their_largest(tmp_path: Path) -> None:
    x = torch.tensor([[6, 0, 2], [0, 4, 0], [1, 1, 1], [2, 2, 2]])
    assert exported(Atoms(), tmp_path, (x, EDGES)).categories == {"": {0: 7, 1: 5, 2: 3}}


def test_a_run_checks_values_by_the_categories_of_the_sample(tmp_path: Path) -> None:
    sample = (torch.tensor([[3, 1, 1]] * 4), EDGES)
    embertide.export(shake(Atoms()), tmp_path, sample=sample)
    written = yaml.safe_load((tmp_path / "program.yaml").read_text())
    categories = [(of["column"], of["count"]) for of in written["inputs"][0]["categories"]]
    assert categories == [(0, 4), (1, 2), (2, 2)]


def test_options_win_over_the_sample(tmp_path: Path) -> None:
    x = torch.randn(4, 9)
    taken = exported(Looked(), tmp_path, (x, EDGES), width=3, categories={0: 10})
    assert (taken.width, taken.categories) == (3, {"": {0: 10}})


def test_no_categories_where_the_option_has_none() -> None:
    shown = read_sample(Atoms(), (torch.tensor([[3, 1, 1]] * 4), EDGES), {})
    assert shown.under(None, None, None, {}, None).categories == {}


def test_dicts_by_type(tmp_path: Path) -> None:
    edges = {BUYS: BOUGHT, OF: BOUGHT.flip(0)}
    taken = exported(Buyers(), tmp_path, ({"user": USERS, "item": ITEMS}, edges))
    assert taken.graph is not None
    assert taken.graph.nodes == {"user": 1, "item": 2}
    assert taken.graph.relations == ("user:buys:item", "item:of:user")
    assert taken.categories == {"user": {0: 6}}
    assert taken.graph.weighted is None


@pytest.mark.parametrize("argument", ["edge_weight_dict", "edge_attr_dict"])
def test_weights_of_some_relations(argument: str) -> None:
    class Net(nn.Module):
        def forward(self, x_dict, edge_index_dict, edge_weight_dict=None, edge_attr_dict=None):
            return x_dict

    sample = {"x_dict": {"user": USERS}, "edge_index_dict": {BUYS: BOUGHT, OF: BOUGHT.flip(0)}}
    shown = read_sample(Net(), sample | {argument: {BUYS: torch.rand(3)}}, {})
    assert shown.graph is not None
    assert shown.graph.weighted == {"user:buys:item"}


def test_features_and_categories_of_relations() -> None:
    class Net(nn.Module):
        def forward(self, x_dict, edge_index_dict, edge_attr_dict):
            return x_dict

    sample = ({"user": USERS}, {BUYS: BOUGHT}, {BUYS: torch.tensor([[0, 3]] * 3)})
    shown = read_sample(Net(), sample, {})
    assert shown.graph is not None
    assert shown.graph.nodes == {"user": 1, "item": 0}
    assert shown.graph.edge_features == {"user:buys:item": 2}
    assert shown.edge_categories == {"user:buys:item": {0: 1, 1: 4}}


def test_data_of_pyg() -> None:
    from torch_geometric.data import Data, HeteroData

    class Net(nn.Module):
        def forward(self, data):
            return data.x

    data = Data(x=torch.randn(4, 5), edge_index=EDGES, edge_attr=torch.randn(4, 2))
    shown = read_sample(Net(), data, {})
    assert (shown.width, shown.edge_features) == (5, 2)
    hetero = HeteroData()
    hetero["user"].x, hetero["item"].x = USERS, ITEMS
    hetero[BUYS].edge_index = BOUGHT
    typed = read_sample(Net(), (hetero,), {})
    assert typed.graph is not None
    assert typed.graph.nodes == {"user": 1, "item": 2}


class OfGraph(nn.Module):
    def forward(self, g, x):
        return x


class OfGraphAlone(nn.Module):
    def forward(self, g):
        return g


@pytest.mark.dgl
def test_graphs_of_dgl() -> None:
    dgl = load_dgl()
    graph = dgl.graph((EDGES[0], EDGES[1]))
    assert read_sample(OfGraph(), (graph, torch.randn(4, 5)), {}).width == 5
    with pytest.raises(ModelError, match=r"edge_index has 2 in row 0, edge 2, but x has 2 rows"):
        read_sample(OfGraph(), (graph, torch.randn(2, 5)), {})
    typed = dgl.heterograph({BUYS: (BOUGHT[0], BOUGHT[1])})
    shown = read_sample(OfGraph(), (typed, {"user": USERS, "item": ITEMS}), {})
    assert shown.graph is not None
    assert shown.graph.nodes == {"user": 1, "item": 2}
    typed.nodes["user"].data["age"] = USERS
    with pytest.raises(ModelError, match=r"has age in its node data, and forward takes no x"):
        read_sample(OfGraphAlone(), (typed,), {})


def test_numbers_of_nodes_name_rows_of_tables(tmp_path: Path) -> None:
    class Tabled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.conv = nn.Embedding(4, 3), pyg.SAGEConv(3, 2)

        def forward(self, x, edge_index):
            return self.conv(self.emb(x), edge_index)

    assert exported(Tabled(), tmp_path, (torch.arange(4), EDGES), tables="emb").width is None


WRONG: dict[str, tuple[object, str]] = {
    "too few": ((torch.randn(4, 5),), r"has no edge_index, but Plain\.forward takes x, edge_index"),
    "too many": ((torch.randn(4, 5), EDGES, EDGES), r"has 3 values, but Plain\.forward takes x"),
    "another name": ({"x": EDGES, "edge_index": EDGES, "y": EDGES}, r"has 'y', but Plain"),
    "no tensor": (([[1.0]], EDGES), r"the sample's x is a list; give a torch\.Tensor"),
    "one dimension": ((torch.randn(4), EDGES), r"x has the shape \[4\]; features have a row"),
    "no rows": ((torch.randn(0, 5), EDGES), r"x has the shape \[0, 5\]"),
    "bool": ((torch.ones(4, 5, dtype=torch.bool), EDGES), r"x is of torch\.bool; a job's features"),
    "below 0": ((torch.tensor([[0, 1]] * 3 + [[2, -7]]), EDGES), r"has -7 in row 3, column 1"),
    "turned": ((torch.randn(4, 5), EDGES.T), r"of the shape \[4, 2\]; give the edges as integers"),
    "real": ((torch.randn(4, 5), EDGES.float()), r"edge_index is of torch\.float32"),
    "no such node": ((torch.randn(3, 5), EDGES), r"has 3 in row 0, edge 3, but x has 3 rows"),
    "half by type": (({"user": USERS}, EDGES), r"has edge_index beside dicts by type"),
    "no relation": (({"user": USERS}, {"buys": BOUGHT}), r"the graph's edges have 'buys'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_sample_that_does_not_fit(tmp_path: Path, case: str) -> None:
    sample, message = WRONG[case]
    with pytest.raises(ModelError, match=message):
        embertide.export(Plain(), tmp_path, sample=sample)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("of_edges", [torch.randn(3, 2), torch.randn(3)])
def test_rows_of_edges(of_edges: Tensor) -> None:
    with pytest.raises(ModelError, match=r"has 3 rows, but there are 4 edges in edge_index"):
        read_sample(WithEdges(), (torch.randn(4, 5), EDGES, of_edges), {})


def test_what_a_relation_without_edges_has() -> None:
    class Net(nn.Module):
        def forward(self, x_dict, edge_index_dict, edge_weight_dict):
            return x_dict

    sample = ({"user": USERS}, {BUYS: BOUGHT}, {("user", "sees", "item"): torch.ones(3)})
    with pytest.raises(ModelError, match=r"has edge_weight of \('user', 'sees', 'item'\), but"):
        read_sample(Net(), sample, {})


@pytest.mark.parametrize(
    ("module", "x", "message"),
    [
        (Plain, torch.randn(4, 6), r"mat1 and mat2 shapes.*With the sample and .*: width 6$"),
        (Atoms, torch.tensor([[8, 1, 1]] * 4), r"categories \{'': \{0: 9, 1: 2, 2: 2\}\}$"),
    ],
)
def test_what_the_module_does_not_read(
    tmp_path: Path, module: Callable[[], nn.Module], x: Tensor, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        embertide.export(module(), tmp_path, sample=(x, EDGES))
