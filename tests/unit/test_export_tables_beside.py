"""Modules that read features and learned tables of the same nodes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.models.tables import ProgramText
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, random_graph
from tests.support.exact import relative_error
from tests.support.export_tables import CASES, ROWS, TYPES, Below
from tests.support.models import Files, shake
from tests.support.pyg import pyg


@pytest.mark.parametrize("name", CASES)
def test_features_and_tables_are_inputs_of_their_own(name: str) -> None:
    """With the tables' own rows and other features, the folder gives what the module gives."""
    case = CASES[name]
    module = shake(case.make())
    done = export_module(module, graph=case.graph, tables=case.tables, width=case.width)
    assert done.proof.largest_error <= TOLERANCE
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    program = read_files(files, "file:///m").program()  # type: ignore[arg-type]
    rows = {
        node_type: [np.load(io.BytesIO(files.read(one.uri))) for one in of_type.tables]
        for node_type, of_type in ProgramText.read(files, "file:///m").tables.items()  # type: ignore[arg-type]
    }
    types = case.graph or GraphTypes({"": case.features})
    graph = random_graph(types, ROWS, seed=3)
    inputs = {
        node_type: torch.cat(
            [
                *([graph.x[node_type]] if node_type in graph.x else []),
                *(torch.from_numpy(one).double() for one in rows.get(node_type, [])),
            ],
            dim=1,
        )
        for node_type in program.inputs
    }
    graphs = layer_graphs(program, graph, weighted=False)
    found = run_typed_reference(program, graphs, inputs, graph.counts)
    expected = case.own(module.double(), graph)
    assert set(found) == set(expected)
    for node_type, values in found.items():
        assert relative_error(values, expected[node_type]) <= 1e-6


class Halved(Below):
    """Items are computed before they are put below users."""

    def forward(self, edge_index):
        h = torch.cat([self.user.weight, self.item.weight])
        return pyg.LGConv()(h, edge_index) + torch.cat([self.user.weight, self.item.weight * 2])


REFUSED: dict[str, tuple[Callable[[], nn.Module], Mapping[str, Any], str]] = {
    "numbers as features": (
        CASES["node_id"].make,
        {"tables": {"": "emb"}, "inputs": {"node_id": "x", "x": "node_id"}},
        "the module reads features here, but gets the nodes' numbers.*--width",
    ),
    "some of the nodes' rows alone": (
        Halved,
        {"tables": {"": ["user", "item"]}},
        "rows stand one below another are known as .*: compute after it, or make each a node type",
    ),
    "node_id without a table": (
        CASES["node_id"].make,
        {},
        "takes node_id, the nodes' numbers, but no embedding table.*--table",
    ),
    "features of another width": (
        CASES["cat"].make,
        {"tables": {"": "emb"}, "width": 4},
        "shapes cannot be multiplied",
    ),
    "too few ids": (
        CASES["cat"].make,
        {"tables": {"": "emb"}, "table_ids": {"": [1, 2]}},
        rf"emb\.weight has {ROWS} rows, but there are 2 ids",
    ),
    "ids twice": (
        CASES["cat"].make,
        {"tables": {"": "emb"}, "table_ids": {"": ["a"] * ROWS}},
        r"the ids of emb\.weight have 'a' more than once",
    ),
    "ids that are no ids": (
        CASES["cat"].make,
        {"tables": {"": "emb"}, "table_ids": {"": [0.5] * ROWS}},
        r"the ids of emb\.weight are float64 of shape",
    ),
    "ids of no table": (
        CASES["typed"].make,
        {"tables": {"user": "user_emb"}, "table_ids": {"item": ["a"]}, "graph": TYPES},
        "ids of rows are given for node type 'item', of which no table is named",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    make, options, says = REFUSED[name]
    with pytest.raises(ModelError, match=says):
        export_module(make(), **options)
