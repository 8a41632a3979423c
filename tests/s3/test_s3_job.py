"""A whole job over S3: inputs, model and versions behind a real S3 server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embertide.spec.workers import StorageSettings
from embertide.storage.opening import open_storage
from embertide.versions.catalog import list_versions
from embertide.versions.reading import iter_embeddings
from tests.support.exact import assert_exact
from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.distributed]


def embertide(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "embertide", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def embeddings(uri: str, settings: StorageSettings | None = None) -> np.ndarray:
    """All embeddings of the current version, by id."""
    batches = list(iter_embeddings(open_storage(settings), uri, None))
    ids = np.concatenate([ids for ids, _ in batches])
    return np.concatenate([values for _, values in batches])[np.argsort(ids)]


def test_a_job_over_s3_equals_the_same_job_over_files(s3: S3Server, tmp_path: Path) -> None:
    place, size = s3.uri("job"), ("--scale", "9", "--width", "16", "--hidden", "16", "-q")
    made = embertide("synth", place, *size, "--endpoint-url", s3.endpoint)
    assert made.returncode == 0, made.stderr
    assert embertide("synth", str(tmp_path / "job"), *size).returncode == 0
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    manifest = tmp_path / "s3.yaml"
    manifest.write_bytes(open_storage(settings).read(f"{place}/job.yaml"))

    over_s3 = embertide("run", str(manifest), "--grid", "2x2", "--json")
    assert over_s3.returncode == 0, over_s3.stdout + over_s3.stderr
    over_files = embertide("run", str(tmp_path / "job/job.yaml"), "--grid", "1x1", "-q")
    assert over_files.returncode == 0, over_files.stderr

    report = json.loads(over_s3.stdout.splitlines()[-1])
    found = list_versions(open_storage(settings), f"{place}/embeddings/")
    assert [info.version for info in found] == [report["version"]]
    ours = embeddings(f"{place}/embeddings/", settings)
    theirs = embeddings(f"file://{tmp_path}/job/embeddings/")
    assert ours.shape == (512, 128)
    assert_exact(ours, theirs)


def test_wrong_credentials_say_what_to_set(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ("--scale", "6", "--width", "4", "--hidden", "4", "-q")
    made = embertide("synth", s3.uri("small"), *size, "--endpoint-url", s3.endpoint)
    assert made.returncode == 0, made.stderr
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    manifest = tmp_path / "s3.yaml"
    manifest.write_bytes(open_storage(settings).read(f"{s3.uri('small')}/job.yaml"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    refused = embertide("run", str(manifest), "-q")
    assert refused.returncode == 5
    assert "AWS_SECRET_ACCESS_KEY" in refused.stderr
    assert "not-the-secret" not in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr
