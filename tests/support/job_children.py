"""A job's objects, as the operator would apply them in an attempt."""

from __future__ import annotations

from typing import Any

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children
from embertide_operator.pods.worker_pods import Attempt
from tests.support.operator_world import SETTINGS, UID, raw_job

ATTEMPT = Attempt(
    uid=UID,
    number=3,
    version="20261121T120000Z-abcdef",
    earlier=("20261121T110000Z-abcdef",),
    grid=GridShape.of(2, 2),
)


def job(**spec: Any) -> EmbeddingJob:
    found = read_job(raw_job(**spec), SETTINGS)
    assert isinstance(found, EmbeddingJob), found
    return found


def workers(**fields: Any) -> dict[str, Any]:
    """A job's workers section, with memory so that nothing is planned."""
    return {"workers": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}, **fields}}


def pod_of(spec: EmbeddingJob, attempt: Attempt = ATTEMPT) -> dict[str, Any]:
    template: dict[str, Any] = children(spec, attempt, SETTINGS)[-1]["spec"]["template"]
    return template


def environment(spec: EmbeddingJob, attempt: Attempt = ATTEMPT) -> dict[str, str | None]:
    (container,) = pod_of(spec, attempt)["spec"]["containers"]
    return {item["name"]: item.get("value") for item in container["env"]}
