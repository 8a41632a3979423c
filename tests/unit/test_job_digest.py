"""The digest of what determines a result: the same for manifests that say the same.

Of fields that count or do not wherever they are, ``test_affects.py``.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.manifests import EXAMPLE, put

DATA: dict[str, Any] = yaml.safe_load(EXAMPLE)


def digest(data: dict[str, Any]) -> str:
    return job_digest(load_manifest(yaml.safe_dump(data)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.input.edges.0.uri", "s3://shop/edges/dt=2026-11-21/"),
        ("spec.input.edges.0.columns.weight", "w"),
        ("spec.input.edges.0.directed", False),
        ("spec.input.nodes.0.ids", "int64"),
        ("spec.input.nodes.0.features.vectorColumn", "y"),
    ],
)
def test_what_determines_the_result(path: str, value: object) -> None:
    assert digest(put(DATA, path, value)) != digest(DATA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "others"),
        ("metadata.labels", {"team": "search"}),
        ("spec.input.edges.0.uri", "s3://shop/edges/dt=2026-11-20"),
        ("spec.input.edges.0.recursive", False),
        ("spec.input.edges.0.columns", {}),
        ("spec.input.nodes.0.name", "node"),
        ("spec.model.uri", "s3://shop/models/gcn-7"),
        ("spec.inference", {"groupBytes": 65536, "depth": 4, "seed": 7, "rows": "float32"}),
        ("spec.workers", {"grid": {"graph": 4, "feature": 2}, "device": "cpu"}),
        ("spec.storage", {"endpointUrl": "http://s3:9000", "credentialsSecret": "s3"}),
    ],
)
def test_what_does_not(path: str, value: object) -> None:
    assert digest(put(DATA, path, value)) == digest(DATA)


def test_the_seed_counts_with_sampling_alone() -> None:
    sampled = put(DATA, "spec.inference.fanout", [5])
    assert digest(put(sampled, "spec.inference.seed", 1)) != digest(sampled)


def test_a_path_is_a_file_uri() -> None:
    paths = [put(DATA, "spec.model.uri", uri) for uri in ("/models/a", "file:///models/a/")]
    assert len({digest(data) for data in paths}) == 1


def test_it_outlasts_json_and_releases() -> None:
    """What a worker reads from job.json has the digest of what the user applied, for good."""
    job = load_manifest(EXAMPLE)
    again = EmbeddingJob.model_validate_json(job.model_dump_json(by_alias=True))
    assert job_digest(again) == job_digest(job)
    assert job_digest(job) == "8a7a67e5213fd2155cab6e1051eb721ffa995c511f0983d8bd16d3403c111059"


def test_it_needs_no_torch() -> None:
    code = "import sys, embertide.spec.job_digest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
