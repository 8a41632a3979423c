"""Jobs that name the nodes they want: what is computed, where it is published, what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import embertide
from embertide.edge.indexes.push.plan import Options, chosen_version
from embertide.errors import EmbertideError, InputError, ModelError, OutputError
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest, list_versions
from embertide.io.versions.releasing import release
from embertide.launch.local import run_job
from embertide.pod.summary import output_report, run_status
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.commands import Commands
from tests.support.pods import local_pods
from tests.support.small_job import NODES, SmallJob
from tests.support.typed_files import names_of, write_typed_job
from tests.support.typed_programs import relational

pytestmark = pytest.mark.distributed

WANTED = [7, 3, 3]
"""Two nodes; one of them twice."""


def write_parquet(folder: Path, ids: list[Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"other": ids, "id": ids}), folder / "a.parquet")
    return {"uri": "wanted/", "format": "parquet"}


def write_csv(folder: Path, ids: list[Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "a.csv").write_text("".join(f"{item};x\n" for item in ids))
    return {"uri": "wanted/a.csv", "format": "csv", "header": False, "delimiter": ";"}


def write_npy(folder: Path, ids: list[Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", np.array(ids))
    return {"uri": "wanted/", "format": "npy"}


Write = Callable[[Path, list[Any]], dict[str, Any]]


def run(path: Path | str, grid: tuple[int, int] = (1, 1)) -> RunReport:
    return run_job(load_manifest(Path(path)), grid=GridShape.of(*grid), threads=1)


def rows_of(output: Path, *, targets: bool = False) -> dict[Any, npt.NDArray[np.float32]]:
    """Id -> its row, of the current version."""
    ids, vectors = embertide.read(output, targets=targets).to_numpy()
    return dict(zip(ids.tolist(), vectors, strict=True))


def manifest_of(report: RunReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (Path(report.uri.removeprefix("file://")) / "_manifest.json").read_text()
    )
    return found


def same(rows: dict[Any, Any], whole: dict[Any, Any], ids: set[Any]) -> bool:
    """Whether there are rows of these ids alone, with the bits that a run of all gives."""
    return rows.keys() == ids and all(np.array_equal(rows[key], whole[key]) for key in rows)


@pytest.mark.parametrize(
    ("grid", "write"),
    [
        ((1, 1), write_parquet),
        pytest.param((2, 1), write_csv, marks=pytest.mark.tier(1)),
        ((1, 2), write_npy),
        ((2, 2), None),
    ],
)
def test_a_version_has_the_rows_of_the_targets_alone(
    grid: tuple[int, int], write: Write | None, tmp_path: Path
) -> None:
    job = SmallJob.make(tmp_path)
    first = run(job.manifest, grid)
    whole = rows_of(job.output)
    given = {"ids": WANTED} if write is None else {"table": write(tmp_path / "wanted", WANTED)}
    job.write_manifest(inference__targets=given)
    report = run(job.manifest, grid)
    assert same(rows_of(job.output, targets=True), whole, {3, 7})
    # Of a ring, a node needs an in-edge of its own, and in the layer before one of its source.
    facts = report.chosen
    assert (facts.rows, facts.all_rows, facts.edges, facts.all_edges) == (2, NODES, 6, 2 * NODES)
    assert (report.rows, report.nodes) == (2, NODES)
    assert manifest_of(report)["targets"] == {
        "rows": 2, "of": NODES, "edges": 6, "allEdges": 2 * NODES,
    }  # fmt: skip
    # The version of all nodes is as it was, and no reader of the output sees another one.
    assert len(rows_of(job.output)) == NODES
    assert [info.version for info in embertide.list_versions(job.output)] == [first.version]
    (info,) = embertide.list_versions(job.output, targets=True)
    assert (info.version, info.counted) == (report.version, f"2 of {NODES}")
    status = run_status(report, 1)
    assert (status.target_rows, status.target_edges) == (2, 6)
    assert output_report(report, load_manifest(Path(job.manifest))).rows == 2


def test_what_has_not_changed_is_confirmed(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    table = write_npy(tmp_path / "wanted", WANTED)
    job.write_manifest(inference__targets={"table": table}, refresh__mode="auto")
    first = run(job.manifest)
    assert run(job.manifest).confirmed
    write_npy(tmp_path / "wanted", [3, 8])
    second = run(job.manifest)
    assert not second.confirmed
    # Compared with the version of targets before it: one row is new, one is gone.
    assert second.comparison is not None
    assert second.comparison.previous == first.version
    (compared,) = second.comparison.types
    assert (compared.new_rows, compared.removed_rows) == (1, 1)
    job.write_manifest(inference__targets={"ids": [3]}, refresh__mode="auto")
    assert not run(job.manifest).confirmed


@pytest.mark.parametrize(
    ("write", "ids", "says"),
    [
        (write_parquet, [3, 99, 5, 12, 40, 41],
         ["4 of 6 ids of spec.inference.targets are no nodes", "a.parquet row 1 (from 0): 99",
          "row 3 (from 0): 12", "and 1 more", "12 nodes of type 'node', 0 to 11; drop these ids"]),
        (write_csv, [3, 99], ["1 of 2 ids", "a.csv line 2: 99"]),
        (write_npy, [], ["has no ids (spec.inference.targets), so that nothing would be computed"]),
    ],
)  # fmt: skip
def test_ids_that_are_no_nodes_are_refused(
    write: Write, ids: list[Any], says: list[str], tmp_path: Path
) -> None:
    job = SmallJob.make(tmp_path)
    job.write_manifest(inference__targets={"table": write(tmp_path / "wanted", ids)})
    with pytest.raises(InputError) as caught:
        run(job.manifest, (2, 1))
    for text in says:
        assert text in str(caught.value)
    assert not (job.output / "_targets" / "LATEST").exists()


def test_a_delta_is_against_the_targets_before(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    ids = np.arange(NODES)
    values = np.random.default_rng(0).normal(size=(NODES, 4))
    job.write_manifest(inference__targets={"ids": [3, 8, 9]}, output__delta={"tolerance": 0.0})
    first = run(job.manifest)
    values[4:6] += 1  # of which row 3 is made
    job.write_features(ids, values)
    job.write_manifest(inference__targets={"ids": [3, 9]}, output__delta={"tolerance": 0.0})
    run(job.manifest)
    changes = embertide.read_delta(job.output, targets=True)
    assert changes.base == first.version
    assert changes.upserts["id"].to_pylist() == [3]
    assert changes.deletes.to_pylist() == [8]


def test_a_gate_holds_a_version_of_targets(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    run(job.manifest)
    gate = {"mode": "hold", "maxRemovedRows": "20%"}
    job.write_manifest(inference__targets={"ids": [3, 7, 8, 9]}, output__gate=gate)
    first, before = run(job.manifest), rows_of(job.output, targets=True)
    assert first.current
    job.write_manifest(inference__targets={"ids": [3]}, output__gate=gate)
    held = run(job.manifest)
    assert not held.current
    assert any("maxRemovedRows" in reason for reason in held.held)
    # Readers of targets, and of all nodes, keep what they had.
    now = rows_of(job.output, targets=True)
    assert now.keys() == before.keys() == {3, 7, 8, 9}
    assert all(np.array_equal(now[key], before[key]) for key in now)
    assert len(rows_of(job.output)) == NODES
    storage, place = open_storage(None), f"{job.output.as_uri()}/_targets"
    assert latest(storage, place).version == first.version
    assert [bool(info.held) for info in list_versions(storage, place)] == [False, True]
    assert release(storage, place, held.version).version == held.version
    assert rows_of(job.output, targets=True).keys() == {3}


def typed(folder: Path, **targets: Any) -> EmbeddingJob:
    data = write_typed_job(folder, relational())
    data["spec"]["inference"]["targets"] = targets
    return load_manifest(json.dumps(data))


@pytest.mark.parametrize("grid", [(2, 1), (1, 2)])
def test_targets_of_a_node_type(grid: tuple[int, int], tmp_path: Path) -> None:
    names = [names_of("user")[k] for k in (2, 40, 7)]
    job = typed(tmp_path, ids=names, nodeType="user")
    report = run_job(job, grid=GridShape.of(*grid), threads=1)
    inference = job.spec.inference.model_copy(update={"targets": None})
    whole = job.model_copy(update={"spec": job.spec.model_copy(update={"inference": inference})})
    run_job(whole, grid=GridShape.of(*grid), threads=1)
    expected = embertide.read(tmp_path / "out", ids=names, node_type="user").to_numpy()[1]
    read = embertide.read(tmp_path / "out", ids=names, node_type="user", targets=True)
    assert np.array_equal(read.to_numpy()[1], expected)
    found = embertide.list_versions(tmp_path / "out", targets=True)[0]
    assert {name: info.rows for name, info in found.types.items()} == {"user": 3}
    types = output_report(report, job).types or []
    assert [(of_type.name, of_type.rows) for of_type in types] == [("user", 3)]
    assert report.chosen.edges < report.chosen.all_edges


def test_targets_of_no_type_are_refused_where_several_are_published(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"name one of these in spec\.inference\.targets\.nodeTyp"):
        run_job(typed(tmp_path, ids=["user-0"]), threads=1)


def test_a_type_without_embeddings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"spec\.inference\.targets\.nodeType is 'lone'"):
        run_job(typed(tmp_path, ids=[3], nodeType="lone"), threads=1)


def test_a_reference_is_compared_where_it_has_targets(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    run(job.manifest)
    ids, vectors = embertide.read(job.output).to_numpy()
    some = np.flatnonzero(np.isin(ids, [3, 5]))
    wrong = [(ids[at], vectors[at] + (ids[at] == 5)) for at in some]
    table = {"id": [key for key, _ in wrong], "embedding": [row.tolist() for _, row in wrong]}
    pq.write_table(pa.table(table), job.model / "reference.parquet")
    job.write_manifest(inference__targets={"ids": [3, 7]})
    report = run(job.manifest)
    assert manifest_of(report)["reference"]["rows"] == 1
    job.write_manifest(inference__targets={"ids": [5, 7]})
    with pytest.raises(ModelError, match="differ from the reference"):
        run(job.manifest)
    job.write_manifest(inference__targets={"ids": [7]})
    report = run(job.manifest)
    assert any("none of its ids is among spec.inference.targets" in w for w in report.warnings)


def test_a_version_of_some_nodes_is_not_taken_for_one_of_all(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    job.write_manifest(inference__targets={"ids": [3]})
    run(job.manifest)
    with pytest.raises(EmbertideError, match="nothing was published to"):
        embertide.read(job.output)
    storage, uri = open_storage(None), f"file://{job.output}/_targets"
    with pytest.raises(OutputError, match="rows of 1 of 12 nodes alone"):
        chosen_version(storage, uri, Options(name="items"))
    # Copied to where those of all nodes are.
    shutil.copytree(job.output / "_targets", tmp_path / "copied")
    with pytest.raises(OutputError, match="is no version of all nodes"):
        embertide.read(tmp_path / "copied")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> tuple[Commands, SmallJob]:
    """A job of all nodes, in a folder where commands run."""
    folder = tmp_path_factory.mktemp("commands")
    return Commands(folder), SmallJob.make(folder / "job")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (None, ""),
        ("ids.txt", "3\n7\n3\n"),
        ("ids.csv", "x,id\n0,3\n0,7\n"),
        ("ids.csv.gz", "x,id\n0,3\n0,7\n"),
    ],
)
def test_the_command_line_takes_ids(
    name: str | None, text: str, commands: tuple[Commands, SmallJob]
) -> None:
    command, job = commands
    words = ["--ids", "3,7", "--ids", "3"]
    if name is not None:
        data = text.encode()
        (job.folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        words = ["--ids-from", str(job.folder / name)]
    done = command.run("run", job.manifest, *words, "--json", "-q")
    assert done.code == 0, done.err
    report = json.loads(done.out.splitlines()[-1])
    assert (report["rows"], report["chosen"]["rows"]) == (2, 2)
    assert rows_of(job.output, targets=True).keys() == {3, 7}
    done = command.run("versions", "--output", f"{job.output}/_targets")
    assert f"2 of {NODES}" in done.out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--ids", "3,99"), 3, "1 of 2 ids of spec.inference.targets are no nodes"),
        (("--ids", "three"), 3, "--ids has 'three', but ids of 'node' are whole numbers"),
        (("--ids", "3,--7"), 3, "--ids has '--7', but ids of 'node' are whole numbers"),
        (("--ids", "1_0"), 3, "--ids has '1_0', but ids of 'node' are whole numbers"),
        (("--ids", "3,²"), 3, "--ids has '²', but ids of 'node' are whole numbers"),
        (("--ids-from", "nowhere.txt"), 3, "nowhere.txt cannot be read: there is no such file"),
        (("--ids", "3", "--ids-from", "x"), 2, "give either --ids or --ids-from"),
        (("--ids", "3", "--resume"), 2, "--resume keeps layers"),
        (("--ids", "3", "--node-type", "user"), 2, "must be the name of a node type: node"),
        (("--node-type", "node"), 2, "--node-type goes with --ids"),
    ],
)
def test_the_command_line_refuses(
    words: tuple[str, ...], code: int, says: str, commands: tuple[Commands, SmallJob]
) -> None:
    command, job = commands
    done = command.run("run", job.manifest, *words, "-q")
    assert done.code == code, done.err
    assert says in " ".join((done.err + done.out).replace("│", " ").split())


def test_a_plan_says_how_many_rows_there_will_be(commands: tuple[Commands, SmallJob]) -> None:
    command, job = commands
    path = job.folder / "some.yaml"
    data = yaml.safe_load(Path(job.manifest).read_text())
    data["spec"]["inference"] = {"targets": {"ids": [3, 7, 3]}}
    path.write_text(yaml.safe_dump(data))
    done = command.run("plan", str(path), "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    (note,) = (text for text in plan["notes"] if "inference.targets" in text)
    # The same by the command line, over the job of all nodes; rows of text are a guess.
    ids, table = job.folder / "wanted.txt", job.folder / "wanted.parquet"
    ids.write_text("3\n7\n")
    pq.write_table(pa.table({"id": [3, 7]}), table)
    for words, rows in (
        (("--ids", "3,7"), "rows of 2 of 12"),
        (("--ids-from", str(table)), "rows of at most 2 of 12"),
        (("--ids-from", str(ids)), "rows of about "),
    ):
        done = command.run("plan", job.manifest, *words, "--json")
        assert done.code == 0, done.err
        (text,) = (t for t in json.loads(done.out)["notes"] if "inference.targets" in t)
        assert rows in text
        assert "of the edges of all" in text
    assert command.run("plan", job.manifest, "--ids", "three").code == 3
    assert command.run("plan", job.manifest, "--node-type", "node").code == 2
    assert note.startswith("only the rows of 2 of 12 nodes are published, below file://")
    # Two layers over a ring: 2 rows, and 4 with their in-neighbours.
    assert "go over 25.0% of the edges" in note
    assert plan["output_bytes"] < 2 * 100
    assert plan["output_uri"].endswith("/_targets")


def test_pods_publish_targets(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path / "job")
    table = write_npy(tmp_path / "job" / "wanted", WANTED)
    job.write_manifest(inference__targets={"table": table})
    with local_pods(tmp_path / "pods", load_manifest(Path(job.manifest))) as made:
        pods = made.attempt("2x1", EMBERTIDE_IN_PLACE="0")
        done = pods[0].until_state("succeeded")
        assert done.output is not None
        assert done.report is not None
        assert done.output.uri.endswith(f"/_targets/versions/{made.versions[0]}")
        assert (done.output.rows, done.report.target_rows, done.report.target_edges) == (2, 2, 6)
        for pod in pods:
            pod.terminate()
        # An attempt that follows finds the version of the one before.
        again = made.attempt("2x1", EMBERTIDE_IN_PLACE="0")[0].until_state("succeeded")
        assert again.output is not None
        assert again.output.version == made.versions[0]
    assert rows_of(job.output, targets=True).keys() == {3, 7}
