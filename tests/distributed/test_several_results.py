"""Jobs whose model gives several results: one run, one version, a folder for each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import embertide
from embertide.edge.check.check import check_job
from embertide.errors import InputError, ModelError
from embertide.facts.telemetry.report import RunReport
from embertide.io.compare.diff import compare_versions
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.launch.local import run_job
from embertide.pod.summary import output_report, run_status
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands
from tests.support.exact import assert_exact
from tests.support.export_results import HIDDEN, Heads, Layers
from tests.support.models import shake
from tests.support.small_job import NODES, SmallJob
from tests.support.tiers import later
from tests.support.typed_files import check_rows, write_typed_job
from tests.support.typed_programs import relational
from tests.support.typed_world import expected_of

pytestmark = pytest.mark.distributed

FEATURES = 5
GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2)]
X = np.random.default_rng(4).normal(size=(NODES, FEATURES)).astype(np.float32)
RING = np.stack([np.arange(NODES), np.roll(np.arange(NODES), 1)])
STORAGE = open_storage(None)


def both(_x: torch.Tensor, hidden: torch.Tensor, out: torch.Tensor) -> dict[str, torch.Tensor]:
    """The embeddings and the probabilities of a classifier."""
    return {"hidden": hidden, "probabilities": out.softmax(-1)}


def make(folder: Path, module: Any, results: tuple[str, ...] = ()) -> SmallJob:
    """A job and its exported model."""
    job = SmallJob.make(folder)
    job.write_features(np.arange(NODES), X)
    for file in job.model.iterdir():
        file.unlink()
    embertide.export(module, job.model, results=results)
    return job


def run(job: SmallJob, grid: tuple[int, int] = (1, 1)) -> RunReport:
    return run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(*grid), threads=1)


def own(module: Any) -> Any:
    """What the module gives, in float64."""
    with torch.no_grad():
        return module.double()(torch.from_numpy(X).double(), torch.from_numpy(RING))


def rows(job: SmallJob, result: str | None) -> npt.NDArray[np.float32]:
    """[NODES, D] a published result, in the order of the nodes."""
    ids, vectors = embertide.read(job.output, result=result).to_numpy()
    return np.asarray(vectors[np.argsort(ids)])


@pytest.mark.parametrize("grid", later(GRIDS, (2, 2)))
def test_one_run_publishes_all_results(tmp_path: Path, grid: tuple[int, int]) -> None:
    module = shake(Layers(both))
    job = make(tmp_path, module)
    report = run(job, grid)
    for name, expected in own(module).items():
        assert_exact(rows(job, name), expected)
    version = job.output / "versions" / report.version
    assert {path.name for path in version.iterdir() if path.is_dir()} == {"hidden", "probabilities"}
    assert (report.rows, report.dim) == (NODES, HIDDEN)
    manifest = json.loads((version / "_manifest.json").read_text())
    assert manifest["results"]["probabilities"]["dim"] == 3
    for path in version.glob("hidden/*.parquet"):
        assert pq.read_schema(path).names == ["id", "embedding"]


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_heads_of_a_trunk(tmp_path: Path, grid: tuple[int, int]) -> None:
    """Among them a single column, which no grid cuts into slices."""
    module = shake(Heads())
    job = make(tmp_path, module, ("user", "score", "-"))
    if grid[1] > 1:
        job.write_manifest(output__results=["user"])
    run(job, grid)
    user, score, _ = own(module)
    assert_exact(rows(job, "user"), user)
    if grid == (1, 1):
        assert_exact(rows(job, "score"), score)


def test_a_job_publishes_some_and_computes_no_more(tmp_path: Path) -> None:
    module = shake(Layers(both))
    job = make(tmp_path, module)
    whole = embertide.plan(job.manifest, grid="2x2")
    job.write_manifest(output__results=["hidden"])
    plan = embertide.plan(job.manifest, grid="2x2")
    assert plan.traffic_total_bytes < whole.traffic_total_bytes
    ids = 8 * NODES
    assert (plan.output_bytes, whole.output_bytes) == (
        4 * HIDDEN * NODES + ids,
        4 * (HIDDEN + 3) * NODES + 2 * ids,
    )
    report = run(job, (2, 2))
    assert not [one for one in report.traffic if one.layer == 1]
    assert_exact(rows(job, None), own(module)["hidden"])
    with pytest.raises(InputError, match="has no result 'probabilities'; it has hidden"):
        rows(job, "probabilities")
    job.write_manifest(output__results=["logits"])
    with pytest.raises(ModelError, match=r"has 'logits', but .* gives layer1, layer2, hidden, p"):
        run(job)


@pytest.mark.parametrize("grid", later(GRIDS, (1, 2)))
def test_layers_of_a_described_model(tmp_path: Path, grid: tuple[int, int]) -> None:
    job = SmallJob.make(tmp_path)
    run(job, grid)
    embedding = rows(job, None)
    job.write_manifest(output__results=["layer1", "embedding"])
    run(job, grid)
    assert_exact(rows(job, "embedding"), embedding)
    # GCN's second layer is a product and a sum of the first one's rows.
    assert rows(job, "layer1").shape == (NODES, 4)
    with pytest.raises(InputError, match="has several results; choose one of layer1, embedding"):
        embertide.read(job.output)


def test_each_result_is_compared_with_its_own(tmp_path: Path) -> None:
    module = shake(Layers(both))
    job = make(tmp_path, module)
    first = run(job)
    job.write_features(np.arange(NODES), X + np.float32(0.1))
    second = run(job, (2, 1))
    assert second.comparison is not None
    assert [one.name for one in second.comparison.types] == ["hidden", "probabilities"]
    assert [one.previous_rows for one in second.comparison.types] == [NODES, NODES]
    status = run_status(second, 1).comparison
    assert status is not None
    assert [one.name for one in status.types] == ["hidden", "probabilities"]
    found = compare_versions(STORAGE, f"file://{job.output}", first.version, second.version)
    assert [one.name for one in found.types] == ["hidden", "probabilities"]
    assert all(one.changed_rows for one in found.types)
    job.write_manifest(output__results=["hidden"], output__gate={"mode": "hold"})
    third = run(job)
    assert third.held == ["'probabilities' is no longer published"]
    assert not third.current


def test_a_version_lists_its_results(tmp_path: Path) -> None:
    job = make(tmp_path, shake(Layers(both)))
    run(job)
    info = latest(STORAGE, f"file://{job.output}")
    assert {name: one.dim for name, one in info.types.items()} == {"hidden": 6, "probabilities": 3}
    assert output_report(info, load_manifest(Path(job.manifest))).types is None
    commands = Commands(tmp_path)
    near = commands.run("neighbors", "job.yaml", "3", "--result", "hidden", folder=tmp_path)
    assert near.code == 0, near.err
    refused = commands.run("neighbors", "job.yaml", "3", folder=tmp_path)
    assert refused.code == 3
    assert "several results; choose one of hidden, probabilities" in refused.err


def write_reference(path: Path, values: npt.ArrayLike) -> None:
    """Vectors of all nodes."""
    vectors = pa.array([row.tolist() for row in np.asarray(values)], pa.list_(pa.float64()))
    pq.write_table(pa.table({"id": np.arange(NODES), "embedding": vectors}), path)


def test_each_result_has_a_reference_of_its_own(tmp_path: Path) -> None:
    module = shake(Layers(both))
    job, results = make(tmp_path, module), own(module)
    write_reference(job.model / "reference.probabilities.parquet", results["probabilities"])
    report = run(job, (2, 1))
    version = job.output / "versions" / report.version
    manifest = json.loads((version / "_manifest.json").read_text())
    assert manifest["results"]["hidden"]["reference"] is None
    assert manifest["results"]["probabilities"]["reference"]["rows"] == NODES
    write_reference(job.model / "reference.hidden.parquet", 1.5 * results["hidden"])
    with pytest.raises(ModelError, match=r"differ from the reference .*reference\.hidden\.parquet"):
        run(job)
    (job.model / "reference.hidden.parquet").rename(job.model / "reference.parquet")
    with pytest.raises(
        InputError,
        match=r"does not name the result that it is of.*name it reference\.hidden\.parquet",
    ):
        run(job)


def test_a_check_is_of_one_result(tmp_path: Path) -> None:
    module = shake(Layers(both))
    job = make(tmp_path, module)
    write_reference(tmp_path / "own.parquet", own(module)["probabilities"])
    manifest, against = load_manifest(Path(job.manifest)), f"file://{tmp_path}/own.parquet"
    assert check_job(manifest, against, result="probabilities").agrees
    with pytest.raises(ModelError, match="hidden, probabilities, several; choose one with --res"):
        check_job(manifest, against)
    assert not check_job(manifest, against, result="hidden").agrees


def named(program: Program) -> Program:
    """With names for all results, and one more of a node type."""
    kinds = program.types
    inner = next(step.out for step in program.steps if kinds[step.out] == "user")
    results = {f"{node_type}/last": tensor for node_type, tensor in program.results.items()}
    return replace(program, results=results | {"user/inner": inner})


@pytest.mark.parametrize("grid", later(GRIDS, (2, 1)))
def test_results_of_several_node_types(tmp_path: Path, grid: tuple[int, int]) -> None:
    program = named(relational())
    job = load_manifest(json.dumps(write_typed_job(tmp_path, program)))
    report = run_job(job, grid=GridShape.of(*grid), threads=1)
    for key, expected in expected_of(program).items():
        node_type, _, name = key.partition("/")
        check_rows(tmp_path, node_type, expected, result=name)
    assert (tmp_path / "out" / "versions" / report.version / "user" / "inner").is_dir()
    assert report.comparison is not None
    assert sorted(one.name for one in report.comparison.types) == sorted(program.results)
    with pytest.raises(InputError, match="has several node types; choose one of"):
        embertide.read(tmp_path / "out", result="last")


def test_some_results_of_some_node_types(tmp_path: Path) -> None:
    program = named(relational())
    manifest = write_typed_job(tmp_path, program)
    manifest["spec"]["output"] |= {"nodeTypes": ["user"], "results": ["inner"]}
    job = load_manifest(json.dumps(manifest))
    run_job(job, grid=GridShape.of(2, 1), threads=1)
    check_rows(tmp_path, "user", expected_of(program)["user/inner"])
    with pytest.raises(InputError, match="has no node type 'item'; it has user"):
        embertide.read(tmp_path / "out", node_type="item")
