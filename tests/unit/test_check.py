"""``embertide check`` on models of PyG and DGL: mistakes in a description are refused or named."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from tests.support.dgl_library import dgl
from tests.support.models import GRAPHS, NODES, features, shake
from tests.support.paths import ROOT
from tests.support.pyg import pyg
from tests.support.small_job import SmallJob

Cli = Callable[..., tuple[int, str, str]]
GRAPH = GRAPHS["directed"]
EDGES = torch.stack([GRAPH.src, GRAPH.dst])
X = features(5).float()


class Sage(nn.Module):
    """Layers of all kinds of parts after them; the last two have equal shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = pyg.SAGEConv(5, 8, aggr="max")
        self.norm = nn.BatchNorm1d(8)
        self.conv1 = pyg.SAGEConv(8, 8, normalize=True)
        self.link = nn.Linear(8, 8)
        self.conv2 = pyg.SAGEConv(8, 8)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv0(x, edges)).relu()
        x = self.conv1(x, edges).relu() + self.link(x)
        return self.conv2(x, edges)


class Gat(nn.Module):
    """Without the loops that GCNConv adds; heads are averaged at the end."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.conv0 = pyg.GCNConv(5, 6, add_self_loops=False)
        self.conv1 = pyg.GATConv(6, 4, heads=2, concat=False, bias=bias)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.conv1(self.conv0(x, edges).relu(), edges)


class Jumping(nn.Module):
    """The largest of three layers' outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(5 if n == 0 else 8, 8) for n in range(3)])
        self.jump = pyg.JumpingKnowledge("max")

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        outputs = []
        for conv in self.convs:
            x = conv(x, edges).relu()
            outputs.append(x)
        return self.jump(outputs)


SAGE = """library: pyg
layers:
  - {conv: sage, prefix: conv0, aggr: max, batch_norm: true, activation: relu}
  - {conv: sage, prefix: conv1, normalize: true, activation: relu, skip: {linear: link}}
  - {conv: sage, prefix: conv2}
"""
GAT = """library: pyg
layers:
  - {conv: gcn, add_self_loops: false, activation: relu}
  - {conv: gat, concat: false, bias: false}
"""
JUMPING = """library: pyg
layers:
  - {conv: gcn, activation: relu}
  - {conv: gcn, activation: relu}
  - {conv: gcn, activation: relu}
  - {conv: jumping_knowledge, mode: max}
"""


def write_job(folder: Path, module: nn.Module, yaml: str) -> SmallJob:
    """A job with the module's weights; the module gets random parameters."""
    job = SmallJob(folder)
    job.write_edges(GRAPH.src.numpy(), GRAPH.dst.numpy())
    job.write_features(range(NODES), X.numpy())
    job.write_manifest()
    job.model.mkdir()
    (job.model / "model.yaml").write_text(yaml)
    torch.save(shake(module).state_dict(), job.model / "model.pt")
    return job


def write_reference(path: Path, vectors: Any, ids: Any = None, column: str = "embedding") -> str:
    rows = [list(map(float, row)) for row in vectors]
    ids = list(range(len(rows))) if ids is None else ids
    pq.write_table(pa.table({"id": ids, column: rows}), path)
    return str(path)


def checked(cli: Cli, folder: Path, module: nn.Module, yaml: str, *more: str) -> Any:
    job = write_job(folder, module, yaml)
    with torch.no_grad():
        vectors = module(X, EDGES)
    reference = write_reference(folder / "reference.parquet", vectors[:30])
    return cli("check", job.manifest, "--against", reference, "--quiet", *more)


def test_a_check_in_the_process_of_a_user_leaves_its_garbage_to_be_collected(
    cli: Cli, tmp_path: Path
) -> None:
    before = gc.get_freeze_count()
    assert checked(cli, tmp_path, Sage(), SAGE)[0] == 0
    assert gc.get_freeze_count() <= before


@pytest.mark.tier(2)
@pytest.mark.parametrize(
    ("module", "yaml"), [(Sage, SAGE), (Gat, GAT), (Jumping, JUMPING)], ids=["sage", "gat", "jk"]
)
def test_right_descriptions_agree(cli: Cli, tmp_path: Path, module: Any, yaml: str) -> None:
    code, out, _ = checked(cli, tmp_path, module(), yaml)
    assert code == 0
    assert out.startswith("Agrees: 30 rows, largest difference ")
    assert not (tmp_path / "embeddings").exists()


def gat_with_bias() -> Gat:
    return Gat(bias=True)


