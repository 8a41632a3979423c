"""Jobs whose model brings learned tables beside the nodes' features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import embertide
from embertide.errors import InputError, ModelError
from embertide.facts.telemetry.report import RunReport
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.exact import assert_exact
from tests.support.export_tables import FEATURES, ROWS, BelowFeatures, Cat, Positions, Several
from tests.support.models import shake
from tests.support.small_job import SmallJob
from tests.support.tiers import by_turns

pytestmark = pytest.mark.distributed

NODE = "input__nodes__0"
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS + 4, FEATURES)).astype(np.float32)
"""Four more nodes than the tables have rows."""
SOURCES, TARGETS = (RNG.integers(0, ROWS + 4, 150) for _ in range(2))
NAMES = {
    "dense": np.arange(ROWS + 4),
    "int64": RNG.permutation(10_000)[: ROWS + 4] - 5_000,
    "string": np.array([f"user:{at * 7 % 101}" for at in range(ROWS + 4)]),
}


def edges_among(nodes: int) -> npt.NDArray[np.int64]:
    """[2, E] the edges between the first nodes."""
    ends = np.stack([SOURCES, TARGETS])
    inside: npt.NDArray[np.int64] = ends[:, (ends < nodes).all(axis=0)]
    return inside


@dataclass(frozen=True)
class TableJob:
    """A job whose nodes have ids of a kind, and its module.

    Attributes:
        nodes: the first ones of all.
    """

    job: SmallJob
    ids: str
    nodes: int = ROWS

    @property
    def names(self) -> npt.NDArray[Any]:
        """[nodes] ids in the files."""
        return NAMES[self.ids][: self.nodes]

    def write(self, **changes: Any) -> None:
        """Features in any order, edges among the nodes, and the manifest."""
        order = np.random.default_rng(6).permutation(self.nodes)
        self.job.write_features(self.names[order], X[order])
        self.job.write_edges(*self.names[edges_among(self.nodes)])
        self.job.write_manifest(**{f"{NODE}__ids": self.ids} | changes)

    def run(self, grid: tuple[int, int] = (2, 1)) -> RunReport:
        """Run it."""
        return run_job(self.manifest, grid=GridShape.of(*grid), threads=1)

    @property
    def manifest(self) -> EmbeddingJob:
        """As it was written."""
        return load_manifest(Path(self.job.manifest))

    def published(self) -> npt.NDArray[np.float32]:
        """[nodes, D'] in the order of the nodes."""
        ids, vectors = embertide.read(self.job.output).to_numpy()
        place = {name: at for at, name in enumerate(ids.tolist())}
        return np.asarray(vectors[[place[name] for name in self.names.tolist()]])

    def own(self, module: Any) -> torch.Tensor:
        """What the module gives for these nodes and edges, in float64."""
        edges = torch.from_numpy(edges_among(self.nodes))
        with torch.no_grad():
            found: torch.Tensor = module.double()(torch.from_numpy(X[: self.nodes]).double(), edges)
        return found


def make(folder: Path, ids: str, module: Any, tables: Any, nodes: int = ROWS) -> TableJob:
    """A job and its exported model, whose tables' rows are in an order of their own."""
    job = SmallJob.make(folder)
    for file in job.model.iterdir():
        file.unlink()
    named = None if ids == "dense" else NAMES[ids][:ROWS]
    embertide.export(module, job.model, tables=tables, table_ids=named, width=FEATURES)
    made = TableJob(job, ids, nodes)
    made.write()
    return made


@pytest.mark.parametrize(("ids", "grid"), by_turns(list(NAMES), [(2, 2), (1, 2), (2, 1), (1, 1)]))
def test_rows_of_tables_meet_the_features_of_their_nodes(
    tmp_path: Path, ids: str, grid: tuple[int, int]
) -> None:
    module = shake(Cat())
    job = make(tmp_path, ids, module, "emb")
    report = job.run(grid)
    assert report.rows == ROWS
    assert not report.omissions
    assert_exact(job.published(), job.own(module))


@pytest.mark.parametrize(
    ("kind", "tables"),
    [(Several, ["shop", "brand", "bias"]), (Positions, "pe"), (BelowFeatures, ["user", "item"])],
)
def test_several_tables(tmp_path: Path, kind: Any, tables: Any) -> None:
    module = shake(kind())
    job = make(tmp_path, "string", module, tables)
    job.run((2, 2))
    assert_exact(job.published(), job.own(module))


@pytest.mark.parametrize("ids", NAMES)
def test_rows_of_tables_move_as_planned(tmp_path: Path, ids: str) -> None:
    """What a run sends of features and tables before its layers; expected of rows in any order."""
    report = make(tmp_path, ids, shake(Cat()), "emb").run((2, 1))
    (sent,) = [one for one in report.traffic if (one.primitive, one.layer) == ("features", -1)]
    (planned,) = [
        one for one in report.planned_traffic if (one.primitive, one.layer) == ("features", -1)
    ]
    assert sent.messages <= 2 * planned.messages
    assert abs(2 * planned.bytes_per_worker - sent.bytes_sent) <= 0.2 * sent.bytes_sent


def grown(module: Any, missing: str) -> Any:
    """The module with a row for each new node."""
    table = module.emb.weight.detach()
    row = torch.zeros(table.shape[1]) if missing == "zeros" else table.double().mean(0).float()
    module.emb = torch.nn.Embedding.from_pretrained(torch.cat([table, row.repeat(4, 1)]))
    return module


@pytest.mark.parametrize(("ids", "missing"), by_turns(list(NAMES), ["zeros", "mean"]))
def test_new_nodes_get_what_the_manifest_says(tmp_path: Path, ids: str, missing: str) -> None:
    module = shake(Cat())
    job = make(tmp_path, ids, module, "emb", nodes=ROWS + 4)
    job.write(**{f"{NODE}__missing": missing})
    report = job.run((2, 1))
    (filled,) = report.omissions.filled_nodes
    assert (filled.node_type, filled.nodes, filled.rows, filled.missing) == (
        "node",
        4,
        ROWS,
        missing,
    )
    assert f"4 nodes of type 'node' have no row in the model's table of {ROWS} rows" in str(
        report.warnings
    )
    assert_exact(job.published(), job.own(grown(module, missing)))


@pytest.mark.parametrize("ids", NAMES)
def test_new_nodes_are_refused_by_default(tmp_path: Path, ids: str) -> None:
    job = make(tmp_path, ids, shake(Cat()), "emb", nodes=ROWS + 4)
    with pytest.raises(InputError, match="missing: zeros or mean, which new nodes get"):
        job.run((1, 1) if ids == "dense" else (2, 1))


def test_rows_of_nodes_that_are_gone_are_left_out(tmp_path: Path) -> None:
    """Fewer nodes than rows: by ids, the others' rows are still their own."""
    module = shake(Cat())
    job = make(tmp_path, "int64", module, "emb", nodes=ROWS - 5)
    job.run()
    module.emb = torch.nn.Embedding.from_pretrained(module.emb.weight.detach()[: ROWS - 5])
    assert_exact(job.published(), job.own(module))
    dense = make(tmp_path / "dense", "dense", shake(Cat()), "emb", nodes=ROWS - 5)
    with pytest.raises(InputError, match="the model was trained for other nodes"):
        dense.run()


def test_ids_that_no_table_has_are_refused(tmp_path: Path) -> None:
    job = make(tmp_path, "string", shake(Cat()), "emb")
    embertide.export(shake(Cat()), job.job.model, tables="emb", width=FEATURES)
    with pytest.raises(InputError, match="export the model with --table-ids"):
        job.run()


def test_features_of_another_width_name_the_tables(tmp_path: Path) -> None:
    job = make(tmp_path, "dense", shake(Cat()), "emb")
    job.job.write_features(np.arange(ROWS), RNG.standard_normal((ROWS, FEATURES + 1)))
    told = (
        f"have {FEATURES + 1} columns, but the model .* takes {FEATURES} beside 4 from its tables"
    )
    with pytest.raises(ModelError, match=told):
        job.run()


def test_a_table_with_ids_takes_the_place_of_features(tmp_path: Path) -> None:
    """A type without features, whose nodes are the rows of the table."""
    job = make(tmp_path, "string", shake(Cat()), "emb")

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.lin = torch.nn.Embedding(ROWS, 4), torch.nn.Linear(4, 3)

        def forward(self, edge_index: Any) -> Any:
            h = self.lin(self.emb.weight)
            return h.new_zeros(len(h), 3).index_add(0, edge_index[1], h[edge_index[0]])

    module = shake(Alone())
    embertide.export(module, job.job.model, tables="emb", table_ids=NAMES["string"][:ROWS])
    pq.write_table(pa.table({"id": job.names}), tmp_path / "nodes.parquet")
    table = {"uri": "nodes.parquet", "format": "parquet"}
    job.job.write_manifest(
        **{f"{NODE}__ids": "string", f"{NODE}__features": None, f"{NODE}__table": table}
    )
    job.run((2, 1))
    with torch.no_grad():
        own = module.double()(torch.from_numpy(edges_among(ROWS)))
    assert_exact(job.published(), own)
