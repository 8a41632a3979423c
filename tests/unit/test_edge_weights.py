"""Edge weights that a model reads are demanded of the job, relation by relation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import embertide
from embertide.errors import ModelError
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_files
from embertide.tracing.export import export_file
from tests.support.models import shake
from tests.support.pyg import pyg
from tests.support.small_job import NODES, WIDTH, SmallJob

EDGE = "input__edges__0"
CURE = "add weight: COLUMN to its columns, or weights: ones if each edge counts 1"


class Required(nn.Module):
    """Takes weights, always."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(WIDTH, 3)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight)


class Optional(Required):
    """Takes them where there are some."""

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight)


class Unread(Required):
    """Takes none."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class InMessages(nn.Module):
    """Weights in a message of the user's own, of some layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = pyg.GraphConv(WIDTH, 3), pyg.SAGEConv(3, 3)

    def forward(self, x, edge_index, edge_weight):
        return self.last(self.conv(x, edge_index, edge_weight.log1p()), edge_index)


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    """A job whose edges have a column w."""
    made, ids = SmallJob.make(tmp_path), np.arange(NODES)
    made.write_edges(ids, np.roll(ids, 1), w=np.linspace(0.5, 2, NODES).astype("f4"))
    return made


def exported(job: SmallJob, module: nn.Module, **options: Any) -> None:
    shutil.rmtree(job.model)
    embertide.export(shake(module), job.model, **options)


def weighted(job: SmallJob) -> Path:
    """The job as a file that names its weights."""
    job.write_manifest(**{f"{EDGE}__columns": {"weight": "w"}})
    return Path(job.manifest)


def by_command(job: SmallJob, option: str) -> None:
    """Export with the command, which is given the job."""
    file = job.model.parent / f"weights_by_{option}.py"
    file.write_text("from tests.unit.test_edge_weights import Optional as Net\n")
    torch.save(shake(Optional()).state_dict(), job.model.parent / "w.pt")
    shutil.rmtree(job.model)
    given = {option: str(weighted(job))}
    init: dict[str, Any] = {"init": {}, "inputs": {}, "width": None}
    weights, out = f"{job.model.parent}/w.pt", f"file://{job.model}"
    export_file(f"{file}:Net", open_storage(None), weights, out, **init, **given)


def described(job: SmallJob, layer: str) -> None:
    """A model.yaml of one layer, with the weights of a GraphConv or GCNConv."""
    shutil.rmtree(job.model)
    job.model.mkdir()
    library = "dgl" if "edge_weight_norm" in layer else "pyg"
    module = pyg.GCNConv(WIDTH, 3) if library == "pyg" else nn.Linear(WIDTH, 3)
    state = {f"conv.{name}": value for name, value in shake(module).state_dict().items()}
    if library == "dgl":
        state["conv.weight"] = state["conv.weight"].T.contiguous()
    torch.save(state, job.model / "weights.pt")
    (job.model / "model.yaml").write_text(f"library: {library}\nlayers: [{{{layer}}}]\n")


def notes_of(job: SmallJob, **changes: Any) -> list[str]:
    """What a plan says of weights; it is made before a run computes anything."""
    job.write_manifest(**changes)
    return [
        n
        for n in embertide.plan(Path(job.manifest), grid="1x1").notes
        if "weight" in n and "self-loops" not in n
    ]


SAMPLE = torch.ones(3, WIDTH), torch.zeros(2, 2, dtype=torch.int64)
REQUIRED: dict[str, Callable[[SmallJob], None]] = {
    "an argument": lambda job: exported(job, Required()),
    "in messages": lambda job: exported(job, InMessages()),
    "a sample": lambda job: exported(
        job,
        Optional(),
        sample={"x": SAMPLE[0], "edge_index": SAMPLE[1], "edge_weight": torch.ones(2)},
    ),
    "a job": lambda job: exported(job, Optional(), graph=weighted(job)),
    "--sample": lambda job: by_command(job, "sample"),
    "--graph": lambda job: by_command(job, "graph"),
    "model.yaml says so": lambda job: described(job, "conv: gcn, edge_weight: true"),
    "EdgeWeightNorm": lambda job: described(job, "conv: gcn, norm: none, edge_weight_norm: both"),
}


@pytest.mark.parametrize("case", REQUIRED)
def test_weights_that_a_model_reads_are_demanded(job: SmallJob, case: str) -> None:
    REQUIRED[case](job)
    with pytest.raises(ModelError) as refused:
        notes_of(job)
    message = str(refused.value)
    assert "spec.input.edges[0] (node:edge:node) names no column for it" in message
    assert CURE in message
    assert notes_of(job, **{f"{EDGE}__weights": "ones"}) == []
    assert notes_of(job, **{f"{EDGE}__columns": {"weight": "w"}}) == []


@pytest.mark.parametrize("sample", [None, SAMPLE])
def test_weights_that_a_model_takes_as_an_option_are_asked_for(job: SmallJob, sample: Any) -> None:
    exported(job, Optional(), sample=sample)
    (note,) = notes_of(job)
    assert "reads the weight of each edge where edges have some" in note
    assert CURE in note
    assert notes_of(job, **{f"{EDGE}__weights": "ones"}) == []
    assert notes_of(job, **{f"{EDGE}__columns": {"weight": "w"}}) == []