NAMED: dict[str, tuple[Any, str, str, str, str]] = {
    "forgotten activation": (
        Sage, SAGE, "batch_norm: true, activation: relu", "batch_norm: true",
        "layers[0] (sage) with activation: relu",
    ),
    "wrong aggr": (Sage, SAGE, "aggr: max", "aggr: mean", "layers[0] (sage) with aggr: max"),
    "extra normalize": (
        Sage, SAGE, "conv2}", "conv2, normalize: true}",
        "layers[2] (sage) with normalize: false",
    ),
    "skip before the activation": (
        Sage, SAGE, "link}", "link}, order: [skip, activation]",
        "layers[1] (sage) with order: [activation, skip]",
    ),
    "wrong kind of activation": (
        Sage, SAGE, "true, activation: relu}", "true, activation: elu}",
        "layers[0] (sage) with activation: relu",
    ),
    "layers in the wrong order": (
        Sage, SAGE.replace("conv1", "conv9").replace("conv2", "conv1"), "conv9", "conv2",
        "layers[1] (sage) with prefix: conv1 and layers[2] (sage) with prefix: conv2",
    ),
    "loops that the module does not add": (
        Gat, GAT, "add_self_loops: false, ", "", "layers[0] (gcn) with add_self_loops: false",
    ),
    "heads side by side": (
        Gat, GAT, "concat: false, ", "", "layers[1] (gat) with concat: false",
    ),
    "forgotten JumpingKnowledge": (
        Jumping, JUMPING, "  - {conv: jumping_knowledge, mode: max}\n", "",
        "a layer {conv: jumping_knowledge, mode: max} after layers[2] (gcn)",
    ),
}  # fmt: skip


@pytest.mark.tier(2)
@pytest.mark.parametrize("mistake", NAMED)
def test_mistakes_that_fit_the_weights_are_named(cli: Cli, tmp_path: Path, mistake: str) -> None:
    module, right, old, new, expected = NAMED[mistake]
    assert right.count(old) == 1
    code, _, err = checked(cli, tmp_path, module(), right.replace(old, new))
    assert code == 4
    assert f"\n  {expected}\n" in err
    assert "all rows agree:\n" in err


REFUSED: dict[str, tuple[Any, str, str, str, str]] = {
    "forgotten batch norm": (Sage, SAGE, "batch_norm: true, ", "", "norm.running_mean"),
    "heads side by side with a bias": (
        gat_with_bias, GAT.replace(", bias: false", ""), ", concat: false", "", "conv1.bias",
    ),
}  # fmt: skip


@pytest.mark.tier(2)
@pytest.mark.parametrize("mistake", REFUSED)
def test_mistakes_that_do_not_fit_are_refused(cli: Cli, tmp_path: Path, mistake: str) -> None:
    module, right, old, new, parameter = REFUSED[mistake]
    assert right.count(old) == 1
    code, _, err = checked(cli, tmp_path, module(), right.replace(old, new))
    assert code == 4
    assert parameter in err
    assert "all rows agree" not in err


@pytest.mark.tier(2)
def test_two_mistakes_say_so_and_json_has_all(cli: Cli, tmp_path: Path) -> None:
    wrong = SAGE.replace("aggr: max, ", "").replace("normalize: true, ", "")
    code, out, _ = checked(cli, tmp_path, Sage(), wrong, "--json")
    found, error = map(json.loads, out.splitlines()[-2:])
    assert code == error["exit_code"] == 4
    assert "No single change of the description makes them agree" in error["message"]
    assert (found["agrees"], found["rows"], found["layer"]) == (False, 30, None)
    assert found["changes"] == []
    assert found["nearest"]["error"] < found["largest_error"]
    assert len(found["worst"]) == 5


@pytest.mark.tier(2)
def test_bad_references_are_refused(cli: Cli, tmp_path: Path) -> None:
    module = Sage()
    job = write_job(tmp_path, module, SAGE)
    with torch.no_grad():
        vectors = module(X, EDGES)[:3]
    path = tmp_path / "reference.parquet"

    def refused(*more: str) -> str:
        code, _, err = cli("check", job.manifest, "--against", str(path), "--quiet", *more)
        assert code == 3, err
        return err

    write_reference(path, vectors, ids=[4, 700, 701])
    message = refused()
    assert "2 of 3 ids are not among the 37 nodes of the graph: 700, 701." in message
    write_reference(path, vectors, column="h")
    assert "has no column 'embedding' (vectors of the reference)" in refused()
    vectors[1, 2] = torch.nan
    write_reference(path, vectors)
    assert "row 1 (from 0): column 'embedding' (vectors of the reference) holds NaN" in refused()
    write_reference(path, torch.zeros(3, 8))
    assert "every vector is zero" in refused()
    write_reference(path, [[1.0, 2.0], [1.0]])
    assert "holds a vector of width 1, others have 2" in refused()
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert "has no rows" in refused()


class DglSage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv0 = dgl.nn.SAGEConv(5, 8, "mean")
        self.conv1 = dgl.nn.SAGEConv(8, 4, "mean")

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        return self.conv1(graph, self.conv0(graph, x).relu())


DGL = """library: dgl
layers:
  - {conv: sage, aggregator_type: mean, activation: relu}
  - {conv: sage, aggregator_type: mean}
"""


@pytest.mark.tier(2)
@pytest.mark.parametrize("library", ["pyg", "dgl"])
def test_the_page_writes_references(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    page = (ROOT / "docs" / "check.md").read_text()
    blocks = dict(zip(("pyg", "dgl"), re.findall("```python\n(.*?)```", page, re.S), strict=True))
    module, yaml = (Sage(), SAGE) if library == "pyg" else (DglSage(), DGL)
    job = write_job(tmp_path, module, yaml)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": module, "x": X, "ids": list(range(NODES))}
    if library == "pyg":
        names["edge_index"] = EDGES
    else:
        names["graph"] = dgl.graph((GRAPH.src, GRAPH.dst), num_nodes=NODES)
    exec(blocks[library], names)
    code, out, err = cli("check", job.manifest, "--against", "reference.parquet", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith(f"Agrees: {NODES} rows")
