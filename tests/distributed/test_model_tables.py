"""Node types without features, whose rows are a table of the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.engine.planning.inputs import Inputs, list_inputs
from embertide.errors import InputError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import read_version
from embertide.launch.local import run_job
from embertide.models.read import read_files
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.exact import assert_exact
from tests.support.program_files import write_program
from tests.support.typed_files import positions, write_typed_job
from tests.support.typed_programs import relational
from tests.support.typed_world import expected_of, make_typed_features

pytestmark = pytest.mark.distributed


@pytest.fixture
def manifest(tmp_path: Path) -> dict[str, Any]:
    """Of a job whose model has a table of the tags."""
    written = write_typed_job(tmp_path)
    write_program(tmp_path / "model", relational(), {"tag": make_typed_features()["tag"]})
    return written


def test_a_table_takes_the_place_of_features(tmp_path: Path, manifest: dict[str, Any]) -> None:
    """Its rows are read by all workers, as if they were features."""
    manifest["spec"]["input"]["nodes"][2] = {"name": "tag", "count": 3}
    del manifest["spec"]["refresh"]
    job = load_manifest(yaml.safe_dump(manifest))
    run_job(job, grid=GridShape.of(2, 2), threads=1)
    for name, expected in expected_of(relational()).items():
        out = read_version(open_storage(None), f"file://{tmp_path}/out", node_type=name)
        ids, vectors = out.to_numpy()
        assert_exact(vectors, expected[positions(name, ids)])
    assert run_job(job, grid=GridShape.of(2, 2), threads=1).confirmed, "nothing has changed"


def test_a_table_must_have_the_nodes_of_the_job(tmp_path: Path, manifest: dict[str, Any]) -> None:
    nodes, storage = manifest["spec"]["input"]["nodes"], open_storage(None)

    def listed(node: dict[str, Any]) -> Inputs:
        nodes[2] = node
        return list_inputs(storage, load_manifest(yaml.safe_dump(manifest)))

    assert listed(nodes[2]).model_tables == {}, "features of the job come first"
    (table,) = listed({"name": "tag", "count": 3}).model_tables.values()
    assert read_files(storage, f"file://{tmp_path}/model").program().widths["tag.x"] == 4
    with pytest.raises(InputError, match=r"has 3 rows, but the type has 4 nodes \(count\)"):
        listed({"name": "tag", "count": 4})
    ids = {"name": "tag", "ids": "int64", "table": {"uri": f"file://{tmp_path}/lone"}}
    with pytest.raises(
        InputError, match=r"by number of row, but its ids are int64.*--table-ids"
    ) as no:
        listed(ids)
    assert table.uri in str(no.value)
