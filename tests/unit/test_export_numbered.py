"""Models of several types told by numbers give, exported, what they give themselves."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.tracing.export import Export, export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.record.precision import quiet
from tests.support import export_relations
from tests.support.exact import relative_error
from tests.support.export_models_numbered import DGL, GRAPH, IN, PYG, Entities, OnTogether
from tests.support.models import Files, shake
from tests.support.pyg import pyg

needs_dgl = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")


def types_of(graph: dict[str, Any]) -> GraphTypes:
    return named_types(graph, Files())  # type: ignore[arg-type]


ONE_TYPE = types_of({"nodes": {"page": IN}, "edges": [f"page:{name}:page" for name in "abc"]})
SEVERAL = types_of(GRAPH)


def assert_gives(done: Export, graph: RandomGraph, expected: Any) -> None:
    """On a graph that export never saw; its own rows of every type, one type after another."""
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    program = read_files(files, "file:///m").program()  # type: ignore[arg-type]
    layers = layer_graphs(program, graph, weighted=True)
    found = run_typed_reference(program, layers, graph.x, graph.counts)
    assert done.proof.largest_error <= TOLERANCE
    assert relative_error(torch.cat(list(found.values())), expected) <= 1e-6


@pytest.mark.parametrize("types", [SEVERAL, ONE_TYPE], ids=["several types", "one type"])
def test_numbers_of_pyg(types: GraphTypes) -> None:
    graph = random_graph(types, 23, seed=9)
    module = PYG["numbered"]()
    module.lin = type(module.lin)(IN, 8, len(types.nodes))
    shake(module)
    done = export_module(module, graph=types)
    given = [graph.merged[role] for role in ("edge_index", "edge_type", "node_type")]
    with quiet():
        own = module.double()(torch.cat(list(graph.x.values())), *given)
    assert list(done.proof.errors) == list(types.nodes)
    assert_gives(done, graph, own)


def test_a_linear_of_a_dict() -> None:
    graph = random_graph(SEVERAL, 23, seed=9)
    module = shake(PYG["dict linear"]())
    edges = {SEVERAL.triple(name): one.edge_index for name, one in graph.edges.items()}
    done = export_module(module, graph=SEVERAL)
    with quiet():
        assert_gives(done, graph, module.double()(graph.x, edges))


@needs_dgl
@pytest.mark.parametrize("name", DGL)
def test_numbers_of_dgl(name: str) -> None:
    graph, dgl = random_graph(SEVERAL, 23, seed=9), load_dgl()
    module = shake(DGL[name]())
    done = export_module(module, graph=SEVERAL)
    merged, x = graph.merged, torch.cat(list(graph.x.values()))
    real = dgl.graph(tuple(merged["edge_index"]), num_nodes=len(x))
    real.ndata["feat"], real.edata["_TYPE"] = x, merged["edge_type"]
    if name == "entity":
        real.edata["norm"], given = merged["norm"], []
    elif name == "link":
        given = [x, merged["edge_type"], merged["norm"]]
    else:
        given = [x, merged["node_type"], merged["edge_type"]]
    with quiet():
        assert_gives(done, graph, module.double()(real, *given))


@needs_dgl
def test_a_norm_is_that_of_dgl() -> None:
    """What `norm` stands for is what ``dgl.norm_by_dst`` gives, relation by relation."""
    graph, dgl = random_graph(SEVERAL, 23, seed=9), load_dgl()
    ends = {SEVERAL.triple(name): (one.src, one.dst) for name, one in graph.edges.items()}
    real = dgl.heterograph(ends, num_nodes_dict=graph.counts)
    norms = [dgl.norm_by_dst(real, triple) for triple in ends]
    assert torch.allclose(graph.merged["norm"].squeeze(1), torch.cat(norms).double())


@needs_dgl
def test_a_table_of_all_nodes() -> None:
    types = GraphTypes({"page": 0}, ONE_TYPE.relations)
    done = export_module(shake(Entities()), graph=types, tables={"page": "emb"})
    assert done.proof.largest_error <= TOLERANCE
    assert len(done.files.tables) == 1
    several = GraphTypes(dict.fromkeys(SEVERAL.nodes, IN), SEVERAL.relations)
    with pytest.raises(ModelError, match="no table is of one type; name one node type"):
        export_module(shake(Entities()), graph=several, tables={"paper": "emb"})


MISTAKES = {
    "conv": r"conv \(GraphConv\) is given a graph with all node types together",
    "update": "the graph has all node types together, and its update_all is not known",
    "norm": "RelGraphConv is given a norm that was computed",
    "types": "RelGraphConv is known on the whole graph, .*; etypes is something else",
    "linear": "TypedLinear is known on rows of nodes, with the numbers of their types",
    "mean": "mixes rows of several node types",
}


@needs_dgl
@pytest.mark.parametrize("way", MISTAKES)
def test_what_all_types_together_cannot(way: str) -> None:
    with pytest.raises(ModelError, match=MISTAKES[way]) as caught:
        export_module(shake(OnTogether(way)), graph=SEVERAL)
    assert "export_models_numbered.py:" in str(caught.value)


@needs_dgl
def test_numbers_must_fit_the_graph() -> None:
    with pytest.raises(ModelError, match="RelGraphConv has 4 relations, but the graph has 3: auth"):
        export_module(shake(OnTogether("", relations=4)), graph=SEVERAL)
    with pytest.raises(ModelError, match="TypedLinear has 3 node types, but the graph has 1: page"):
        export_module(shake(DGL["hgt"]()), graph=ONE_TYPE)
    with pytest.raises(ModelError, match="name its node types and relations with --graph"):
        export_module(shake(OnTogether("")))
    wide = types_of({"nodes": {"a": IN, "b": 2}, "edges": ["a:x:b", "b:y:a", "a:z:a"]})
    with pytest.raises(ModelError, match="their features have different columns: a 6, b 2"):
        export_module(shake(OnTogether("")), graph=wide)


@pytest.mark.parametrize("types", [SEVERAL, ONE_TYPE], ids=["several types", "one type"])
@pytest.mark.parametrize("name", export_relations.CASES)
def test_numbers_in_code_of_any_kind(name: str, types: GraphTypes) -> None:
    graph, module = random_graph(types, 23, seed=9), shake(export_relations.CASES[name]())
    done = export_module(module, graph=types)
    names = list(inspect.signature(module.forward).parameters)[1:]
    with quiet():
        x = torch.cat(list(graph.x.values()))
        own = module.double()(x, *(graph.merged[role] for role in names))
    assert_gives(done, graph, own)


def _with_loops(x: Any, edge_index: Any, edge_type: Any) -> Any:
    from torch_geometric import utils

    del edge_type
    return utils.add_self_loops(edge_index, num_nodes=x.size(0))[0]


PICKED: dict[str, tuple[Any, str]] = {
    "no number": (lambda x, e, t: e[:, t == 7], "a mask that keeps none of the relations"),
    "features": (lambda x, e, t: e[:, x[e[0], 0] > 0], "the mask as a number"),
    "self-loops": (_with_loops, "several relations together.*let self-loops be a relation"),
}


@pytest.mark.parametrize("name", PICKED)
def test_edges_that_no_number_picks(name: str) -> None:
    pick, says = PICKED[name]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(IN, 3)

        def forward(self, x, edge_index, edge_type):
            return self.conv(x, pick(x, edge_index, edge_type))

    with pytest.raises(ModelError, match=says):
        export_module(shake(Net()), graph=ONE_TYPE)
