"""Volumes that cannot be mounted, such as those of a Secret that is missing or lacks a key.

The kubelet says so in an Event only, and the pod's status no more than ``ContainerCreating``. Here
the status is made to say it, as it says of an image that cannot be pulled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.spec.naming import CONTAINER
from embertide_operator.kubernetes_api import Object

FAILED_MOUNT = "FailedMount"
"""The reason of the kubelet's Event, and then of the waiting container."""
_CREATING = ("ContainerCreating", "PodInitializing")
_MOUNTED = "PodReadyToStartContainers"
"""A pod's condition that is True once its volumes are mounted, where the kubelet has it."""


def tell_mount_error(
    pods: list[Object], events_about: Callable[[str], list[Object]]
) -> list[Object]:
    """The pods; of those being created, the first says which volume it lacks, if it lacks one.

    Args:
        events_about: the Events with the reason :data:`FAILED_MOUNT` about the object with a UID;
            called at most once.
    """
    for number, pod in enumerate(pods):
        if _is_being_created(pod):
            events = events_about(pod["metadata"]["uid"])
            newest = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
            if newest is None:
                return pods
            waiting = {"reason": FAILED_MOUNT, "message": str(newest["message"])}
            return [*pods[:number], _saying(pod, {"waiting": waiting}), *pods[number + 1 :]]
    return pods


def _is_being_created(pod: Object) -> bool:
    """Whether a pod's worker waits for what has to be there before its first container."""
    status = pod.get("status") or {}
    conditions = {c["type"]: c.get("status") for c in status.get("conditions") or []}
    waiting: dict[str, Any] = {}
    for item in status.get("containerStatuses") or []:
        if item["name"] == CONTAINER:
            waiting = (item.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") in _CREATING and conditions.get(_MOUNTED) != "True"


def _saying(pod: Object, state: Object) -> Object:
    """A copy of the pod whose worker is in this state."""
    statuses = [
        {**item, "state": state} if item["name"] == CONTAINER else item
        for item in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}
