"""Models that read features of edges give, exported, what they give themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from embertide.models.dgl_interop import why_no_dgl
from embertide.models.read import read_files
from embertide.models.reference import run_typed_reference
from embertide.steps import Message, Program
from embertide.storage.opening import open_storage
from embertide.tracing.export import Export, export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE, layer_graphs
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.record.precision import quiet
from tests.support import export_models_edges
from tests.support.exact import relative_error
from tests.support.export_models import IN, OUT
from tests.support.export_models_edges import HETERO_GRAPH, PYG, Attention, HeteroEdges, K, Own
from tests.support.models import Files, shake
from tests.support.pyg import pyg

GRAPH = random_graph(GraphTypes({"": IN}, edge_features={"": K}), 29, seed=9)


def as_read(done: Export) -> Program:
    assert done.proof.largest_error <= TOLERANCE
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    return read_files(files, "file:///m").program()  # type: ignore[arg-type]


def assert_gives(program: Program, graph: RandomGraph, expected: dict[str, torch.Tensor]) -> None:
    """On a graph that export never saw; workers have folded norms in float32."""
    layers = layer_graphs(program, graph, weighted=True)
    found = run_typed_reference(program, layers, graph.x, graph.counts)
    assert set(found) == set(expected)
    for name, rows in found.items():
        assert relative_error(rows, expected[name]) <= 1e-6


@pytest.mark.parametrize("name", PYG)
def test_models_of_pyg(name: str) -> None:
    module = shake(PYG[name]())
    done = export_module(module, width=IN, edge_features=K)
    program = as_read(done)
    assert set(program.edge_columns().values()) == {K}
    edges = GRAPH.edges[""]
    x, more = GRAPH.x[""], [edges.edge_index, edges.features]
    with quiet():
        module = module.double()
        if name in ("unimp", "edge network"):
            from torch_geometric.data import Data

            expected = module(Data(x=x, edge_index=more[0], edge_attr=more[1]))
        else:
            expected = module(x, more[0], *([edges.weight] if name == "both" else []), more[1])
    assert expected.shape[1] == OUT
    assert_gives(program, GRAPH, {"": expected})


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
@pytest.mark.parametrize("name", ["edge gat", "gine", "e-sage", "built-in", "nnconv"])
def test_models_of_dgl(name: str) -> None:
    from tests.support.export_models_edges_dgl import DGL, dgl

    module = shake(DGL[name]())
    program = as_read(export_module(module, width=IN, edge_features=K))
    edges, x = GRAPH.edges[""], GRAPH.x[""]
    real = dgl.graph((edges.src, edges.dst), num_nodes=len(x))
    real.edata["w"] = edges.weight
    real.edata["feat"] = real.edata["efeat"] = edges.features
    real.ndata["feat"] = x
    for one in module.modules():
        getattr(one, "set_allow_zero_in_degree", lambda _allow: None)(True)
    given = {"gine": [x], "built-in": []}.get(name, [x, edges.features])
    with quiet():
        assert_gives(program, GRAPH, {"": module.double()(real, *given)})


def test_relations_have_their_own_columns() -> None:
    types = named_types(HETERO_GRAPH, Files())  # type: ignore[arg-type]
    graph = random_graph(types, 23, seed=9)
    module = shake(HeteroEdges())
    program = as_read(export_module(module, graph=types))
    assert program.edge_columns() == {"user:buys:item": 2, "user:knows:user": K}
    edges = {types.triple(name): one for name, one in graph.edges.items()}
    with quiet():
        expected = module.double()(
            graph.x,
            {name: one.edge_index for name, one in edges.items()},
            {name: one.features for name, one in edges.items() if one.features is not None},
        )
    assert_gives(program, graph, expected)


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
def test_a_relation_of_dgl_has_features() -> None:
    from tests.support.export_models_edges_dgl import Hetero

    types = named_types(HETERO_GRAPH, Files())  # type: ignore[arg-type]
    program = as_read(export_module(shake(Hetero()), graph=types))
    assert program.edge_columns() == {"user:buys:item": 2}


# ---- who says how many columns


def test_the_module_tells_them() -> None:
    program = as_read(export_module(shake(Attention())))
    assert program.edge_columns() == {"": K}
    assert [one.loop_features for one in program.steps if isinstance(one, Message)] == [
        "mean",
        "max",
        0.5,
    ]


def test_without_any_they_are_weights_or_nothing() -> None:
    """An argument edge_attr of a module that tells no columns is the edges' weight, as ever."""

    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GraphConv(IN, OUT)

        def forward(self, x, edge_index, edge_attr=None):
            return self.conv(x, edge_index, edge_attr)

    done = export_module(shake(Weighted()))
    assert done.proof.weighted == (True, False)
    assert done.exported.program.edge_columns() == {}


def test_a_layer_that_is_given_none_reads_none() -> None:
    class Left(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GATConv(IN, OUT, edge_dim=K)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    assert as_read(export_module(shake(Left()))).edge_columns() == {}


def test_a_job_tells_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, IN), "f4"))
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,0.5,1\n2,3,0,2\n")
    edges = {
        "name": "knows", "sourceType": "user", "destinationType": "user", "reverse": "known_by",
        "uri": f"file://{tmp_path}/edges.csv", "format": "csv",
        "features": {"columns": ["a", "b"]},
    }  # fmt: skip
    features = {"uri": f"file://{tmp_path}/x.npy", "format": "npy"}
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "edges"},
        "spec": {
            "input": {"edges": [edges], "nodes": [{"name": "user", "features": features}]},
            "model": {"uri": f"file://{tmp_path}/model"},
            "output": {"uri": f"file://{tmp_path}/out"},
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    types = named_types(tmp_path / "job.yaml", open_storage(None))
    both = {"user:knows:user": 2, "user:known_by:user": 2}
    assert types == GraphTypes({"user": IN}, tuple(both), both)


def test_the_command_says_them(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    torch.save(shake(Own()).state_dict(), tmp_path / "best.pt")
    command = ("export", f"{export_models_edges.__file__}:Own", "--edge-features", str(K))
    out = str(tmp_path / "model")
    code, told, _ = cli(*command, "--weights", str(tmp_path / "best.pt"), "--out", out, "--json")
    assert code == 0
    assert json.loads(told)["proof"]["largest_error"] <= TOLERANCE
    program = read_files(open_storage(None), f"file://{out}").program()
    assert program.edge_columns() == {"": K}
