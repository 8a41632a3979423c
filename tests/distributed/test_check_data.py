"""``embertide check`` on exported models: the change of the manifest that makes rows agree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import embertide
from embertide.edge.check.check import Checked, check_job
from embertide.spec.manifest import load_manifest
from tests.support.models import shake
from tests.support.pyg import pyg
from tests.support.small_job import SmallJob

pytestmark = pytest.mark.distributed

NODES, WIDTH = 30, 3
G = np.random.default_rng(8)
X = (5 + 3 * G.normal(size=(NODES, WIDTH))).astype(np.float32)
SRC, DST = G.integers(1, NODES, (2, 90))
SRC[:4] = DST[:4]
WEIGHT = G.uniform(0.5, 2, 90).astype(np.float32)


class Net(nn.Module):
    """Weighted sums, whose scale counts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GraphConv(WIDTH, 6), pyg.GraphConv(6, 4, aggr="mean")

    def forward(self, x, edge_index, edge_weight=None):
        h = self.conv1(x, edge_index, edge_weight).relu()
        return self.conv2(h, edge_index, edge_weight)


EDGE, FEATURES = "input__edges__0", "input__nodes__0__features"
Inputs = dict[str, Any]


def turned(given: Inputs) -> Inputs:
    return given | {"edge_index": given["edge_index"].flip(0)}


def undirected(given: Inputs) -> Inputs:
    edges, weight = given["edge_index"], given["edge_weight"]
    other = edges[0] != edges[1]
    return given | {
        "edge_index": torch.cat([edges, edges.flip(0)[:, other]], 1),
        "edge_weight": torch.cat([weight, weight[other]]),
    }


def without_loops(given: Inputs) -> Inputs:
    stay = given["edge_index"][0] != given["edge_index"][1]
    return given | {
        "edge_index": given["edge_index"][:, stay],
        "edge_weight": given["edge_weight"][stay],
    }


def unweighted(given: Inputs) -> Inputs:
    return given | {"edge_weight": None}


def standardised(given: Inputs) -> Inputs:
    x = given["x"]
    return given | {"x": (x - x.mean(0)) / x.std(0, correction=0)}


def reordered(given: Inputs) -> Inputs:
    return given | {"x": given["x"].flip(1)}


def in_file_order(given: Inputs) -> Inputs:
    return given | {"x": given["x"][:, IN_FILE]}


def standardised_in_file_order(given: Inputs) -> Inputs:
    return in_file_order(standardised(given))


def one_less(given: Inputs) -> Inputs:
    return given | {"edge_index": given["edge_index"] - 1}


def weighted(given: Inputs) -> Inputs:
    return given


def turned_and_standardised(given: Inputs) -> Inputs:
    return turned(standardised(given))


