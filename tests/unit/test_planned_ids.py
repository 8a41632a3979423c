"""What the page on memory has of node ids is what plans count."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from embertide.engine.planning.graph import plan_graph
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.memory import _id_bytes
from embertide.footprint import ID_BYTES, LOCATION_BYTES
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.paths import ROOT
from tests.support.small_job import SmallJob

PAGE = (ROOT / "docs" / "memory.md").read_text()
NODES = 48_000_000


@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
def test_bytes_of_ids(kind: str, tmp_path: Path) -> None:
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    graph = plan_graph(job, list_inputs(storage, job), program, GridShape())
    ((name, of_type),) = graph.types.items()
    of_type = replace(of_type, node=of_type.node.model_copy(update={"ids": kind}))
    ids = _id_bytes(of_type, graph.size.of_type(name))
    reading = ids.read + max(ids.built, ids.table + ID_BYTES)
    each = [reading, ids.table + ID_BYTES, ids.named + LOCATION_BYTES]
    (row,) = re.findall(rf"^\| `{kind}`.*? \| (.*) \| (.*) \| (.*) \| (.*) GiB \|$", PAGE, re.M)
    assert [*map(float, row[:3])] == each
    assert row[3] == f"{max(each) * NODES / 2**30:.1f}"
