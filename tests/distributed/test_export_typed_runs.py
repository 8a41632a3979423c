"""Models of several node types as users write them, by the command alone: export, show, plan, run.

What a job publishes is held to the library's own forward on the same graph.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from embertide.errors import InputError
from embertide.models.dgl_interop import load_dgl
from embertide.tracing.load import build
from embertide.tracing.record.precision import quiet
from tests.support.commands import Commands, Done
from tests.support.models import shake
from tests.support.typed_files import check_rows, write_typed_job
from tests.support.typed_world import COUNTS, layer_of, make_edges, make_typed_features

pytestmark = pytest.mark.distributed

PYG = """
import torch
from torch_geometric.nn import GATv2Conv, GCNConv, GraphConv, HeteroConv, MessagePassing, SAGEConv
from torch_geometric.utils import add_self_loops, degree


class OwnConv(MessagePassing):
    '''As PyG's documentation has it.'''

    def __init__(self, columns, out):
        super().__init__(aggr="add")
        self.lin = torch.nn.Linear(columns, out)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        root = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        root[root == float("inf")] = 0
        return self.propagate(edge_index, x=self.lin(x), norm=root[row] * root[col])

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = HeteroConv(
            {
                ("user", "buys", "item"): GATv2Conv((7, 5), 3, heads=2, add_self_loops=False),
                ("item", "bought_by", "user"): GraphConv((5, 7), 6, aggr="max"),
                ("user", "follows", "user"): OwnConv(7, 6),
                ("tag", "never", "user"): SAGEConv((4, 7), 6),
                ("item", "has", "tag"): SAGEConv((5, 4), 6, aggr="max"),
                ("tag", "of", "item"): SAGEConv((4, 5), 6),
            },
            aggr="mean",
        )
        self.last = HeteroConv(
            {
                ("user", "buys", "item"): SAGEConv((6, 6), 4),
                ("user", "follows", "user"): GCNConv(6, 4),
            },
            aggr=None,
        )

    def forward(self, x_dict, edge_index_dict):
        x_dict = self.first(x_dict, edge_index_dict)
        x_dict = {name: torch.nn.functional.elu(x) for name, x in x_dict.items()}
        return {name: x.flatten(1) for name, x in self.last(x_dict, edge_index_dict).items()}
"""
DGL = """
import torch
from dgl.nn import GATConv, GraphConv, HeteroGraphConv, SAGEConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = HeteroGraphConv(
            {
                "buys": GraphConv(7, 6),
                "bought_by": SAGEConv((5, 7), 6, "pool"),
                "follows": GraphConv(7, 6, norm="right"),
                "never": SAGEConv((4, 7), 6, "mean"),
                "has": SAGEConv((5, 4), 6, "mean"),
                "of": SAGEConv((4, 5), 6, "mean"),
            },
            aggregate="max",
        )
        self.last = HeteroGraphConv(
            {name: GATConv((6, 6), 4, 2) for name in
             ("buys", "bought_by", "follows", "never", "has", "of")},
            aggregate="stack",
        )

    def forward(self, g, feat):
        h = self.first(g, feat)
        h = {name: torch.relu(x.flatten(1)) for name, x in h.items()}
        return {name: x.sum(dim=1).flatten(1) for name, x in self.last(g, h).items()}
"""
TO = """
import torch
from torch_geometric.nn import SAGEConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv((2, 2), 3)

    def forward(self, x_dict, edge_index_dict):
        return {"b": self.conv((x_dict["a"], x_dict["b"]), edge_index_dict["a", "to", "b"])}
