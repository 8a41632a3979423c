"""Jobs of several node types, from files to published rows, and what users may get wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from embertide.edge.check.check import check_job
from embertide.engine.planning.inputs import Inputs, list_inputs
from embertide.engine.planning.matching import check_model, narrow, published, unread
from embertide.errors import InputError, ManifestError, ModelError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.publish import rollback
from embertide.io.versions.reading import iter_embeddings, read_version
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.commands import Commands, Done
from tests.support.plans import order_steps
from tests.support.tiers import later
from tests.support.typed_files import check_rows, names_of, write_typed_job
from tests.support.typed_programs import attending, from_files, relational
from tests.support.typed_world import expected_of

pytestmark = pytest.mark.distributed


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def run(commands: Commands, folder: Path, manifest: dict[str, Any], grid: str) -> Done:
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    return commands.run("run", str(folder / "job.yaml"), "--grid", grid, "--json")


def write_reference(path: Path, node_type: str, program: Program) -> None:
    """The vectors of some nodes, as the user's own forward gives them."""
    ids, vectors = names_of(node_type)[:9], expected_of(program)[node_type][:9]
    pq.write_table(pa.table({"id": ids, "embedding": vectors.float().tolist()}), path)


@pytest.mark.tier(1)
def test_each_type_is_published_with_its_own_parts(commands: Commands, tmp_path: Path) -> None:
    program, out = relational(), f"file://{tmp_path}/out"
    manifest = write_typed_job(tmp_path, program)
    write_reference(tmp_path / "model" / "reference.item.parquet", "item", program)
    done = run(commands, tmp_path, manifest, "2x2")
    assert done.code == 0, done.err
    report, storage = done.events[-1], open_storage(None)
    info = latest(storage, out)
    assert (info.rows, info.dim) == (61 + 40 + 3, 6)
    types = {"user": (61, 7, 6), "item": (40, 5, 6), "tag": (3, 4, 6)}
    assert {
        one["name"]: (one["nodes"], one["width"], one["output_width"]) for one in report["types"]
    } == types
    assert {one["name"]: one["edges"] for one in report["relations"]} == {
        "user:buys:item": 150, "item:bought_by:user": 150, "user:follows:user": 123,
        "item:has:tag": 50, "tag:of:item": 50, "tag:never:user": 0,
    }  # fmt: skip
    for name, expected in expected_of(program).items():
        vectors = check_rows(tmp_path, name, expected)
        batches = list(iter_embeddings(storage, out, node_type=name))
        assert np.array_equal(np.concatenate([values for _, values in batches]), vectors)
        parts = sorted(
            (tmp_path / "out" / "versions" / info.version / name).glob("part-*[0-9].npy")
        )
        assert len(parts) == 4
    held = read_manifest(storage, out, info.version)[0]["types"]
    assert [held[name]["reference"] is not None for name in ("user", "item")] == [False, True]
    rollback(storage, out, info.version)
    (tmp_path / "out" / "versions" / info.version / "tag" / "part-00000.npy").unlink()
    with pytest.raises(Exception, match=r"tag/part-00000.npy is missing"):
        rollback(storage, out, info.version)


def test_some_types_are_published_and_what_they_do_not_need_is_not_read(
    commands: Commands, tmp_path: Path
) -> None:
    manifest = write_typed_job(tmp_path, attending())
    manifest["spec"]["output"]["nodeTypes"] = ["item"]
    done = run(commands, tmp_path, manifest, "1x1")
    assert done.code == 0, done.err
    out = f"file://{tmp_path}/out"
    check_rows(tmp_path, "item", expected_of(attending())["item"])
    assert [one["name"] for one in done.events[-1]["relations"]] == ["user:buys:item"]
    assert [one["name"] for one in done.events[-1]["types"]] == ["user", "item"]
    with pytest.raises(InputError, match="has several node types; choose one of item"):
        read_version(open_storage(None), out)
    with pytest.raises(InputError, match="has no node type 'lone'; it has item"):
        list(iter_embeddings(open_storage(None), out, node_type="lone"))


