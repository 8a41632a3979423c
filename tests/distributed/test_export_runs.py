"""A module as a user trains it: exported, shown, run on a grid, and what it gives itself."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import embertide
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_files
from embertide.tracing.export import export_module
from embertide.tracing.graph_types import named_types
from tests.support.commands import Commands
from tests.support.exact import assert_exact
from tests.support.models import Files, shake
from tests.support.plans import order_steps
from tests.support.pyg import pyg
from tests.support.ranks import on_grid
from tests.support.small_job import NODES, WIDTH, SmallJob
from tests.support.typed_programs import BOUGHT_BY, BUYS, FOLLOWS, HAS, NEVER, OF
from tests.support.typed_world import (
    EDGE_FEATURES,
    WIDTHS,
    embed_types,
    layer_of,
    make_edges,
    make_typed_features,
)

pytestmark = pytest.mark.distributed

RELATIONS = (BUYS, BOUGHT_BY, FOLLOWS, NEVER, HAS, OF)
MODELS = """
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv


class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden=6):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden, cached=True)
        self.norm = torch.nn.BatchNorm1d(hidden)
        self.conv2 = GATConv(hidden, 3, heads=2, concat=False)

    def forward(self, x, edge_index):
        h = self.norm(self.conv1(x, edge_index)).relu()
        h = F.dropout(h * torch.sigmoid(h), 0.5, training=self.training)
        return F.log_softmax(self.conv2(h, edge_index), dim=-1)
"""


def trained(folder: Path) -> torch.Tensor:
    """Make the weights file of the folder's module; what the module gives for the job's files."""
    torch.manual_seed(1)
    net = runpy.run_path(str(folder / "models.py"))["Net"](WIDTH)
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 2)
    torch.save(net.state_dict(), folder / "best.pt")
    ids = torch.arange(NODES)
    x = torch.tensor(np.random.default_rng(0).normal(size=(NODES, WIDTH)).astype("f4"))
    with torch.no_grad():
        own: torch.Tensor = net.eval()(x, torch.stack([ids, ids.roll(1)]))
    return own


def test_a_trained_module_becomes_embeddings(tmp_path: Path) -> None:
    SmallJob.make(tmp_path)
    for one in (tmp_path / "model").iterdir():
        one.unlink()
    (tmp_path / "models.py").write_text(MODELS)
    own = trained(tmp_path)
    told = _embertide(
        tmp_path,
        *("export", "models.py:Net", "--init", json.dumps({"in_channels": WIDTH})),
        *("--weights", "best.pt", "--out", "model", "--json"),
    )
    assert told["proof"]["largest_error"] <= told["proof"]["tolerance"] == 1e-9
    # What runs it has neither the user's file nor their packages.
    (tmp_path / "models.py").unlink()
    report = _embertide(tmp_path, "run", "job.yaml", "--grid", "2x2", "--json")
    assert report["grid"] == [2, 2]
    assert [one["conv"] for one in report["facts"]["layers"]] == ["GCNConv conv1", "GATConv conv2"]
    ids, vectors = embertide.read(tmp_path / "embeddings").to_numpy()
    expected = own.numpy()[ids]
    assert np.abs(expected - vectors).max() < 1e-5 * np.abs(expected).max()


class Typed(torch.nn.Module):
    """Several kinds of convolutions, of which one reads features of edges and one such that were
    encoded, one softmax over all relations, and outputs for two types."""

    def __init__(self) -> None:
        super().__init__()
        triples = [tuple(name.split(":")) for name in RELATIONS]
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.GATConv((7, 5), 4, edge_dim=2, add_self_loops=False),
                ("item", "bought_by", "user"): pyg.NNConv((5, 7), 4, torch.nn.Linear(2, 20)),
                ("user", "follows", "user"): pyg.GCNConv(7, 4),
                ("tag", "never", "user"): pyg.SAGEConv((4, 7), 4),
                ("item", "has", "tag"): pyg.GraphConv((5, 4), 4, aggr="max"),
                ("tag", "of", "item"): pyg.SAGEConv((4, 5), 4),
            }
        )
        self.hgt = pyg.HGTConv(4, 4, (["user", "item", "tag"], triples), heads=2)

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        made = self.conv(x_dict, edge_index_dict, edge_attr_dict)
        x_dict = {name: x.relu() for name, x in made.items()}
        x_dict = self.hgt(x_dict, edge_index_dict)
        return {"item": x_dict["item"], "user": x_dict["user"]}


def test_a_module_of_several_types_runs_on_a_grid() -> None:
    module = shake(Typed())
    columns = dict.fromkeys(RELATIONS, 0) | dict.fromkeys((BUYS, BOUGHT_BY), EDGE_FEATURES)
    types = named_types({"nodes": {**WIDTHS, "lone": 0}, "edges": columns}, open_storage(None))
    files = Files()
    export_module(module, graph=types).write(files, "file:///m")  # type: ignore[arg-type]
    program = read_files(files, "file:///m").program()  # type: ignore[arg-type]
    assert program.layers == 2
    by_rank = on_grid(2, 1, embed_types, [order_steps(program, 2)])
    layer = layer_of(make_edges())
    # PyG's HGTConv relies on the order that it was made with.
    edges = {tuple(name.split(":")): torch.stack(layer[name][:2]) for name in RELATIONS}
    features = {name: x.double() for name, x in make_typed_features().items()}
    with torch.no_grad():
        carried = {tuple(name.split(":")): layer[name][3].double() for name in (BUYS, BOUGHT_BY)}
        expected = module.double()(features, edges, carried)
    assert set(by_rank[0][0]) == set(expected) == {"item", "user"}
    for name, own in expected.items():
        assert_exact(np.concatenate([answers[0][name] for answers in by_rank]), own)


def _embertide(folder: Path, *args: str) -> dict[str, object]:
    """The last JSON object that a command writes."""
    ended = Commands(folder).run(*args, folder=folder)
    assert ended.code == 0, ended.err
    found: dict[str, object] = json.loads(ended.out.splitlines()[-1])
    return found
