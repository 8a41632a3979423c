"""A job for some nodes alone whose table of ids, inputs and output are in an object store."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import numpy as np
import pytest
import yaml

from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.version_names import targets_uri
from embertide.storage.opening import open_storage
from embertide.versions.reading import read_version
from tests.support.s3.server import S3Server
from tests.support.small_job import SmallJob

pytestmark = [pytest.mark.s3, pytest.mark.distributed]


def test_targets_in_a_store_are_published_to_it(s3: S3Server, tmp_path: Path) -> None:
    job, uri = SmallJob.make(tmp_path), s3.uri(f"t-{secrets.token_hex(6)}")
    settings = {"endpointUrl": s3.endpoint, "region": s3.region}
    data = yaml.safe_load(Path(job.manifest).read_text())
    data["spec"]["storage"] = settings
    data["spec"]["output"]["uri"] = f"{uri}/embeddings"
    table = {"uri": f"{uri}/wanted/", "format": "csv"}
    path = tmp_path / "s3.yaml"

    def with_targets(given: dict[str, object]) -> EmbeddingJob:
        data["spec"]["inference"] = given
        path.write_text(yaml.safe_dump(data))
        return load_manifest(path)

    whole = with_targets({})
    storage = open_storage(whole.spec.storage)
    storage.write(f"{uri}/wanted/a.csv", b"id\n7\n3\n")
    storage.write(f"{uri}/wanted/b.csv", b"id\n3\n11\n")
    some = with_targets({"targets": {"table": table}})
    for one in (whole, some):
        run_job(one, grid=GridShape.of(2, 1), threads=1)
    keys, values = read_version(storage, f"{uri}/embeddings").to_numpy()
    expected = dict(zip(keys.tolist(), values, strict=True))
    ids, rows = read_version(storage, targets_uri(f"{uri}/embeddings")).to_numpy()
    assert sorted(ids.tolist()) == [3, 7, 11]
    assert all(np.array_equal(row, expected[key]) for key, row in zip(ids, rows, strict=True))
    latest = json.loads(storage.read(f"{uri}/embeddings/_targets/LATEST"))
    manifest = f"{uri}/embeddings/_targets/versions/{latest['version']}/_manifest.json"
    read = json.loads(storage.read(manifest))["inputs"]
    kinds = [item["uri"] for item in read if item["kind"] == "targets"]
    assert kinds == [f"{uri}/wanted/a.csv", f"{uri}/wanted/b.csv"]