def test_a_folder_of_an_earlier_release_warns(job: SmallJob) -> None:
    exported(job, Required())
    file = job.model / "program.yaml"
    text = file.read_text()
    file.write_text(re.sub(r"edges:\n- \{weights: required\}\n", "", text))
    assert file.read_text() != text
    (note,) = notes_of(job)
    assert CURE in note


def test_a_convolution_of_model_yaml_reads_weights_if_there_are_some(job: SmallJob) -> None:
    described(job, "conv: gcn")
    assert notes_of(job) == []
    assert notes_of(job, **{f"{EDGE}__columns": {"weight": "w"}}) == []


@pytest.mark.parametrize(
    ("fields", "warned"),
    [({}, True), ({"duplicates": "remove"}, True), ({"weights": "ones", "columns": {}}, False)],
)
def test_weights_that_no_step_reads_are_a_warning(
    job: SmallJob, fields: dict[str, Any], warned: bool
) -> None:
    exported(job, Unread())
    given = {"columns": {"weight": "w"}} | fields
    notes = notes_of(job, **{f"{EDGE}__{name}": value for name, value in given.items()})
    assert [
        "does not read the weight of edges, so spec.input.edges[0].columns.weight (w, of" in note
        for note in notes
    ] == [True] * warned


VIEWS, BUYS = "user:views:item", "user:buys:item"


class Shop(nn.Module):
    """Reads weights of some relations."""

    def __init__(self) -> None:
        super().__init__()
        self.views, self.buys = pyg.GraphConv((WIDTH, 2), 3), pyg.SAGEConv((WIDTH, 2), 3)

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        x, views = (x_dict["user"], x_dict["item"]), tuple(VIEWS.split(":"))
        seen = self.views(x, edge_index_dict[views], edge_weight_dict[views])
        return {"item": seen + self.buys(x, edge_index_dict[tuple(BUYS.split(":"))])}


class OptionalShop(Shop):
    """Takes weights of each relation where there are some."""

    def __init__(self) -> None:
        super().__init__()
        self.buys = pyg.GraphConv((WIDTH, 2), 3)

    def forward(self, x_dict, edge_index_dict, edge_weight_dict=None):
        x, given = (x_dict["user"], x_dict["item"]), edge_weight_dict or {}
        pairs = ((self.views, tuple(VIEWS.split(":"))), (self.buys, tuple(BUYS.split(":"))))
        return {"item": sum(conv(x, edge_index_dict[of], given.get(of)) for conv, of in pairs)}


@pytest.mark.parametrize("named", [False, True])
def test_relations_of_a_sample_with_weights_are_those_that_need_them(named: bool) -> None:
    views, buys = (tuple(relation.split(":")) for relation in (VIEWS, BUYS))
    sample = {
        "x_dict": {"user": torch.ones(4, WIDTH), "item": torch.ones(5, 2)},
        "edge_index_dict": dict.fromkeys((views, buys), SAMPLE[1]),
        "edge_weight_dict": {views: torch.ones(2)},
    }
    graph = {"nodes": {"user": WIDTH, "item": 2}, "edges": [VIEWS, BUYS]} if named else None
    done = embertide.export(shake(OptionalShop()), explain=True, sample=sample, graph=graph)
    assert done.exported.program.weights == {VIEWS: "required"}
    bare = {name: of for name, of in sample.items() if name != "edge_weight_dict"}
    done = embertide.export(shake(OptionalShop()), explain=True, sample=bare, graph=graph)
    assert done.exported.program.weights == {VIEWS: "optional", BUYS: "optional"}


def test_each_relation_is_asked_for_its_own(tmp_path: Path) -> None:
    graph = {"nodes": {"user": WIDTH, "item": 2}, "edges": [VIEWS, BUYS]}
    embertide.export(shake(Shop()), tmp_path / "model", graph=graph)
    program = read_files(open_storage(None), f"file://{tmp_path}/model").program()
    assert program.weights == {VIEWS: "required"}
    for name, width in graph["nodes"].items():  # type: ignore[attr-defined]
        np.save(tmp_path / f"{name}.npy", np.ones((5, width), np.float32))
    for name in ("views", "buys"):
        (tmp_path / f"{name}.csv").write_text("src,dst,w\n0,1,2\n3,2,0.5\n")

    def notes(views: dict[str, Any], buys: dict[str, Any]) -> list[str]:
        ends = {"sourceType": "user", "destinationType": "item", "format": "csv"}
        edges = [
            {"name": name, "uri": f"{tmp_path}/{name}.csv", **ends, **fields}
            for name, fields in (("buys", buys), ("views", views))
        ]
        nodes = [
            {"name": name, "features": {"uri": f"{tmp_path}/{name}.npy", "format": "npy"}}
            for name in ("user", "item")
        ]
        spec = {
            "input": {"edges": edges, "nodes": nodes},
            "model": {"uri": f"{tmp_path}/model"},
            "output": {"uri": f"{tmp_path}/out"},
        }
        head = {"apiVersion": "embertide.dev/v1alpha1", "kind": "EmbeddingJob"}
        job = head | {"metadata": {"name": "shop"}, "spec": spec}
        return [n for n in embertide.plan(job, grid="1x1").notes if "weight" in n]

    weight = {"columns": {"weight": "w"}}
    with pytest.raises(ModelError, match=rf"spec.input.edges\[1\] \({VIEWS}\) names no column"):
        notes({}, {})
    assert notes(weight, {}) == []
    assert notes({"weights": "ones"}, {}) == []
    (unread,) = notes(weight, weight)
    assert f"spec.input.edges[0].columns.weight (w, of {BUYS}) changes nothing" in unread