@pytest.mark.parametrize("grid", later(["1x1", "2x2"], "2x2"))
def test_text_that_the_model_does_not_read_is_counted_for_its_limits(
    commands: Commands, tmp_path: Path, grid: str
) -> None:
    manifest = write_typed_job(tmp_path, attending())
    manifest["spec"]["output"]["nodeTypes"] = ["item"]
    follows = manifest["spec"]["input"]["edges"][1]
    lines = ["src,dst", *(f"user-{i},user-0" for i in range(60))]
    (tmp_path / "follows.csv").write_text("\n".join(lines))
    follows |= {"uri": f"file://{tmp_path}/follows.csv", "format": "csv", "minEdges": 61}
    done = run(commands, tmp_path, manifest, grid)
    assert (done.code, "follows.csv has 60 edges" in done.message) == (3, True), done.message
    follows["minEdges"] = 60
    assert run(commands, tmp_path, manifest, grid).code == 0
    storage, out = open_storage(None), f"file://{tmp_path}/out"
    info = latest(storage, out)
    assert info is not None
    read = read_manifest(storage, out, info.version)[0]["read"]
    assert read["edges"]["user:follows:user"] == 60
    (tmp_path / "follows.csv").write_text("\n".join(lines[:31]))
    del follows["minEdges"]
    assert run(commands, tmp_path, manifest, grid).code == 0, "nothing limits its number"
    (tmp_path / "follows.csv").write_text("\n".join(lines))
    manifest["spec"]["input"]["maxShrink"] = "10%"
    assert run(commands, tmp_path, manifest, grid).code == 0
    (tmp_path / "follows.csv").write_text("\n".join(lines[:31]))
    done = run(commands, tmp_path, manifest, grid)
    assert (done.code, "50.0% fewer than the 60" in done.message) == (3, True), done.message


def test_a_program_for_some_types_has_the_steps_that_these_need(tmp_path: Path) -> None:
    given, whole = write_typed_job(tmp_path), order_steps(relational(), 1)
    assert published(job_of(given), whole) is whole
    given["spec"]["output"]["nodeTypes"] = ["user"]
    program = published(job_of(given), whole)
    assert list(program.results) == ["user"]
    assert len(program.steps) < len(whole.steps)
    # The second layer of tags and items is not needed, the first one is.
    assert {step.layer for step in program.steps if program.types[step.out] == "tag"} == {0}
    given["spec"]["output"]["nodeTypes"] = ["lone"]
    with pytest.raises(ModelError, match=r"nodeTypes has 'lone', but the model .* user, item, tag"):
        published(job_of(given), whole)
    given["spec"]["output"]["nodeTypes"] = ["nobody"]
    with pytest.raises(ManifestError, match=r"nodeTypes\[0\]: is 'nobody'; must be the name of"):
        job_of(given)


def test_what_no_model_needs_is_left_out(tmp_path: Path) -> None:
    asked = job_of(write_typed_job(tmp_path))
    given = narrow(asked, from_files()).spec.input
    assert [node.name for node in given.nodes] == ["user", "item", "tag"]
    assert [str(one) for one in given.relations] == ["user:buys:item", "item:has:tag"]
    assert unread(asked, from_files()) == [
        "nothing needs node type lone, so it is not read",
        "nothing needs edge type user:follows:user, so it is not read",
        "nothing needs edge type tag:never:user, so it is not read",
    ]


def test_a_check_compares_one_type(tmp_path: Path) -> None:
    asked = job_of(write_typed_job(tmp_path, relational()))
    write_reference(tmp_path / "users.parquet", "user", relational())
    against = f"file://{tmp_path}/users.parquet"
    assert check_job(asked, against, node_type="user").agrees
    with pytest.raises(ModelError, match=r"user, item, tag, several; choose one with --node-type"):
        check_job(asked, against)
    with pytest.raises(ModelError, match=r"none of type 'lone'; choose one"):
        check_job(asked, against, node_type="lone")