TRAINING = {
    turned: "edges[0].columns: source: dst, destination: src (the edges turned)",
    undirected: "edges[0].directed: false",
    without_loops: "edges[0].selfLoops: remove",
    unweighted: "edges[0].columns.weight left out (now w)",
    standardised: "nodes[0].features.scaling with each feature's own mean",
    reordered: "nodes[0].features.columns in the opposite order: f2, f1, f0",
    turned_and_standardised: ", and spec.input.",
    in_file_order: "nodes[0].features.columns in the file's order: f1, f0, f2",
    standardised_in_file_order: "in the file's order: f1, f0, f2, with scaling in the same order",
    one_less: "edges[0]: source - 1, destination - 1 (the edges' ids are one off",
    weighted: "edges[0].columns.weight: w (a column that the job does not read)",
}
IN_FILE = [1, 0, 2]
SCALING = {"mean": X.mean(0).tolist(), "scale": X.std(0).tolist()}
JOBS: dict[Any, dict[str, Any]] = {
    standardised_in_file_order: {f"{FEATURES}__scaling": SCALING},
    weighted: {f"{EDGE}__columns": {}},
}
"""What the job says otherwise."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Net]:
    """The module, and the folder that it was exported to."""
    folder, net = tmp_path_factory.mktemp("exported"), shake(Net())
    embertide.export(net, folder / "model")
    return folder / "model", net


def check(
    folder: Path, exported: tuple[Path, Net], given: Inputs, *, search: bool = True, **changes: Any
) -> Checked:
    """Compare a job's model with what its module gave of other data."""
    job, (model, net) = SmallJob.make(folder), exported
    job.write_edges(SRC, DST, w=WEIGHT)
    columns = {f"f{at}": X[:, at] for at in IN_FILE}
    pq.write_table(pa.table({"id": np.arange(NODES)} | columns), job.features)
    shutil.rmtree(job.model)
    shutil.copytree(model, job.model)
    job.write_manifest(
        **{
            f"{EDGE}__columns": {"weight": "w"},
            FEATURES: {"uri": "features/", "idColumn": "id", "columns": sorted(columns)},
        }
        | changes
    )
    with torch.no_grad():
        rows = net.double()(**{n: v if v is None else _double(v) for n, v in given.items()})
    vectors = pa.array(rows.tolist(), pa.list_(pa.float64()))
    pq.write_table(pa.table({"id": np.arange(NODES), "embedding": vectors}), folder / "own.parquet")
    manifest = load_manifest(Path(job.manifest))
    return check_job(manifest, f"file://{folder}/own.parquet", search=search)


def _double(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def own() -> Inputs:
    """What the manifest says of the data."""
    return {
        "x": torch.from_numpy(X),
        "edge_index": torch.from_numpy(np.stack([SRC, DST])),
        "edge_weight": torch.from_numpy(WEIGHT),
    }


@pytest.mark.parametrize("change", TRAINING)
def test_the_cause_is_named(tmp_path: Path, exported: tuple[Path, Net], change: Any) -> None:
    found = check(tmp_path, exported, change(own()), **JOBS.get(change, {}))
    assert not found.agrees
    assert found.difference is not None
    assert any(TRAINING[change] in str(fix) for fix in found.difference.fixes), str(found)
    assert "proved to be the module" in str(found)
    assert found.to_json()["changes"]


def test_data_that_agrees_is_not_searched(tmp_path: Path, exported: tuple[Path, Net]) -> None:
    found = check(tmp_path, exported, own())
    assert found.agrees
    assert found.difference is None


def test_without_a_cause_the_message_says_what_was_tried(
    tmp_path: Path, exported: tuple[Path, Net]
) -> None:
    other = own()
    other["x"] = torch.from_numpy(np.random.default_rng(9).normal(size=X.shape).astype("f4"))
    found = check(tmp_path, exported, other)
    assert found.difference is not None
    assert not found.difference.fixes
    tried = (
        "direction of edges, directed, self-loops, weights left out, duplicates, ids one off,"
        " scaling, order of columns, order of rows"
    )
    assert f"Tried: {tried}; they don't explain it." in str(found)
    assert "Not tried: a reference made in train mode" in str(found)
    assert found.to_json()["tried"] == tried.split(", ")
    assert found.to_json()["untrained_norms"] == []
    assert check(tmp_path / "again", exported, other, search=False).difference is None


class Normed(Net):
    """A batch norm after the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x, edge_index, edge_weight=None):
        return self.bn(super().forward(x, edge_index, edge_weight))


def test_norms_that_were_never_trained_are_named(tmp_path: Path) -> None:
    net = Normed()
    embertide.export(net.eval(), tmp_path / "model")
    # In train mode the reference has the batch's statistics.
    found = check(tmp_path / "job", (tmp_path / "model", net.train()), own())
    assert found.difference is not None
    assert found.to_json()["untrained_norms"] == ["bn (BatchNorm1d)"]
    assert "In the model bn (BatchNorm1d) has statistics that were never loaded" in str(found)
