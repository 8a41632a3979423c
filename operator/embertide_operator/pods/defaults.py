"""What the platform sets for the workers of all jobs, and of those of a namespace.

A pod template of the chart is merged into the operator's own, then that of the job's namespace,
then what the job says itself; a later one wins (``config/pod_template.py`` has how lists are
merged). Resources of the container ``worker`` are defaults by name: a job that asks for ``cpu``,
as a request or as a limit, takes no amount of ``cpu`` from here, so its own request is never above
a limit of the platform's.
"""

from __future__ import annotations

from typing import Any

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.naming import CONTAINER
from embertide_operator.api.routes import Object
from embertide_operator.config.pod_template import merge, without_resources
from embertide_operator.config.settings import Settings


def platform_template(job: EmbeddingJob, settings: Settings) -> Object:
    """The pod template for a job's namespace, but for the resources of the worker."""
    return without_resources(_whole(job, settings))


def given_template(job: EmbeddingJob, settings: Settings) -> Object:
    """What the platform and the job together say about the workers' pods."""
    return merge(platform_template(job, settings), job.spec.workers.pod_template or {})


def resources_of(job: EmbeddingJob, settings: Settings) -> Object:
    """The resources of each worker: the job's, and the platform's where the job names none."""
    asked = job.spec.workers.resources or {}
    named = {name for amounts in asked.values() for name in amounts}
    containers = _whole(job, settings).get("spec", {}).get("containers") or []
    worker: Object = next((item for item in containers if item["name"] == CONTAINER), {})
    defaults = {
        section: {name: amount for name, amount in amounts.items() if name not in named}
        for section, amounts in (worker.get("resources") or {}).items()
    }
    return merge({section: amounts for section, amounts in defaults.items() if amounts}, asked)


def memory_of(job: EmbeddingJob, settings: Settings) -> Any:
    """The memory quantity of each worker; None where it has to be planned."""
    resources = resources_of(job, settings)
    for section in ("limits", "requests"):
        amount = (resources.get(section) or {}).get("memory")
        if amount is not None:
            return amount
    return None


def limit_of(job: EmbeddingJob, settings: Settings) -> Any:
    """The memory limit of each worker, a quantity; None where nothing sets one."""
    return (resources_of(job, settings).get("limits") or {}).get("memory")


def _whole(job: EmbeddingJob, settings: Settings) -> Object:
    namespace = job.metadata.namespace or ""
    return merge(settings.pod_template, settings.namespace_pod_templates.get(namespace, {}))
