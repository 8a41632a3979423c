"""Edges whose end is not among the nodes: refused, or left out within a bound, exactly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from embertide.edge.check.check import check_job
from embertide.engine.planning.estimate import estimate_job
from embertide.errors import InputError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.manifest import read_manifest
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands
from tests.support.exact import assert_exact
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.tiers import later
from tests.support.typed_files import check_rows, write_typed_job
from tests.support.typed_programs import relational
from tests.support.typed_world import expected_of
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph(weighted=True)
STRANGERS: dict[str, list[Any]] = {
    "dense": [NODES, 2**40],
    "int64": [5, -(2**62)],
    "string": ["nobody", "ñ" * 300],
}
"""Ids that no node has."""
DROP = {"action": "drop", "maxShare": "5%"}
GRIDS = [(1, 1), (3, 1), (1, 3), (2, 2)]


def write_with_strangers(folder: Path, ids: str, edges: str, **options: Any) -> JobFiles:
    """A job with three edges more, each with a stranger at one end or at both, and a good one."""
    files = write_job(folder, GRAPH, make_features(WIDTH), ids=ids, edges=edges, **options)
    (first, second), (one, other) = files.names[:2], STRANGERS[ids]
    columns = {
        "src": [first, one, first, other],
        "dst": [second, second, one, one],
        "w": np.array([GRAPH.weight[0], 1, 1, 1], np.float32),
    }
    table = pa.table(columns)
    path = folder / "edges" / f"2.{edges}"
    if edges == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return files


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def refusal(commands: Commands, files: JobFiles, grid: tuple[int, int]) -> str:
    """What a run says that is refused for its inputs."""
    path = files.folder / "job.json"
    path.write_text(files.job.model_dump_json(by_alias=True, exclude_unset=True))
    done = commands.run("run", str(path), "--grid", f"{grid[0]}x{grid[1]}", "--json")
    assert done.code == InputError.exit_code, done.err
    return str(done.events[-1]["message"])


def expected_with(files: JobFiles) -> torch.Tensor:
    """As without the strangers' edges; the good one of the last file stays."""
    graph = make_graph(weighted=True)
    assert graph.weight is not None
    src, dst = np.append(graph.src, 0), np.append(graph.dst, 1)
    weight = torch.from_numpy(np.append(graph.weight, graph.weight[0]))
    layer = torch.from_numpy(src), torch.from_numpy(dst), weight, None
    program = read_model(open_storage(None), files.job.spec.model.uri)
    return run_reference(program, [layer] * 2, files.features)


@pytest.mark.parametrize(
    ("ids", "edges", "grid"),
    later(
        [
            *(("dense", "parquet", grid) for grid in GRIDS),
            *(("int64", "csv", grid) for grid in GRIDS),
            *(("string", "parquet", grid) for grid in GRIDS[:2]),
        ],
        ("dense", "parquet", (2, 2)),
        ("int64", "csv", (3, 1)),
        ("int64", "csv", (1, 3)),
        ("string", "parquet", (1, 1)),
        several=True,
    ),
)
def test_edges_to_unknown_nodes_are_left_out_exactly(
    tmp_path: Path, ids: str, edges: str, grid: tuple[int, int]
) -> None:
    files = write_with_strangers(tmp_path, ids, edges, unknownNodes=DROP)
    report = run_job(files.job, grid=GridShape.of(*grid), threads=2)
    assert_exact(files.published(), expected_with(files))
    rows = len(GRAPH.src) + 4
    (dropped,) = report.omissions.dropped_edges
    assert (dropped.relation, dropped.edges, dropped.rows) == ("node:edge:node", 3, rows)
    assert len(dropped.examples) == 3
    place = f"file://{tmp_path}/edges/2.{edges}"
    assert dropped.examples[0].startswith(place + ("" if edges == "csv" else " row 1 (from 0)"))
    assert "column 'src' (columns.source) is " in dropped.examples[0]
    assert "column 'dst' (columns.destination) is " in dropped.examples[1]
    assert len(max(dropped.examples, key=len)) < 400
    assert report.edges == rows - 3
    assert report.warnings[0].startswith(f"3 of {rows:,} edges of node:edge:node (")
    storage, out = open_storage(None), files.job.spec.output.uri
    manifest = read_manifest(storage, out, latest(storage, out).version)[0]
    assert manifest["omissions"] == json.loads(json.dumps(report.omissions.to_json()))
    assert manifest["read"]["edges"] == {"node:edge:node": rows}


