"""Modules with embedding tables: the table becomes a file, read as the features of its nodes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.models.tables import ProgramText
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, random_graph
from tests.support.exact import relative_error
from tests.support.models import Files, shake
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg


ROWS, WIDTH, OUT = 31, 6, 3
TYPES = GraphTypes({"user": 5, "item": 0}, ("user:buys:item", "item:bought_by:user"))


class One(nn.Module):
    """A table in the place of features, and a convolution that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(ROWS, WIDTH)
        self.conv = pyg.GCNConv(WIDTH, OUT)


class Weight(One):
    def forward(self, edge_index):
        return self.conv(self.emb.weight, edge_index)


class Arange(One):
    def forward(self, edge_index):
        x = self.emb(torch.arange(self.emb.num_embeddings))
        return self.conv(x, edge_index)


class Numbers(One):
    """x are the nodes' own numbers."""

    def forward(self, x, edge_index):
        return self.conv(self.emb(x), edge_index)


class Hetero(nn.Module):
    """A table for the type without features, among the parameters of a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ParameterDict({"item": nn.Parameter(torch.randn(ROWS + 3, WIDTH))})
        self.lin = nn.Linear(5, WIDTH)
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.SAGEConv((WIDTH, WIDTH), OUT),
                ("item", "bought_by", "user"): pyg.SAGEConv((WIDTH, WIDTH), OUT),
            }
        )

    def forward(self, x_dict, edge_index_dict):
        assert set(x_dict) == {"user"}
        x_dict = {"user": self.lin(x_dict["user"]), "item": self.tables["item"]}
        return self.conv(x_dict, edge_index_dict)


class Listed(One):
    """The table is read as one of all parameters, too: its sum is one over all nodes."""

    def forward(self, edge_index):
        return self.conv(self.emb.weight, edge_index) + sum(p.sum() for p in self.parameters())


CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, str], GraphTypes | None]] = {
    "weight": (Weight, {"": "emb"}, None),
    "arange": (Arange, {"": "emb.weight"}, None),
    "numbers": (Numbers, {"": "emb"}, None),
    "hetero": (Hetero, {"item": "tables.item"}, TYPES),
    "listed": (Listed, {"": "emb"}, None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_becomes_a_file(name: str) -> None:
    make, tables, types = CASES[name]
    module: Any = shake(make())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    done = export_module(module, graph=types, tables=tables)
    assert done.proof.largest_error <= TOLERANCE
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    ((node_type, of_type),) = ProgramText.read(files, "file:///m").tables.items()  # type: ignore[arg-type]
    assert node_type == next(iter(tables))
    assert of_type.features == 0
    table = np.load(io.BytesIO(files.read(of_type.tables[0].uri)))
    name_of = next(one for one in before if one.startswith(tables[node_type]))
    assert table.dtype == np.float32
    assert np.array_equal(table, before[name_of].numpy())
    program = read_files(files, "file:///m").program()  # type: ignore[arg-type]
    assert name_of not in program.params, "no worker reads the whole table"
    # With the table's own rows the program gives what the module gives itself.
    graph = random_graph(types or GraphTypes({"": WIDTH}), ROWS, seed=3)
    graph.x[node_type] = torch.from_numpy(table).double()
    graphs = layer_graphs(program, graph, weighted=False)
    found = run_typed_reference(program, graphs, graph.x, graph.counts)
    edges = {relation: one.edge_index for relation, one in graph.edges.items()}
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    with torch.no_grad():
        module = module.double()
        if types is not None:
            triples = {types.triple(relation): one for relation, one in edges.items()}
            expected = module({"user": graph.x["user"]}, triples)
        else:
            given = (torch.arange(ROWS),) if name == "numbers" else ()
            expected = {"": module(*given, edges[""])}
    for of_type, rows in found.items():
        assert relative_error(rows, expected[of_type]) <= 1e-6