def test_inputs_of_several_types_go_through_json(tmp_path: Path) -> None:
    inputs = list_inputs(open_storage(None), job_of(write_typed_job(tmp_path)))
    assert Inputs.from_json(json.loads(json.dumps(inputs.to_json()))) == inputs
    assert list(inputs.by_edges) == [
        "user:buys:item", "user:follows:user", "item:has:tag", "tag:never:user",
    ]  # fmt: skip
    assert {name: of_type.width for name, of_type in inputs.by_nodes.items()} == {
        "user": 7, "item": 5, "tag": 4, "lone": 0,
    }  # fmt: skip


# ---- what users may get wrong


@pytest.mark.parametrize(
    ("path", "row", "says"),
    [
        # Ids of users, in the place of items.
        (
            "buys.csv",
            "src,dst,w\nuser-0,3,1\n",
            "buys.csv: 1 of 1 edge has an end that is not among the nodes, 100% (unknownNodes:"
            " refuse). {job}/buys.csv line 2: column 'dst' (columns.destination) is 3, no node of"
            " type 'item'. There are 61 nodes of type 'user', those of {job}/user and 40 nodes of"
            " type 'item', those of {job}/item.",
        ),
        (
            "has.npy",
            np.array([[10**12, 7]]),
            "row 0 (from 0): column 1 (columns.destination) is 7, no node of type 'tag'."
            " There are 40 nodes of type 'item', those of {job}/item and 3 nodes of type 'tag', 0"
            " to 2.",
        ),
    ],
)
def test_an_id_of_another_type_is_refused(
    commands: Commands, tmp_path: Path, path: str, row: Any, says: str
) -> None:
    manifest = write_typed_job(tmp_path, from_files())
    if isinstance(row, str):
        (tmp_path / path).write_text(row)
    else:
        np.save(tmp_path / path, row)
    done = run(commands, tmp_path, manifest, "2x1")
    assert done.code == InputError.exit_code
    assert says.format(job=f"file://{tmp_path}") in done.events[-1]["message"]


def job_of(manifest: dict[str, Any]) -> EmbeddingJob:
    return load_manifest(yaml.safe_dump(manifest))


def checked(manifest: dict[str, Any]) -> dict[str, str]:
    """As a plan does, before any worker starts."""
    job = job_of(manifest)
    inputs = list_inputs(open_storage(None), job)
    counts = {node.name: inputs.by_nodes[node.name].count(node) for node in job.spec.input.nodes}
    return check_model(job, inputs, relational(), GridShape.of(1, 1), counts)


def test_a_model_and_a_manifest_have_the_same_types(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path)
    assert checked(manifest) == {name: name for name in ("user", "item", "tag")}
    given = manifest["spec"]["input"]
    without = copy.deepcopy(manifest)
    del without["spec"]["input"]["edges"][2]["reverse"]
    with pytest.raises(ModelError, match=r"reads the relation tag:of:item, but spec.input"):
        checked(without)
    bare = copy.deepcopy(manifest)
    bare["spec"]["input"]["nodes"][2] = {"name": "tag", "count": 3}
    with pytest.raises(ModelError, match="reads features of node type 'tag', which has none"):
        checked(bare)
    missing = copy.deepcopy(manifest)
    missing["spec"]["input"]["nodes"] = [n for n in given["nodes"] if n["name"] != "tag"]
    missing["spec"]["input"]["edges"] = given["edges"][:2]
    with pytest.raises(ModelError, match=r"has a node type .tag., but spec.input.nodes has user"):
        checked(missing)
    np.save(tmp_path / "tag" / "x.npy", np.ones((3, 9), np.float32))
    with pytest.raises(ModelError, match=r"/tag: the features have 9 columns, but the .* takes 4"):
        checked(manifest)
    np.save(tmp_path / "tag" / "x.npy", np.ones((0, 4), np.float32))
    with pytest.raises(InputError, match=r"node type 'tag' has no nodes: .*/tag has no rows"):
        checked(manifest)