"""
Layers = dict[str, Any]


def of_pyg(net: torch.nn.Module, x: dict[str, torch.Tensor], layer: Layers) -> Any:
    return net(x, {tuple(name.split(":")): torch.stack(e[:2]) for name, e in layer.items()})


def of_dgl(net: torch.nn.Module, x: dict[str, torch.Tensor], layer: Layers) -> Any:
    ends = {tuple(name.split(":")): edges[:2] for name, edges in layer.items()}
    counts = {name: count for name, count in COUNTS.items() if name in x}
    for one in net.modules():
        getattr(one, "set_allow_zero_in_degree", lambda _allow: None)(True)
    return net(load_dgl().heterograph(ends, num_nodes_dict=counts), x)


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of users' files are forgotten behind a test."""
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.mark.parametrize(
    ("name", "text", "forward", "grid"),
    [
        pytest.param("net_pyg", PYG, of_pyg, "2x2", id="HeteroConv"),
        pytest.param(
            "net_dgl",
            DGL,
            of_dgl,
            "4x1",
            id="HeteroGraphConv",
            marks=pytest.mark.dgl,
        ),
    ],
)
def test_a_model_goes_from_its_file_to_rows(
    tmp_path: Path, name: str, text: str, forward: Callable[..., Any], grid: str
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    expected = trained(tmp_path, name, forward)
    manifest = write_typed_job(tmp_path)
    # As the graph that the module is for: nothing but what it has features of.
    manifest["spec"]["input"]["nodes"].pop()
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    command = ("export", f"{name}.py:Net", "--weights", "best.pt", "--out", "model")
    proof = ran(tmp_path, *command, "--graph", "job.yaml", "--json").events[-1]["proof"]
    assert set(proof["errors"]) == set(expected)
    assert max(proof["errors"].values()) <= proof["tolerance"] == 1e-9
    shown = ran(tmp_path, "show", "model").out
    assert "first" in shown
    assert "last" in shown
    (tmp_path / f"{name}.py").unlink()
    plan = ran(tmp_path, "plan", "job.yaml", "--grid", grid, "--json").events[-1]
    assert plan["grid"] == [int(one) for one in grid.split("x")]
    report = ran(tmp_path, "run", "job.yaml", "--grid", grid, "--json").events[-1]
    assert report["grid"] == plan["grid"]
    for node_type, rows in expected.items():
        check_rows(tmp_path, node_type, rows)


def trained(folder: Path, name: str, forward: Callable[..., Any]) -> dict[str, torch.Tensor]:
    """Write a module's weights; what it gives for the job's graph, in float64."""
    torch.manual_seed(1)
    net = shake(made_from(folder, name))
    torch.save(net.state_dict(), folder / "best.pt")
    features = {name: x.double() for name, x in make_typed_features().items()}
    with quiet():
        given: dict[str, torch.Tensor] = forward(net.double(), features, layer_of(make_edges()))
    return given


def made_from(folder: Path, name: str) -> torch.nn.Module:
    """A module of the folder's file of that name."""
    return build(f"{folder}/{name}.py:Net", {})


def ran(folder: Path, *command: str) -> Done:
    done = Commands(folder).run(*command, folder=folder)
    assert done.code == 0, done.err
    return done


def test_a_node_of_the_other_type_is_no_destination(tmp_path: Path) -> None:
    """Both types have ids of one kind, and that of a source stands where a destination belongs."""
    parts = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}
    nodes = []
    for name, ids in parts.items():
        np.save(tmp_path / f"{name}.npy", np.ones((len(ids), 2), np.float32))
        vectors = pa.array([[1.0, 2.0]] * len(ids))
        pq.write_table(pa.table({"id": ids, "x": vectors}), tmp_path / f"{name}.parquet")
        features = {"uri": f"file://{tmp_path}/{name}.parquet", "vectorColumn": "x"}
        nodes.append({"name": name, "ids": "string", "features": features})
    (tmp_path / "to.csv").write_text("src,dst\na1,b1\na2,b2\na3,a1\n")
    edges = {
        "name": "to", "sourceType": "a", "destinationType": "b",
        "uri": f"file://{tmp_path}/to.csv", "format": "csv",
    }  # fmt: skip
    (tmp_path / "net_to.py").write_text(TO)
    torch.save(made_from(tmp_path, "net_to").state_dict(), tmp_path / "best.pt")
    manifest = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "wrong-type"},
        "spec": {
            "input": {"edges": [edges], "nodes": nodes},
            "model": {"uri": f"file://{tmp_path}/model"},
            "output": {"uri": f"file://{tmp_path}/out"},
        },
    }
    (tmp_path / "job.yaml").write_text(json.dumps(manifest))
    ran(
        tmp_path,
        *("export", "net_to.py:Net", "--weights", "best.pt", "--out", "model"),
        *("--graph", "job.yaml"),
    )
    done = Commands(tmp_path).run("run", "job.yaml", "--grid", "2x1", folder=tmp_path)
    assert done.code == InputError.exit_code
    assert done.message == (
        f"file://{tmp_path}/to.csv: 1 of 3 edges has an end that is not among the nodes, 33.3%"
        f" (unknownNodes: refuse). file://{tmp_path}/to.csv line 4: column 'dst'"
        " (columns.destination) is 'a1', no node of type 'b'. There are 3 nodes of type 'a', those"
        f" of file://{tmp_path}/a.parquet and 2 nodes of type 'b', those of"
        f" file://{tmp_path}/b.parquet. Correct or drop these rows, or add the nodes there;"
        " unknownNodes: {action: drop, maxShare: 1%}"
        " leaves a few such edges out"
    )