@pytest.mark.parametrize(
    ("ids", "edges", "grid"),
    [("dense", "csv", (2, 2)), ("int64", "csv", (1, 1)), ("string", "parquet", (3, 1))],
)
def test_they_are_refused_by_default_with_their_count(
    commands: Commands, tmp_path: Path, ids: str, edges: str, grid: tuple[int, int]
) -> None:
    files = write_with_strangers(tmp_path, ids, edges)
    rows = len(GRAPH.src) + 4
    said = refusal(commands, files, grid)
    assert f"edges: 3 of {rows:,} edges have an end that is not among the nodes, " in said
    assert "(unknownNodes: refuse)" in said
    first, second = ("line 3", "line 4") if edges == "csv" else ("row 1 (from 0)", "row 2 (from 0)")
    place = f"2.{edges} {first}: column 'src' (columns.source) is {STRANGERS[ids][0]!r}; "
    assert place in said
    assert f"2.{edges} {second}: column 'dst' (columns.destination) is " in said
    assert "unknownNodes: {action: drop, maxShare: 1%}" in said
    assert f"There are {NODES} nodes of type 'node'" in said
    assert not (tmp_path / "out" / "LATEST").exists()


def test_more_than_max_share_is_refused(commands: Commands, tmp_path: Path) -> None:
    files = write_with_strangers(
        tmp_path, "dense", "parquet", unknownNodes={"action": "drop", "maxShare": "0.1%"}
    )
    said = refusal(commands, files, (2, 1))
    assert re.search(r"edges: 3 of .*\(unknownNodes\.maxShare: 0\.1%\).*row 1", said)


def test_a_negative_dense_id_stays_an_error(commands: Commands, tmp_path: Path) -> None:
    files = write_job(tmp_path, GRAPH, make_features(WIDTH), unknownNodes=DROP)
    columns = {"src": [0, NODES], "dst": [NODES, -1], "w": [1.0, 1.0]}
    pq.write_table(pa.table(columns), tmp_path / "edges" / "2.parquet")
    said = refusal(commands, files, (1, 1))
    assert re.search(r"2\.parquet row 1 .* is -1; dense ids must be 0 or more", said)


@pytest.mark.parametrize("grid", later(GRIDS, (2, 2)))
def test_each_relation_has_its_own_bound(tmp_path: Path, grid: tuple[int, int]) -> None:
    """A source that is no user, and destinations that are no tags."""
    manifest = write_typed_job(tmp_path, relational())
    edges = {edge["name"]: edge for edge in manifest["spec"]["input"]["edges"]}
    with (tmp_path / "buys.csv").open("a") as file:
        file.write("user-1000,1000000000000,1\n")
    has = np.load(tmp_path / "has.npy")
    np.save(tmp_path / "has.npy", np.concatenate([has[:10], [[10**12, 3], [7, 0]], has[10:]]))
    edges["buys"]["unknownNodes"] = {"action": "drop"}
    edges["has"]["unknownNodes"] = DROP
    job = load_manifest(yaml.safe_dump(manifest))
    report = run_job(job, grid=GridShape.of(*grid), threads=1)
    for name, expected in expected_of(relational()).items():
        check_rows(tmp_path, name, expected)
    dropped = {one.relation: (one.edges, one.rows) for one in report.omissions.dropped_edges}
    assert dropped == {"user:buys:item": (1, 151), "item:has:tag": (2, 52)}


def test_plan_and_check_say_so(tmp_path: Path) -> None:
    files = write_with_strangers(tmp_path, "dense", "parquet", unknownNodes=DROP)
    notes = estimate_job(files.job).notes
    assert any("edges of node:edge:node whose end is not among the nodes are dropped" in note
               and "(unknownNodes.maxShare: 5%)" in note for note in notes)  # fmt: skip
    vectors = expected_with(files)[:9].float().tolist()
    reference = pa.table({"id": files.names[:9], "embedding": vectors})
    pq.write_table(reference, tmp_path / "reference.parquet")
    found = check_job(files.job, f"file://{tmp_path}/reference.parquet")
    assert found.agrees
    assert found.to_json()["omissions"]["droppedEdges"][0]["edges"] == 3
