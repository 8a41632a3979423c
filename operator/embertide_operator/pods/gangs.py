"""What queues and schedulers of groups have to know: all workers of a job start together or not.

Kueue finds its queue by labels of the StatefulSet, and passes them on to the pods itself. Volcano
and the coscheduling plugin count pods by a PodGroup, an object with the number of workers; there is
one where the settings name the API that the cluster has, since an API cannot be asked for without
rights to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embertide.spec.manifest import EmbeddingJob
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.pods.defaults import given_template

_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
"""On the StatefulSet: how many pods Volcano, from 1.13 on, has to find room for at once."""
_VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"


@dataclass(frozen=True)
class _GroupApi:
    """An API of PodGroups, and what a pod carries to belong to one."""

    version: str
    place: str  # in the pod's metadata
    key: str


_APIS = {
    "volcano": _GroupApi(
        "scheduling.volcano.sh/v1beta1", "annotations", "scheduling.k8s.io/group-name"
    ),
    "coscheduling": _GroupApi(
        "scheduling.x-k8s.io/v1alpha1", "labels", "scheduling.x-k8s.io/pod-group"
    ),
}


def queue_labels(job: EmbeddingJob) -> dict[str, str]:
    """The labels of the job by which Kueue finds queue and priority of its StatefulSet."""
    return {key: job.metadata.labels[key] for key in _QUEUE_LABELS if key in job.metadata.labels}


def gang_annotations(workers: int) -> dict[str, str]:
    """Annotations of the StatefulSet."""
    return {_MIN_MEMBER: str(workers)}


def group_kind(settings: Settings) -> str:
    """The kind of PodGroups with its group, as ``kind_of`` gives it; "" where none are made."""
    if not settings.pod_groups:
        return ""
    return f"PodGroup.{_APIS[settings.pod_groups].version.partition('/')[0]}"


def pod_group(job: EmbeddingJob, workers: int, settings: Settings) -> Object | None:
    """apiVersion, kind and spec of the job's PodGroup; None where it has none of ours."""
    if not _is_grouped(job, settings):
        return None
    spec: Object = {"minMember": workers}
    if settings.pod_groups == "volcano":
        # Volcano takes these from pods for its own groups only.
        given = given_template(job, settings)
        queue = _metadata(job, "annotations", settings).get(_VOLCANO_QUEUE)
        priority = given.get("spec", {}).get("priorityClassName")
        spec |= {"queue": queue} if queue else {}
        spec |= {"priorityClassName": priority} if priority else {}
    return {"apiVersion": _APIS[settings.pod_groups].version, "kind": "PodGroup", "spec": spec}


def in_group(template: Object, job: EmbeddingJob, settings: Settings) -> Object:
    """The workers' pod template, as a member of the job's PodGroup where it has one."""
    if not _is_grouped(job, settings):
        return template
    api = _APIS[settings.pod_groups]
    meta = template["metadata"]
    marked = {**meta.get(api.place, {}), api.key: job.metadata.name}
    scheduler = {"schedulerName": settings.group_scheduler} if settings.group_scheduler else {}
    return {
        **template,
        "metadata": {**meta, api.place: marked},
        "spec": {**template["spec"], **scheduler},
    }


def _is_grouped(job: EmbeddingJob, settings: Settings) -> bool:
    """Whether the job gets a PodGroup: unless it names another scheduler, or a group of its own."""
    if not settings.pod_groups:
        return False
    api = _APIS[settings.pod_groups]
    if api.key in _metadata(job, api.place, settings):
        return False
    given = given_template(job, settings)
    return given.get("spec", {}).get("schedulerName") in (None, settings.group_scheduler)


def _metadata(job: EmbeddingJob, place: str, settings: Settings) -> dict[str, Any]:
    """Labels or annotations that the pod templates of the platform and the job give."""
    given: dict[str, Any] = given_template(job, settings).get("metadata", {})
    return given.get(place) or {}
