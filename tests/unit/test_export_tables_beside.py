"""Modules that read features and learned tables of the same nodes."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.models.tables import ProgramText
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, random_graph
from tests.support.exact import relative_error
from tests.support.export_tables import CASES, ROWS
from tests.support.models import Files, shake


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
