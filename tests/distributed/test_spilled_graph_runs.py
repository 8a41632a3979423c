"""Whole runs with less memory than their edges take: edges and the graph are on disk, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import embertide
from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.engine.planning.estimate import estimate_within
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.sizing import IMPORTS_BYTES, machine_bytes
from embertide.facts.telemetry.estimate import PlannedSpill
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands
from tests.support.full_disk import end_without_room
from tests.support.memory_group import LIMITS, run_limited
from tests.support.planned_peaks import hold_peaks
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

MIB = 1 << 20
NODES, EDGES, WIDTH = 1 << 16, 16 << 20, 32
LEAST, MOST = 0.6, 1.1
"""Of a plan."""
ALONE = 465
"""MiB of the only worker. With edges and graph in memory it needs more, whatever of its tensors is
on disk."""
MEMORY = {("1x1", "1"): ALONE, ("2x1", "1"): 455, ("1x2", "0"): 440, ("2x1", "0"): 445}
"""The same by grid, and by whether rows are read in place; else workers exchange them in groups, or
both have all edges, and slices of the columns."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose edges, 128 MiB as they are read, outweigh its tensors."""
    folder = tmp_path_factory.mktemp("spilled-graph")
    options = SynthOptions(nodes=NODES, edges=EDGES, width=WIDTH, hidden=WIDTH, out=WIDTH, layers=2)
    return make_job(folder, options)


def make_job(folder: Path, options: SynthOptions, checked: int = 8) -> Path:
    """A job that is run in full each time, with nothing beside it but rows that are checked."""
    synthesize(open_storage(None), folder.as_uri(), options)
    manifest = yaml.safe_load((folder / "job.yaml").read_text())
    manifest["spec"]["output"]["compare"] = False
    manifest["spec"]["refresh"] = {"mode": "full"}
    # What checking rows takes does not shrink with the graph.
    manifest["spec"]["inference"] = {"checkedRows": checked, "groupBytes": 1 << 18}
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "job.yaml"


@pytest.fixture(scope="module")
def whole(job: Path) -> dict[str, Any]:
    """The report of a run in memory."""
    return run(job)


def run(job: Path, *options: str, limit: int | None = None) -> dict[str, Any]:
    """The report of a run in another process."""
    done = run_limited(limit, ["-m", "embertide", "run", str(job), "--json", *options])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def run_as_planned(
    job: Path,
    *options: str,
    limit: int | None = None,
    stages: tuple[str, ...] = ("ingest", "csr"),
) -> dict[str, Any]:
    """The same of a run whose peaks were compared with their plans, in some stages, too."""
    reports: list[dict[str, Any]] = []

    def shares() -> dict[str, float]:
        reports.append(run(job, *options, limit=limit))
        workers, planned = reports[-1]["memory"], reports[-1]["planned_memory"]
        for worker in workers:
            used = worker["peak_bytes"] - worker["baseline_bytes"]
            assert used <= MOST * worker["planned_bytes"]
        # Most that is planned for layers is for rows that are checked and for blocks, whatever the
        # graph.
        return {
            stage: max(worker["stage_bytes"][stage] for worker in workers) / planned[stage]
            for stage in stages
        }

    hold_peaks(shares, LEAST, MOST)
    return reports[-1]


