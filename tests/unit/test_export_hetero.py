"""Models of graphs with node types give, exported, what they give themselves, for each type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from embertide.errors import ModelError
from embertide.models.dgl_interop import why_no_dgl
from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.models.summary import summarise
from embertide.spec.manifest import EmbeddingJob
from embertide.steps import Attend, Message
from embertide.storage.opening import open_storage
from embertide.tracing.export import Export, export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.record.precision import quiet
from tests.support import export_models_hetero
from tests.support.exact import relative_error
from tests.support.export_models_hetero import GRAPH, HETERO, NODES, RELATIONAL, TRIPLES, OwnGat
from tests.support.models import Files, shake
from tests.support.pyg import pyg
from tests.support.typed_files import write_typed_job

NUMBERED = {"nodes": {"page": 6}, "edges": [f"page:{name}:page" for name in "abc"]}


def types_of(graph: dict[str, Any]) -> GraphTypes:
    return named_types(graph, Files())  # type: ignore[arg-type]


def edges_of(graph: RandomGraph) -> dict[Any, torch.Tensor]:
    return {graph.types.triple(name): one.edge_index for name, one in graph.edges.items()}


def initialised(make: Callable[[], torch.nn.Module], graph: RandomGraph) -> torch.nn.Module:
    """A module of PyG whose lazy parameters have their sizes."""
    module = make()
    with torch.no_grad():
        module({name: x.float() for name, x in graph.x.items()}, edges_of(graph))
    return shake(module)


def assert_program_gives(done: Export, graph: RandomGraph, expected: Any) -> None:
    """What workers read, on a graph that export never saw; they have parameters in float32."""
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    program = read_files(files, "file:///m").program()  # type: ignore[arg-type]
    if not isinstance(expected, dict):
        expected = dict.fromkeys(program.results, expected)
    layers = {name: (one.src, one.dst, one.weight) for name, one in graph.edges.items()}
    found = run_typed_reference(program, [layers] * program.layers, graph.x, graph.counts)
    assert set(found) == set(expected)
    for name, rows in found.items():
        assert relative_error(rows, expected[name]) <= 1e-6
        assert done.proof.errors[name] <= TOLERANCE


@pytest.mark.parametrize("name", HETERO)
def test_models_of_pyg(name: str) -> None:
    graph = random_graph(types_of(GRAPH), 23, seed=9)
    module = initialised(HETERO[name], graph)
    done = export_module(module, graph=graph.types)
    with quiet():
        assert_program_gives(done, graph, module.double()(graph.x, edges_of(graph)))


def test_relations_may_be_named_in_another_order() -> None:
    graph = random_graph(types_of(GRAPH), 23, seed=9)
    module = initialised(HETERO["hgt_dblp"], graph)
    turned = types_of({"nodes": NODES, "edges": TRIPLES[::-1]})
    assert export_module(module, graph=turned).proof.largest_error <= TOLERANCE


@pytest.mark.parametrize("name", RELATIONAL)
def test_models_with_numbered_relations(name: str) -> None:
    graph = random_graph(types_of(NUMBERED), 23, seed=9)
    module = shake(RELATIONAL[name]())
    done = export_module(module, graph=graph.types)
    with quiet():
        edge_index, edge_type = graph.merged["edge_index"], graph.merged["edge_type"]
        assert_program_gives(done, graph, module.double()(graph.x["page"], edge_index, edge_type))


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
@pytest.mark.parametrize(
    "name", ["rgcn-hetero", "multi_update_all", "HeteroGraphConv", "edge_softmax"]
)
def test_models_of_dgl(name: str) -> None:
    from tests.support.export_models_hetero_dgl import GRAPH, HETERO_DGL, dgl

    graph = random_graph(types_of(GRAPH), 23, seed=9)
    module = shake(HETERO_DGL[name]())
    done = export_module(module, graph=graph.types)
    ends = {triple: (one[0], one[1]) for triple, one in edges_of(graph).items()}
    real = dgl.heterograph(ends, num_nodes_dict=graph.counts)
    for one in module.modules():
        getattr(one, "set_allow_zero_in_degree", lambda _allow: None)(True)
    with quiet():
        module = module.double()
        if name == "multi_update_all":
            real.ndata["feat"] = graph.x
            expected = module(real)
        else:
            expected = module([real] if name == "HeteroGraphConv" else real, graph.x)
        assert_program_gives(done, graph, expected)


# ---- how it is said


def exported(name: str) -> Export:
    graph = random_graph(types_of(GRAPH), 23, seed=9)
    return export_module(initialised(HETERO[name], graph), graph=graph.types)


def test_convolutions_of_one_call_are_one_layer() -> None:
    done = exported("hetero_conv_dblp")
    layers = [(one.name, one.kind, one.graph) for one in done.exported.layers]
    assert layers == [("convs.0", "HeteroConv", True), ("convs.1", "HeteroConv", True)]
    program = done.exported.program
    assert list(program.results) == ["author"]
    # Nothing that leads to authors reads what happens at terms in the last layer.
    last = {one.edges.relation for one in program.steps if one.layer == 1 and one.edges}
    assert last == {"paper:to:author"}
    layers = [(one.name, one.kind) for one in exported("to_hetero_mag").exported.layers]
    assert layers == [("conv1", "SAGEConv"), ("conv2", "SAGEConv")]


def test_the_softmax_of_gat_has_a_step_of_its_own() -> None:
    done = export_module(shake(OwnGat()), graph=types_of(GRAPH))
    over_edges = [step for step in done.exported.program.steps if step.edges is not None]
    assert [type(step) for step in over_edges] == [Attend]
    own = [step for step in exported("own").exported.program.steps if step.edges is not None]
    assert [(type(step), step.reduce) for step in own] == [(Message, "softmax")] * 2


def test_a_summary_has_types() -> None:
    done = exported("hgt_dblp")
    model = summarise(done.exported.program, "pyg", ["rows", "HGTConv", "HGTConv"])
    assert model.inputs == {"author": 5, "paper": 6, "term": 3}
    assert model.results == {"author": 3}
    assert model.layers[0].results == {"author": 4, "paper": 4, "term": 4}
    assert model.layers[1].results == {"author": 4, "paper": 4}
    relations = {step.relation for step in model.layers[1].steps} - {""}
    assert relations == set(types_of(GRAPH).relations) - {"paper:to:term"}
    assert {step.node_type for step in model.layers[0].steps} == {"author", "paper", "term"}


def test_a_job_names_its_types(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(write_typed_job(tmp_path)))
    types = named_types(tmp_path / "job.yaml", open_storage(None))
    assert types.nodes == {"user": 7, "item": 5, "tag": 4, "lone": 0}
    assert types.relations[:2] == ("user:buys:item", "item:bought_by:user")


def test_the_commands_tell_types(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    torch.save(shake(OwnGat()).state_dict(), tmp_path / "best.pt")
    graph = json.dumps({"nodes": GRAPH["nodes"], "edges": [":".join(one) for one in TRIPLES]})
    code, out, _ = cli(
        *("export", f"{export_models_hetero.__file__}:OwnGat", "--graph", graph),
        *("--weights", str(tmp_path / "best.pt"), "--out", str(tmp_path / "model")),
    )
    assert code == 0
    assert re.search(r"largest error \S+ for paper \(up to", out)
    proof = json.loads((tmp_path / "model" / "proof.json").read_text())
    assert set(proof["errors"]) == {"paper"}
    code, out, _ = cli("show", str(tmp_path / "model"), "--steps")
    assert code == 0
    assert "paper 6 → 6" in out
    code, out, _ = cli("show", str(tmp_path / "model"), "--json")
    steps = [(one["node_type"], one["relation"]) for one in json.loads(out)["layers"][0]["steps"]]
    assert code == 0
    assert {("author", ""), ("paper", ""), ("paper", "author:to:paper")} == set(steps)


# ---- what goes wrong


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        ('{"nodes": {"a": 5}', "the graph is no JSON"),
        ({"nodes": {"a": "5"}, "edges": ["a:x:a"]}, "columns of each type's features"),
        ({"nodes": {"a": 5}}, "columns of each type's features"),
        ({"nodes": {"a": 5}, "edges": ["a:a"]}, "edges have 'a:a'; write"),
        ({"nodes": {"a": 5}, "edges": [("a", "x", "b")]}, "a:x:b is of a node type 'b'"),
        ({"nodes": {"a": 5}, "edges": ["a:x:a"] * 2}, "name each once"),
    ],
)
def test_graphs_that_cannot_be_read(graph: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        named_types(graph, Files())  # type: ignore[arg-type]


class OneWeighted(torch.nn.Module):
    """Weights of one relation, as ``data.collect("edge_weight")`` gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.GraphConv((6, 5), 4),
                ("item", "rev_buys", "user"): pyg.SAGEConv((5, 6), 4),
            }
        )

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        return self.conv(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)


