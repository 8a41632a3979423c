"""The examples of docs/model/typed.md are exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embertide.models.kinds import TYPED_LAYERS
from embertide.models.reference import run_typed_reference
from embertide.program.steps import Program
from tests.support.dgl_library import dgl
from tests.support.hetero_case import HeteroCase, edges
from tests.support.model_examples_hetero import EXAMPLES
from tests.support.models import GRAPHS, NODES, assert_same, features, program_of, shake
from tests.support.typed_world import COUNTS

CASES = [(library, conv) for library in EXAMPLES for conv in EXAMPLES[library]]
ONE_TYPE = ("page:links:page", GRAPHS["directed"]), ("page:redirects:page", GRAPHS["undirected"])


def test_every_kind_of_layer_has_an_example_that_uses_it() -> None:
    assert {library: set(kinds) for library, kinds in EXAMPLES.items()} == {
        library: set(kinds) for library, kinds in TYPED_LAYERS.items()
    }
    for library, conv in CASES:
        assert f"conv: {conv}" in EXAMPLES[library][conv].yaml


@pytest.mark.parametrize(("library", "conv"), CASES)
def test_examples(library: str, conv: str) -> None:
    example = EXAMPLES[library][conv]
    module = shake(example.make())
    program = program_of(example.yaml, module)
    call = _by_relation if conv == "rgcn" else _by_type
    found, expected = call(library, program, module.double())
    assert set(found) == set(expected)
    for node_type, values in found.items():
        assert_same(values, expected[node_type], example.tolerance)


def _by_type(library: str, program: Program, module: Any) -> tuple[Any, Any]:
    """A module that takes features and edges by type."""
    case = HeteroCase(torch.nn.Module, "")
    graph, x = edges(), case.features()
    with torch.no_grad():
        if library == "pyg":
            return case.found(program), module(x, graph)
        ends = {relation: tuple(both) for relation, both in graph.items()}
        whole = dgl.heterograph(ends, {name: COUNTS[name] for name in x})
        return case.found(program), module(whole, x)


def _by_relation(library: str, program: Program, module: Any) -> tuple[Any, Any]:
    """A module that takes one graph, and the relation of each edge by its number."""
    x = features(5)
    graphs = [graph for _, graph in ONE_TYPE]
    ends = torch.stack([torch.cat([g.src for g in graphs]), torch.cat([g.dst for g in graphs])])
    kinds = torch.arange(2).repeat_interleave(torch.tensor([len(g.src) for g in graphs]))
    layer = {name: (graph.src, graph.dst, None) for name, graph in ONE_TYPE}
    found = run_typed_reference(program, [layer] * program.layers, {"page": x}, {"page": NODES})
    with torch.no_grad():
        if library == "pyg":
            return found, {"page": module(x, ends, kinds)}
        return found, {"page": module(dgl.graph(tuple(ends), num_nodes=NODES), x, kinds)}