@pytest.mark.parametrize(
    ("grid", "in_place"),
    later(list(MEMORY), ("2x1", "1"), ("1x2", "0"), ("2x1", "0"), several=True),
)
def test_a_run_with_its_graph_on_disk_keeps_to_its_memory_and_has_the_same_bits(
    grid: str,
    in_place: str,
    job: Path,
    whole: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBERTIDE_IN_PLACE", in_place)
    memory = MEMORY[grid, in_place]
    assert whole["memory"][0]["peak_bytes"] > ALONE * MIB
    workers = GridShape.parse(grid).workers
    # With the page cache; the run in memory would be killed.
    limit = machine_bytes(memory * MIB - IMPORTS_BYTES, workers) if LIMITS else None
    scratch = ["--scratch", str(tmp_path)]
    spilled = run_as_planned(job, "--grid", grid, "--memory", f"{memory}MiB", *scratch, limit=limit)
    for worker in spilled["memory"]:
        assert worker["planned_bytes"] <= memory * MIB - IMPORTS_BYTES
    assert "of each worker to disk, the graph too," in spilled["budget"]
    output = str(job.parent / "embeddings")
    # Steps in another order, and sums of groups, round in another way.
    expected = whole if in_place == "1" else run(job, "--grid", grid)
    assert in_place == "1" or sent_in(spilled) == sent_in(expected)
    (ids, vectors), (same_ids, same_vectors) = (
        embertide.read(output, version=report["version"]).to_numpy()
        for report in (expected, spilled)
    )
    order, same_order = np.argsort(ids), np.argsort(same_ids)
    assert np.array_equal(ids[order], same_ids[same_order])
    assert np.array_equal(vectors[order], same_vectors[same_order])
    assert not list(tmp_path.iterdir())


def sent_in(report: dict[str, Any]) -> dict[tuple[Any, ...], int]:
    """Bytes that all workers sent of the graph, and for its edges, by primitive and layer."""
    return {
        (item["primitive"], item["layer"]): item["bytes_sent"]
        for item in report["traffic"]
        if item["axis"] == "graph" or item["primitive"] == "csr"
    }


@pytest.fixture(scope="module")
def typed_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three node types, one of them without features, and of six relations, two of them
    reverses; no row is checked, so that all that is read from the disk is planned."""
    folder = tmp_path_factory.mktemp("spilled-types")
    options = {"width": WIDTH, "hidden": WIDTH, "out": WIDTH, "layers": 2, "conv": "sage"}
    typed = SynthOptions(
        nodes=NODES, edges=12 << 20, hetero=True, ids="int64", weights=True, **options
    )
    return make_job(folder, typed, checked=0)


@pytest.fixture(scope="module")
def typed_whole(typed_job: Path) -> dict[str, Any]:
    """The report of a run in memory."""
    return run(typed_job)


def planned_on_disk(path: Path, grid: str, mib: int, *, in_place: bool = True) -> PlannedSpill:
    """What a worker of a job has on disk, with so much memory."""
    manifest = yaml.safe_load(path.read_text())
    manifest["spec"]["workers"] = {"memory": f"{mib}MiB"}
    job, storage = load_manifest(yaml.safe_dump(manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    shape, inputs = GridShape.parse(grid), list_inputs(storage, job)
    spill = estimate_within(program, job, inputs, shape, in_place=in_place).spill
    assert spill is not None
    return spill


@pytest.mark.parametrize(
    ("grid", "mib"),
    later([("1x1", 482), ("2x1", 474), ("1x2", 474)], ("2x1", 474), several=True),
)
def test_relations_on_disk_keep_to_their_plan_and_have_the_same_bits(
    grid: str, mib: int, typed_job: Path, typed_whole: dict[str, Any], tmp_path: Path
) -> None:
    planned = planned_on_disk(typed_job, grid, mib)
    assert planned.graph
    limit = ["--grid", grid, "--memory", f"{mib}MiB", "--scratch", str(tmp_path)]
    # While ids are looked up, a run has taken a sixth more than is planned for the stage ingest.
    spilled = run_as_planned(typed_job, *limit, stages=("csr",))
    workers = spilled["workers"]
    for moved, size in (("written", planned.written_bytes), ("read", planned.read_bytes)):
        every = sum(worker[f"scratch_bytes_{moved}"] for worker in workers)
        # Last pieces of edges are not full.
        assert every == pytest.approx(len(workers) * size, rel=1e-3)
    # Workers' edges are not equal.
    assert max(of["scratch_peak_bytes"] for of in workers) <= MOST * planned.disk_bytes
    output = str(typed_job.parent / "embeddings")
    for of_type in ("user", "item", "tag"):
        (ids, vectors), (same_ids, same_vectors) = (
            embertide.read(output, version=report["version"], node_type=of_type).to_numpy()
            for report in (typed_whole, spilled)
        )
        order, same_order = np.argsort(ids), np.argsort(same_ids)
        assert np.array_equal(ids[order], same_ids[same_order])
        assert np.array_equal(vectors[order], same_vectors[same_order])
    assert not list(tmp_path.iterdir())


def test_attention_over_a_graph_on_disk_keeps_to_its_plan_also_for_some_nodes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "job"
    options = {"width": WIDTH, "hidden": WIDTH, "out": WIDTH, "layers": 2}
    attention = SynthOptions(nodes=NODES, edges=EDGES // 2, conv="gat", heads=4, **options)
    job = make_job(folder, attention)
    in_memory, limit = run(job), ["--memory", "450MiB", "--scratch", str(tmp_path)]
    spilled = run_as_planned(job, *limit)
    targets = [3, 70, NODES - 1]
    manifest = yaml.safe_load(job.read_text())
    manifest["spec"]["inference"]["targets"] = {"ids": targets}
    job.write_text(yaml.safe_dump(manifest))
    chosen = run(job, *limit)
    for report in (spilled, chosen):
        assert "of each worker to disk, the graph too," in report["budget"]
        (worker,) = report["memory"]
        assert worker["peak_bytes"] - worker["baseline_bytes"] <= MOST * worker["planned_bytes"]
    output = str(folder / "embeddings")
    whole, same = (
        dict(zip(*embertide.read(output, version=report["version"]).to_numpy(), strict=True))
        for report in (in_memory, spilled)
    )
    ids, vectors = embertide.read(output, targets=True).to_numpy()
    assert all(np.array_equal(vector, same[node]) for node, vector in whole.items())
    assert sorted(ids) == targets
    assert all(
        np.array_equal(vector, whole[node]) for node, vector in zip(ids, vectors, strict=True)
    )


@pytest.mark.tier(2)
@pytest.mark.parametrize("fanout", ["full", [5, 5]])
def test_features_and_samples_of_edges_on_disk_keep_to_their_plan_and_have_the_same_bits(
    fanout: Any, tmp_path: Path
) -> None:
    folder, mib = tmp_path / "job", 475
    options = {"width": 8, "hidden": 8, "out": 8, "layers": 2, "conv": "edge_gat", "heads": 1}
    featured = SynthOptions(nodes=NODES, edges=2 << 20, edge_features=8, **options)
    job = make_job(folder, featured, checked=0)
    manifest = yaml.safe_load(job.read_text())
    manifest["spec"]["inference"] |= {"fanout": fanout}
    job.write_text(yaml.safe_dump(manifest))
    in_memory, scratch = run(job), tmp_path / "scratch"
    scratch.mkdir()
    spilled = run(job, "--memory", f"{mib}MiB", "--scratch", str(scratch))
    assert "of each worker to disk, the graph too," in spilled["budget"]
    (worker,), (moved,) = spilled["memory"], spilled["workers"]
    assert worker["peak_bytes"] - worker["baseline_bytes"] <= MOST * worker["planned_bytes"]
    planned = planned_on_disk(job, "1x1", mib)
    least = 0.999 if fanout == "full" else 0.7
    for what, size in (("written", planned.written_bytes), ("read", planned.read_bytes)):
        # Some nodes have fewer edges than are sampled.
        assert least * size <= moved[f"scratch_bytes_{what}"] <= 1.001 * size
    output = str(folder / "embeddings")
    (ids, vectors), (same_ids, same_vectors) = (
        embertide.read(output, version=report["version"]).to_numpy()
        for report in (in_memory, spilled)
    )
    assert np.array_equal(vectors[np.argsort(ids)], same_vectors[np.argsort(same_ids)])


@pytest.mark.tier(2)
def test_scores_of_pairs_on_disk_keep_to_their_plan_and_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers exchange rows in groups, whose scores outweigh all else."""
    monkeypatch.setenv("EMBERTIDE_IN_PLACE", "0")
    folder, grid, mib = tmp_path / "job", "2x1", 650
    options = {"width": WIDTH, "hidden": WIDTH, "out": WIDTH, "layers": 2}
    scored = SynthOptions(nodes=NODES, edges=3 * EDGES // 2, conv="gatv2", heads=8, **options)
    job = make_job(folder, scored, checked=0)
    in_memory, scratch = run(job, "--grid", grid), tmp_path / "scratch"
    scratch.mkdir()
    how = ("--grid", grid, "--memory", f"{mib}MiB", "--scratch", str(scratch))
    spilled = run_as_planned(job, *how, stages=("infer",))
    assert "of each worker to disk, the graph too," in spilled["budget"]
    planned = planned_on_disk(job, grid, mib, in_place=False)
    for what, size in (("written", planned.written_bytes), ("read", planned.read_bytes)):
        every = sum(worker[f"scratch_bytes_{what}"] for worker in spilled["workers"])
        # The rows that groups touch are expected.
        assert every == pytest.approx(2 * size, rel=0.02)
    (ids, vectors), (same_ids, same_vectors) = (
        embertide.read(str(folder / "embeddings"), version=report["version"]).to_numpy()
        for report in (in_memory, spilled)
    )
    assert np.array_equal(vectors[np.argsort(ids)], same_vectors[np.argsort(same_ids)])


def test_the_plan_says_that_the_graph_goes_to_disk(job: Path, tmp_path: Path) -> None:
    command = ("plan", str(job), "--memory", f"{ALONE}MiB", "--json")
    budget = Commands(tmp_path).run(*command).events[-1]["budget"]
    assert budget["problem"] == ""
    assert "of each worker to disk, the graph too," in budget["spills"]


@pytest.mark.parametrize(
    ("fixture", "mib", "file"),
    later(
        [("job", ALONE, 32), ("typed_job", 482, 48)],
        ("typed_job", 482, 48),
        several=True,
    ),
)
def test_a_disk_without_room_for_edges_ends_the_run(
    fixture: str, mib: int, file: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Where a file gets no room: past the largest size that this process may give one."""
    end_without_room(tmp_path, request.getfixturevalue(fixture), mib, room=20, needed=file)
