"""The admission policy of docs/security.md: what it refuses, and what it leaves to users."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support.cluster.jobs import Inputs, Jobs
from tests.support.document_blocks import blocks

pytestmark = pytest.mark.cluster

PAGE = "docs/security.md"
REFUSED: dict[str, dict[str, Any]] = {
    "spec.workers.podTemplate is not allowed": {"workers": {"podTemplate": {"spec": {}}}},
    "spec.workers.image is not allowed": {"workers": {"image": "registry.example/own:1"}},
    "serviceAccountName may only be": {"workers": {"serviceAccountName": "default"}},
    "credentialsSecret may only be s3": {"storage": {"credentialsSecret": "other"}},
}


def test_the_pages_policy_closes_what_reaches_beyond_a_job(tiny: Inputs, jobs: Jobs) -> None:
    found = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
    objects = [item for item in found if "kind" in item]
    assert [item["kind"].removeprefix("Validating") for item in objects] == [
        "AdmissionPolicy", "AdmissionPolicyBinding",
    ]  # fmt: skip
    jobs.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    jobs.kubectl("label", "namespace", jobs.namespace, "embertide.dev/jobs=plain")
    try:
        plain = tiny.job("plain", f"{jobs.root}/out")
        plain["spec"]["workers"] = {"serviceAccountName": "embeddings"}
        for message, spec in REFUSED.items():
            job = plain | {"spec": plain["spec"] | spec}
            await_refusal(jobs, job, message)
        assert tried(jobs, plain).returncode == 0, tried(jobs, plain).stderr
    finally:
        for item in objects:
            jobs.kubectl("delete", item["kind"], item["metadata"]["name"])


def test_the_pages_command_runs(jobs: Jobs) -> None:
    (block,) = blocks(PAGE, "sh")
    (command,) = block.commands
    words = [jobs.namespace if word == "shop" else word for word in command.split()]
    assert words[0] == "kubectl"
    assert jobs.namespace in jobs.kubectl(*words[1:])


def await_refusal(jobs: Jobs, job: dict[str, Any], message: str) -> None:
    """The API server takes a moment to know a new policy."""
    jobs.cluster.wait_for(lambda: message in tried(jobs, job).stderr, 30, message)


def tried(jobs: Jobs, job: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """What the API server says of a job that is not kept."""
    command = ("-n", jobs.namespace, "create", "--dry-run=server", "-f", "-")
    return jobs.cluster.try_kubectl(*command, input=yaml.safe_dump(job))
