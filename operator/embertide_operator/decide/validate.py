"""Validate what the API server cannot: the spec as the workers will read it."""

from __future__ import annotations

from pydantic import ValidationError

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.problems import dotted, explain
from embertide_operator.api.quantities import is_amount
from embertide_operator.api.routes import Object
from embertide_operator.config import template_problems
from embertide_operator.config.settings import Settings
from embertide_operator.pods.worker_pods import image_of

Problems = list[tuple[str, str]]


def read_job(raw: Object, settings: Settings) -> EmbeddingJob | Problems:
    """The parsed job, or all of its problems: (path, message)."""
    meta = raw["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)}
    data = {key: raw.get(key) for key in ("apiVersion", "kind", "spec")} | {"metadata": kept}
    try:
        job = EmbeddingJob.model_validate(data)
    except ValidationError as error:
        return [(dotted(path), message) for path, message in explain(EmbeddingJob, error)]
    found = [*_image(job, settings), *_resources(job)]
    found += template_problems.problems(job.spec.workers.pod_template or {})
    return found or job


def _image(job: EmbeddingJob, settings: Settings) -> Problems:
    if image_of(job, settings):
        return []
    device = job.spec.workers.device
    return [
        (
            "spec.workers.image",
            f"is required: the operator has no default image for device {device}",
        )
    ]


def _resources(job: EmbeddingJob) -> Problems:
    """Invalid quantities; the API server would reject them later, with a less clear message."""
    push = job.spec.push
    return [
        *_amounts("spec.workers.resources", job.spec.workers.resources),
        *_amounts("spec.push.resources", push.resources if push is not None else None),
    ]


def _amounts(field: str, resources: Object | None) -> Problems:
    found: Problems = []
    for section, amounts in (resources or {}).items():
        at = f"{field}.{section}"
        if section not in ("limits", "requests"):
            found.append((at, "unknown field; allowed: limits, requests"))
            continue
        if not isinstance(amounts, dict):
            found.append((at, "must be a mapping such as {cpu: 2, memory: 8Gi}"))
            continue
        for name, amount in amounts.items():
            if not is_amount(amount):
                found.append((f"{at}.{name}", f"is {amount!r}; must be like 500m, 2 or 8Gi"))
    return found
