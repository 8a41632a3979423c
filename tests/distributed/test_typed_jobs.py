"""Jobs of several node types, from files to published rows, and what users may get wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from embertide.errors import InputError, ModelError
from embertide.grid import Grid
from embertide.planning.inputs import Inputs, list_inputs
from embertide.planning.matching import check_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from embertide.storage.opening import open_storage
from embertide.versions.catalog import latest
from embertide.versions.publish import rollback
from embertide.versions.reading import iter_embeddings, read_version
from tests.support.exact import assert_exact
from tests.support.ranks import on_grid
from tests.support.typed_files import VERSION, names_of, positions, publish_typed, write_typed_job
from tests.support.typed_programs import attending, from_files, relational
from tests.support.typed_world import COUNTS, expected_of

pytestmark = pytest.mark.distributed


@pytest.fixture
def manifest(tmp_path: Path) -> dict[str, Any]:
    return write_typed_job(tmp_path)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_each_type_is_published_with_its_own_parts(
    tmp_path: Path, manifest: dict[str, Any], grid: tuple[int, int]
) -> None:
    program, out = relational(), f"file://{tmp_path}/out"
    on_grid(*grid, publish_typed, manifest, program)
    storage, world = open_storage(None), grid[0] * grid[1]
    info = latest(storage, out)
    assert (info.version, info.rows, info.dim) == (VERSION, 61 + 40 + 3, 6)
    assert {name: of_type.rows for name, of_type in info.types.items()} == {
        name: COUNTS[name] for name in ("user", "item", "tag")
    }
    for name, expected in expected_of(program).items():
        found = read_version(storage, out, node_type=name)
        ids, vectors = found.to_numpy()
        assert sorted(ids.tolist()) == sorted(names_of(name))
        assert_exact(vectors, expected[positions(name, ids)])
        batches = list(iter_embeddings(storage, out, node_type=name))
        assert np.array_equal(np.concatenate([values for _, values in batches]), vectors)
        parts = sorted((tmp_path / "out" / "versions" / VERSION / name).glob("part-*[0-9].npy"))
        assert len(parts) == world
    rollback(storage, out, VERSION)
    (tmp_path / "out" / "versions" / VERSION / "tag" / "part-00000.npy").unlink()
    with pytest.raises(Exception, match=r"tag/part-00000.npy is missing"):
        rollback(storage, out, VERSION)


def test_a_reader_says_which_type(tmp_path: Path, manifest: dict[str, Any]) -> None:
    on_grid(1, 1, publish_typed, manifest, attending())
    storage, out = open_storage(None), f"file://{tmp_path}/out"
    assert latest(storage, out).dim == 8
    with pytest.raises(InputError, match="has several node types; choose one of item, user, tag"):
        read_version(storage, out)
    with pytest.raises(InputError, match="has no node type 'lone'; it has item, user, tag"):
        list(iter_embeddings(storage, out, node_type="lone"))


def test_inputs_of_several_types_go_through_json(manifest: dict[str, Any]) -> None:
    inputs = list_inputs(open_storage(None), load_manifest(yaml.safe_dump(manifest)))
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
            "line 2: column 'dst' (columns.destination) is 3, which is not among the 40 nodes of"
            " 'item', the type of the destinations: those {job}/item.",
        ),
        (
            "never.tsv",
            "src\tdst\n7\tuser-0\n",
            "line 2: column 'src' (columns.source, node type 'tag') is 7; dense ids must be from 0"
            " to 2 (count is 3)",
        ),
    ],
)
def test_an_id_of_another_type_is_refused(
    tmp_path: Path, manifest: dict[str, Any], path: str, row: str, says: str
) -> None:
    (tmp_path / path).write_text(row)
    with pytest.raises(AssertionError) as caught:
        on_grid(2, 1, publish_typed, manifest, from_files())
    assert says.format(job=f"file://{tmp_path}") in str(caught.value)


def checked(manifest: dict[str, Any]) -> dict[str, str]:
    job = load_manifest(yaml.safe_dump(manifest))
    inputs, shape = list_inputs(open_storage(None), job), Grid(GridShape.of(1, 1)).shape
    return check_model(job, inputs, relational(), shape, COUNTS)


def test_a_model_and_a_manifest_have_the_same_types(manifest: dict[str, Any]) -> None:
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