class Positional(OneWeighted):
    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        return self.conv(x_dict, edge_index_dict, edge_weight_dict)


class BothWeighted(OneWeighted):
    """Both convolutions take weights; what the graph has decides."""

    def __init__(self) -> None:
        super().__init__()
        relation = "item", "rev_buys", "user"
        self.conv.convs[relation] = pyg.GraphConv((5, 6), 4)


WEIGHED = "user:buys:item"
SHOP = {"nodes": {"user": 6, "item": 5}, "edges": [WEIGHED, "item:rev_buys:user"]}


@pytest.mark.parametrize(
    ("make", "weighted"),
    [(OneWeighted, None), (Positional, None), (BothWeighted, [WEIGHED]), (BothWeighted, None)],
)
def test_weights_of_some_relations(
    make: Callable[[], torch.nn.Module], weighted: list[str] | None
) -> None:
    types = replace(types_of(SHOP), weighted=weighted and frozenset(weighted))
    graph, module = random_graph(types, 23, seed=9), shake(make())
    done = export_module(module, graph=types)
    views = [step.edges for step in done.exported.program.steps if step.edges is not None]
    read = {view.relation for view in views if view.edge_weight}
    assert read == ({WEIGHED} if make is not BothWeighted or weighted else set(types.relations))
    weights = {types.triple(name): graph.edges[name].weight for name in read}
    with quiet():
        own = module.double()(graph.x, edges_of(graph), weights)
    assert_program_gives(done, graph, own)


def test_a_job_states_which_relations_have_weights(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path)
    storage, edges = open_storage(None), manifest["spec"]["input"]["edges"]
    types = named_types(EmbeddingJob.model_validate(manifest), storage)
    assert types.weighted == {"user:buys:item", "item:bought_by:user"}
    del edges[0]["columns"]["weight"]
    types = named_types(EmbeddingJob.model_validate(manifest), storage)
    assert types.weighted is None
