"""Why a pod is gone whose end was not seen: a StatefulSet replaces at once what its node ended.

Then only Events still tell what became of it.
"""

from __future__ import annotations

from embertide.spec.naming import worker_name
from embertide_operator.api.routes import Object
from embertide_operator.decide.pod_identity import lost_pods
from embertide_operator.job.observe import Observed, Source

_REASONS = ("Evicted", "Preempted", "Preempting")
"""The reasons of the kubelet's and the scheduler's Events about pods that they end."""


def why_lost(source: Source, seen: Observed) -> Object:
    """The Event about the end of a lost pod of the attempt; {} where none is lost, or none says.

    Raises:
        ApiError: the API server rejected or did not answer the request.
    """
    meta = seen.job["metadata"]
    for rank, uid in lost_pods(seen).items():
        events = source.events_about_pod(meta["namespace"], worker_name(meta["name"], rank))
        if (found := event_of_end(events, uid)) is not None:
            return found
    return {}


def event_of_end(events: list[Object], uid: str) -> Object | None:
    """The Event that says why the pod ended whose UID begins so; None where there is none."""
    ends = (
        event
        for event in events
        if event.get("reason") in _REASONS
        and str(event["involvedObject"].get("uid", "")).startswith(uid)
    )
    return next(ends, None)
