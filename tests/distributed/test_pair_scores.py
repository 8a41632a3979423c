"""Jobs whose pairs of nodes get scores from the rows of both, on every kind of grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F

import embertide
from embertide.errors import InputError, ManifestError, ModelError, ObjectMissing, OutputError
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.manifest import check_objects, read_manifest
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.exact import assert_exact
from tests.support.export_decoders import WIDTH, Net
from tests.support.models import shake
from tests.support.small_job import NODES, SmallJob
from tests.support.tiers import later
from tests.support.typed_files import names_of, write_typed_job
from tests.support.typed_programs import relational
from tests.support.typed_world import COUNTS, expected_of

pytestmark = pytest.mark.distributed

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2)]
X = np.random.default_rng(4).normal(size=(NODES, WIDTH)).astype(np.float32)
RING = np.stack([np.arange(NODES), np.roll(np.arange(NODES), 1)])
PAIRS = np.random.default_rng(5).integers(0, NODES, (2, 40))
STORAGE = open_storage(None)


def make(folder: Path, decoder: str | None, pairs: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """A job with pairs, and its module."""
    job, net = SmallJob.make(folder), shake(Net())
    job.write_features(np.arange(NODES), X)
    for file in job.model.iterdir():
        file.unlink()
    embertide.export(net, job.model, decoder=decoder)
    pq.write_table(pa.table({"src": PAIRS[0], "dst": PAIRS[1]}), folder / "pairs.parquet")
    job.write_manifest(input__pairs={"uri": "pairs.parquet", "format": "parquet"} | (pairs or {}))
    return job, net


def run(job: SmallJob, grid: tuple[int, int] = (1, 1)) -> RunReport:
    return run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(*grid), threads=1)


def embedded(net: Any) -> torch.Tensor:
    """[NODES, OUT] in float64."""
    with torch.no_grad():
        rows: torch.Tensor = net.double()(torch.from_numpy(X).double(), torch.from_numpy(RING))
    return rows


def check_pairs(job: SmallJob, expected: torch.Tensor) -> None:
    """The scores are those expected, of the pairs in their order."""
    table = embertide.read_scores(job.output)
    assert table.column_names == ["source", "destination", "score"]
    assert np.array_equal(np.stack([table["source"], table["destination"]]), PAIRS)
    scores = np.array(table["score"].to_pylist())
    assert_exact(scores.reshape(len(scores), -1), expected.detach().reshape(len(expected), -1))


@pytest.mark.parametrize("grid", later(GRIDS, (2, 2)))
def test_a_decoder_scores_pairs(tmp_path: Path, grid: tuple[int, int]) -> None:
    job, net = make(tmp_path, "concatenated")
    report = run(job, grid)
    z = embedded(net)
    check_pairs(job, net.concatenated(z, torch.from_numpy(PAIRS)))
    manifest, _ = read_manifest(STORAGE, f"file://{job.output}", report.version)
    assert manifest["scores"]["rows"] == PAIRS.shape[1]
    check_objects(STORAGE, f"file://{job.output}", report.version, manifest)
    # Readers of the version's folder do not take scores for rows.
    assert len(embertide.read(job.output)) == NODES
    assert pq.read_table(job.output / "versions" / report.version).num_rows == NODES


@pytest.mark.parametrize("grid", later([(1, 1), (2, 2)], (1, 1)))
def test_several_numbers_of_a_pair(tmp_path: Path, grid: tuple[int, int]) -> None:
    job, net = make(tmp_path, "two_numbers")
    run(job, grid)
    check_pairs(job, net.two_numbers(embedded(net), torch.from_numpy(PAIRS)))


@pytest.mark.parametrize("score", ["dot", "cosine"])
def test_scores_without_a_decoder(tmp_path: Path, score: str) -> None:
    job, net = make(tmp_path, None, {"score": score})
    run(job, (2, 1))
    z = embedded(net)
    ends = z[PAIRS[0]], z[PAIRS[1]]
    expected = F.cosine_similarity(*ends) if score == "cosine" else (ends[0] * ends[1]).sum(-1)
    check_pairs(job, expected)


def test_what_a_plan_says_of_scores(tmp_path: Path) -> None:
    job, _ = make(tmp_path, "two_numbers")
    with_pairs = embertide.plan(job.manifest, grid="2x1")
    report = run(job, (2, 1))
    (sent,) = [one for one in report.traffic if one.primitive == "scores"]
    (planned,) = [one for one in with_pairs.traffic if one.primitive == "scores"]
    assert 0 < sent.bytes_sent <= 2 * planned.bytes_per_worker
    job.write_manifest()
    without = embertide.plan(job.manifest, grid="2x1")
    assert with_pairs.output_bytes - without.output_bytes == PAIRS.shape[1] * (16 + 8)
    run(job)
    with pytest.raises(InputError, match=r"has no scores: its job had no spec\.input\.pairs"):
        embertide.read_scores(job.output)


@pytest.mark.parametrize("grid", later([(1, 1), (2, 1)], (2, 1)))
def test_unknown_nodes_are_refused_with_their_row(tmp_path: Path, grid: tuple[int, int]) -> None:
    job, _ = make(tmp_path, "dot")
    table = pa.table({"src": [0, 1, 2], "dst": [3, NODES + 5, 4]})
    pq.write_table(table, tmp_path / "pairs.parquet")
    message = (
        r"pairs\.parquet: 1 of 3 pairs has an end that is not among the nodes.*pairs\.parquet"
        r" row 1 .*column 'dst' .*is 17\. There are 12 nodes of type 'node', 0 to 11"
    )
    with pytest.raises(InputError, match=message) as caught:
        run(job, grid)
    assert "unknownNodes" not in str(caught.value)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    job, _ = make(tmp_path, None)
    with pytest.raises(ModelError, match=r"score is model, but .*has no decoder; export it with"):
        embertide.plan(job.manifest)
    job.write_manifest(
        input__pairs={"uri": "pairs.parquet", "format": "parquet", "score": "dot", "result": "b"}
    )
    with pytest.raises(ModelError, match=r"pairs\.result is 'b'; must be one of embedding"):
        embertide.plan(job.manifest)
    job.write_manifest(input__pairs={"uri": "embeddings/p", "format": "parquet", "score": "dot"})
    with pytest.raises(ManifestError, match=r"contains spec\.input\.pairs\.uri"):
        embertide.plan(job.manifest)
    (tmp_path / "pairs.parquet").unlink()
    job.write_manifest(input__pairs={"uri": "pairs.parquet", "format": "parquet", "score": "dot"})
    with pytest.raises(ObjectMissing, match=r"pairs\.parquet does not exist"):
        embertide.plan(job.manifest)


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    job, _ = make(tmp_path, None, {"score": "dot"})
    job.write_features(np.arange(NODES), 1e25 * X)
    with pytest.raises(OutputError, match=r"scores of .*pairs\.parquet are NaN or infinite"):
        run(job, (2, 1))
    assert not list(job.output.glob("versions/*"))


@pytest.mark.parametrize("grid", later(GRIDS, (1, 2), (2, 1)))
def test_pairs_between_two_node_types(tmp_path: Path, grid: tuple[int, int]) -> None:
    """String ids of users, and whole numbers of items."""
    program = relational()
    manifest = write_typed_job(tmp_path, program)
    rng = np.random.default_rng(6)
    users, items = (rng.integers(0, COUNTS[name], 30) for name in ("user", "item"))
    table = {
        "user": [names_of("user")[at] for at in users],
        "item": [names_of("item")[at] for at in items],
    }
    pq.write_table(pa.table(table), tmp_path / "pairs.parquet")
    manifest["spec"]["input"]["pairs"] = {
        "uri": f"file://{tmp_path}/pairs.parquet", "format": "parquet", "score": "cosine",
        "sourceType": "user", "destinationType": "item",
        "columns": {"source": "user", "destination": "item"},
    }  # fmt: skip
    run_job(load_manifest(json.dumps(manifest)), grid=GridShape.of(*grid), threads=1)
    rows = expected_of(program)
    expected = F.cosine_similarity(rows["user"][users], rows["item"][items])
    found = embertide.read_scores(tmp_path / "out")
    assert found["source"].to_pylist() == table["user"]
    assert found["destination"].to_pylist() == table["item"]
    assert_exact(np.array(found["score"]), expected)
