"""A whole job over S3: inputs, model and versions behind a real S3 server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.workers import StorageSettings
from tests.support.commands import Commands
from tests.support.exact import assert_exact
from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.distributed]


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def embeddings(uri: str, settings: StorageSettings | None = None) -> np.ndarray:
    """All embeddings of the current version, by id."""
    batches = list(iter_embeddings(open_storage(settings), uri, None))
    ids = np.concatenate([ids for ids, _ in batches])
    return np.concatenate([values for _, values in batches])[np.argsort(ids)]


def test_a_job_over_s3_equals_the_same_job_over_files(
    s3: S3Server, commands: Commands, tmp_path: Path
) -> None:
    place, size = s3.uri("job"), ("--scale", "9", "--width", "16", "--hidden", "16", "-q")
    made = commands.run("synth", place, *size, "--endpoint-url", s3.endpoint)
    assert made.code == 0, made.err
    assert commands.run("synth", str(tmp_path / "job"), *size).code == 0
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    manifest = tmp_path / "s3.yaml"
    manifest.write_bytes(open_storage(settings).read(f"{place}/job.yaml"))

    over_s3 = commands.run("run", str(manifest), "--grid", "2x2", "--json")
    assert over_s3.code == 0, over_s3.out + over_s3.err
    over_files = commands.run("run", str(tmp_path / "job/job.yaml"), "--grid", "1x1", "-q")
    assert over_files.code == 0, over_files.err

    report = over_s3.events[-1]
    found = list_versions(open_storage(settings), f"{place}/embeddings/")
    assert [info.version for info in found] == [report["version"]]
    ours = embeddings(f"{place}/embeddings/", settings)
    theirs = embeddings(f"file://{tmp_path}/job/embeddings/")
    assert ours.shape == (512, 128)
    assert_exact(ours, theirs)
