"""Runs without data that a job lets be missing: relations, days, rows of the model's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.numpy import load_file, save_file

from embertide.engine.planning.estimate import estimate_job
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.sizes import check_sizes
from embertide.errors import InputError, InputTooSmall, ManifestError, ObjectMissing
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.reading import read_version
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import run_reference, run_typed_reference
from embertide.pod.summary import run_status
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.exact import assert_exact
from tests.support.job_files import WIDTH, write_job
from tests.support.program_files import write_program
from tests.support.small_job import NODES, SmallJob
from tests.support.tiers import later
from tests.support.typed_files import check_rows, names_of, positions, write_typed_job
from tests.support.typed_programs import relational
from tests.support.typed_world import (
    COUNTS,
    Bipartite,
    expected_of,
    layer_of,
    make_edges,
    make_typed_features,
)
from tests.support.world import make_features, make_graph

pytestmark = pytest.mark.distributed

STORAGE = open_storage(None)
GRIDS = [(1, 1), (3, 1), (1, 3), (2, 2)]


def job_of(manifest: dict[str, Any]) -> EmbeddingJob:
    return load_manifest(yaml.safe_dump(manifest))


def run(job: EmbeddingJob, grid: tuple[int, int]) -> RunReport:
    return run_job(job, grid=GridShape.of(*grid), threads=1)


def planned(job: EmbeddingJob) -> list[str]:
    """What is refused before a worker starts is raised here; warnings."""
    warnings: list[str] = []
    check_sizes(STORAGE, job, list_inputs(STORAGE, job), warnings.append)
    return warnings


def omissions_in_manifest(job: EmbeddingJob) -> dict[str, Any]:
    out = job.spec.output.uri
    return read_manifest(STORAGE, out, latest(STORAGE, out).version)[0].get("omissions", {})


# ---- relations without objects


def without_edges(name: str, program: Program) -> dict[str, torch.Tensor]:
    """Node type -> what the program gives where an edge type has no edges."""
    edges = make_edges()
    nothing = np.empty(0, np.int64)
    weight = None if edges[name].weight is None else np.empty(0, np.float32)
    edges[name] = Bipartite(nothing, nothing, weight)
    layers = [layer_of(edges)] * program.layers
    return run_typed_reference(program, layers, make_typed_features(), COUNTS)


@pytest.mark.parametrize(
    ("name", "grid"),
    later(
        [("buys", (1, 1)), ("buys", (2, 2)), ("follows", (3, 1)), ("has", (1, 3)), ("has", (2, 1))],
        ("buys", (2, 2)),
        ("follows", (3, 1)),
        ("has", (1, 3)),
        several=True,
    ),
)
def test_an_optional_relation_without_objects_is_empty(
    tmp_path: Path, name: str, grid: tuple[int, int]
) -> None:
    manifest = write_typed_job(tmp_path, relational())
    edges = {edge["name"]: edge for edge in manifest["spec"]["input"]["edges"]}
    edges[name] |= {"optional": True, "minEdges": 10}
    Path(edges[name]["uri"].removeprefix("file://")).unlink()
    job = job_of(manifest)
    report = run(job, grid)
    for of_type, expected in without_edges(name, relational()).items():
        check_rows(tmp_path, of_type, expected)
    (relation,) = report.omissions.empty_relations
    assert relation.split(":")[1] == name
    assert f"{relation} is an empty relation: {edges[name]['uri']} has no objects" in str(
        report.warnings
    )
    assert omissions_in_manifest(job) == {"emptyRelations": {relation: edges[name]["uri"]}}
    assert run_status(report, 1).empty_relations == [relation]
    assert any("is an empty relation" in note for note in estimate_job(job).notes)


def test_without_optional_it_is_refused_and_with_objects_it_is_read(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, relational())
    follows = manifest["spec"]["input"]["edges"][1]
    follows["optional"] = True
    report = run(job_of(manifest), (1, 1))
    for name, expected in expected_of(relational()).items():
        check_rows(tmp_path, name, expected)
    assert not report.omissions
    assert "omissions" not in read_manifest(
        STORAGE, f"file://{tmp_path}/out", report.version
    )[0]  # fmt: skip
    follows["minEdges"] = 10_000
    with pytest.raises(InputTooSmall, match=r"edges\[1\]\.minEdges is 10,000"):
        planned(job_of(manifest))
    del follows["optional"], follows["minEdges"]
    (tmp_path / "follows.parquet").unlink()
    with pytest.raises(ObjectMissing, match=r"follows\.parquet does not exist"):
        planned(job_of(manifest))


def test_an_empty_relation_is_not_compared_with_the_last_version(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, relational())
    manifest["spec"]["input"]["maxShrink"] = "10%"
    follows = manifest["spec"]["input"]["edges"][1]
    follows["optional"] = True
    run(job_of(manifest), (1, 1))
    held = (tmp_path / "follows.parquet").read_bytes()
    (tmp_path / "follows.parquet").unlink()
    run(job_of(manifest), (1, 1))
    # The next version has nothing to compare with, and a message names the edge type.
    (tmp_path / "follows.parquet").write_bytes(held)
    (warning,) = planned(job_of(manifest))
    assert "does not say how many rows were read of user:follows:user" in warning


def test_a_graph_without_any_edges_is_a_mistake(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, relational())
    for edge in manifest["spec"]["input"]["edges"]:
        edge["optional"] = True
    with pytest.raises(ManifestError, match="one at least must not be optional"):
        job_of(manifest)


# ---- nodes without a row of the model's table


def expected_with_new_tags(missing: str, new: int) -> dict[str, torch.Tensor]:
    """As with features for the new tags, which the last ``has`` edges lead to."""
    features = make_typed_features()
    tags = features["tag"]
    row = tags.double().mean(dim=0).float() if missing == "mean" else torch.zeros(tags.shape[1])
    features["tag"] = torch.cat([tags, row.repeat(new, 1)])
    counts = COUNTS | {"tag": COUNTS["tag"] + new}
    layers = [layer_of(edges_to_new_tags(new))] * relational().layers
    return run_typed_reference(relational(), layers, features, counts)


def edges_to_new_tags(new: int) -> dict[str, Bipartite]:
    edges = make_edges()
    has = edges["has"]
    tags = COUNTS["tag"] + np.arange(new)
    edges["has"] = Bipartite(
        np.concatenate([has.src, np.arange(new) % COUNTS["item"]]), np.concatenate([has.dst, tags])
    )
    return edges


@pytest.mark.parametrize(
    ("missing", "new", "grid"),
    later(
        [
            *(("mean", 7, grid) for grid in GRIDS),
            ("zeros", 1, (1, 1)),
            ("zeros", 7, (2, 2)),
            ("zeros", 1, (3, 1)),
        ],
        ("mean", 7, (2, 2)),
        ("mean", 7, (1, 3)),
        ("zeros", 1, (3, 1)),
        several=True,
    ),
)
def test_new_nodes_get_zeros_or_the_mean(
    tmp_path: Path, missing: str, new: int, grid: tuple[int, int]
) -> None:
    manifest = write_typed_job(tmp_path)
    write_program(tmp_path / "model", relational(), {"tag": make_typed_features()["tag"]})
    has = edges_to_new_tags(new)["has"]
    items = [names_of("item")[i] for i in has.src]
    np.save(tmp_path / "has.npy", np.array([items, has.dst.tolist()]).T)
    count = COUNTS["tag"] + new
    manifest["spec"]["input"]["nodes"][2] = {"name": "tag", "count": count, "missing": missing}
    job = job_of(manifest)
    report = run(job, grid)
    for name, expected in expected_with_new_tags(missing, new).items():
        ids, vectors = read_version(
            STORAGE, f"file://{tmp_path}/out", node_type=name
        ).to_numpy()  # fmt: skip
        assert len(ids) == len(expected)
        order = torch.from_numpy(ids) if name == "tag" else positions(name, ids)
        assert_exact(vectors, expected[order])
    (filled,) = report.omissions.filled_nodes
    assert (filled.node_type, filled.nodes, filled.rows, filled.missing) == (
        "tag", new, COUNTS["tag"], missing,
    )  # fmt: skip
    those = "1 node of type 'tag' has" if new == 1 else f"{new} nodes of type 'tag' have"
    assert f"{those} no row in the model's table" in str(report.warnings)
    assert omissions_in_manifest(job)["filledNodes"][0]["nodes"] == new
    (status,) = run_status(report, 1).filled_nodes or []
    assert (status.name, status.nodes) == ("tag", new)
    assert any("no row in the model's table" in note for note in estimate_job(job).notes)


def test_new_nodes_are_refused_by_default(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path)
    write_program(tmp_path / "model", relational(), {"tag": make_typed_features()["tag"]})
    nodes = manifest["spec"]["input"]["nodes"]
    nodes[2] = {"name": "tag", "count": 5}
    with pytest.raises(InputError, match=r"3 rows.*5 nodes.*last 2.*missing: zeros or mean"):
        planned(job_of(manifest))
    nodes[2] = {"name": "tag", "count": 2, "missing": "mean"}
    with pytest.raises(InputError, match=r"has 3 rows, but the type has 2 nodes"):
        planned(job_of(manifest))


def test_missing_is_for_tables_alone(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, relational())
    nodes = manifest["spec"]["input"]["nodes"]
    given = nodes[2]
    nodes[2] = {**given, "missing": "mean"}
    with pytest.raises(InputError, match=r"missing is 'mean' for node type 'tag', but the model"):
        planned(job_of(manifest))
    nodes[2] = {"name": "tag", "ids": "int64", "table": {"uri": "/tags/"}, "missing": "mean"}
    with pytest.raises(ManifestError, match=r"nodes\[2\]\.missing: is 'mean', which is for nodes"):
        job_of(manifest)
    nodes[2] = {"name": "tag", "count": 3, "missing": "zeros"}
    with pytest.raises(InputError, match=r"missing is 'zeros' for node type 'tag', but the model"):
        planned(job_of(manifest))


# ---- several places


@pytest.mark.parametrize(
    ("kind", "grid"),
    [("uris", (2, 1)), ("pattern", (1, 1)), ("window", (2, 2))],
)
def test_edges_and_features_of_several_places(
    tmp_path: Path, kind: str, grid: tuple[int, int]
) -> None:
    """The same graph, with its files in a folder for each day."""
    graph = make_graph(weighted=True)
    files = write_job(tmp_path, graph, make_features(WIDTH), ids="string")
    days = [f"2026-11-{day:02}" for day in (20, 21)]
    for name in ("edges", "x/values"):
        for number, path in enumerate(sorted((tmp_path / name).iterdir())):
            day = days[number % 2]
            (tmp_path / name / f"dt={day}").mkdir(exist_ok=True)
            path.rename(tmp_path / name / f"dt={day}" / path.name)
    spec = json.loads(files.job.model_dump_json(by_alias=True, exclude_unset=True))
    for given, name in (
        (spec["spec"]["input"]["edges"][0], "edges"),
        (spec["spec"]["input"]["nodes"][0]["features"], "x/values"),
    ):
        folder = f"file://{tmp_path}/{name}"
        if kind == "uris":
            del given["uri"]
            given["uris"] = [f"{folder}/dt={day}/" for day in reversed(days)]
        elif kind == "pattern":
            given["uri"] = f"{folder}/dt=2026-*/"
        else:
            given["window"] = {"last": "3d", "of": "dt=%Y-%m-%d", "until": days[-1]}
            given["window"]["missingDays"] = "allow"
    job = load_manifest(yaml.safe_dump(spec))
    report = run(job, grid)
    program = read_model(STORAGE, job.spec.model.uri)
    assert_exact(files.published(), run_reference(program, [graph.layer()] * 2, files.features))
    missing = {
        f"file://{tmp_path}/{name} (3d until 2026-11-21)": ["2026-11-19"]
        for name in ("edges", "x/values")
    }
    assert report.omissions.missing_days == (missing if kind == "window" else {})
    assert run_status(report, 1).missing_days == (2 if kind == "window" else None)
    if kind == "window":
        assert "1 day without objects, not read (window.missingDays): 2026-11-19" in str(
            report.warnings
        )


def test_a_csv_relation_without_objects_counts_as_none(tmp_path: Path) -> None:
    """Of text the number of edges is known once it is read; none is not too few."""
    manifest = write_typed_job(tmp_path, relational())
    buys = manifest["spec"]["input"]["edges"][0]
    buys |= {"optional": True, "minEdges": 5, "uri": f"file://{tmp_path}/nowhere/"}
    report = run(job_of(manifest), (2, 1))
    assert list(report.omissions.empty_relations) == ["user:buys:item"]
    read = read_manifest(STORAGE, f"file://{tmp_path}/out", report.version)[0]["read"]
    assert "user:buys:item" not in read["edges"]


def test_a_file_without_rows_is_no_missing_input(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, relational())
    follows = manifest["spec"]["input"]["edges"][1]
    follows["optional"] = True
    empty = pa.table({"src": pa.array([], pa.string()), "dst": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "follows.parquet")
    report = run(job_of(manifest), (1, 1))
    assert not report.omissions
    assert report.version


# ---- self-loops of which one counts


@pytest.mark.parametrize(
    ("loops", "grid", "second"),
    [("keep", (2, 2), (1, 1)), ("addToAll", (1, 1), (2, 1)), ("addRemaining", (2, 1), (1, 2))],
)
def test_self_loops_that_become_one_are_counted(
    tmp_path: Path, loops: str, grid: tuple[int, int], second: tuple[int, int]
) -> None:
    files, ring = SmallJob.make(tmp_path), list(range(NODES))
    # Node 7 has two of one weight; PyG's GCN takes the last of nodes 5's and 9's.
    own = [5, 5, 7, 7, 9, 3, 9]
    weight = [1.0] * NODES + [2, 0.5, 1, 1, 0.5, 1, 2]
    files.write_edges([*ring, *own], [*np.roll(ring, 1), *own], w=np.array(weight, np.float32))
    model, weights = files.model / "model.yaml", files.model / "weights.safetensors"
    model.write_text(model.read_text().replace("library: dgl", "library: pyg"))
    state = {name.replace(".weight", ".lin.weight"): of for name, of in load_file(weights).items()}
    save_file(state, weights)
    edge: dict[str, Any] = {"columns": {"weight": "w"}, "selfLoops": loops}
    files.write_manifest(
        **{f"input__edges__0__{name}": value for name, value in edge.items()},
        refresh={"keep": True, "mode": "incremental"},
    )
    job = load_manifest(Path(files.manifest))
    assert any("several self-loops of different weight" in n for n in estimate_job(job).notes)
    said = (
        "2 nodes have several self-loops of different weight in node:edge:node, first node id 5:"
        " the one with the largest weight counts, in PyG the last one"
    )
    merged = [{"relation": "node:edge:node", "nodes": 2, "first": "5"}]
    for again in (grid, second):
        report = run(job, again)
        assert sum(said in warning for warning in report.warnings) == 1, report.warnings
        assert omissions_in_manifest(job) == {"mergedLoops": merged}
        (status,) = run_status(report, 1).merged_loops or []
        assert (status.name, status.nodes, status.first) == ("node:edge:node", 2, "5")
        assert report.kept.graph == ([] if again is grid else ["node:edge:node"])
        # Features that count as changed, so that rows are computed from the graph that was kept.
        files.write_features(ring, np.random.default_rng(1).normal(size=(NODES, 4)))
