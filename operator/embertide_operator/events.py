"""Kubernetes Events about a job. Their reasons:

Accepted Rejected Waiting Planned AttemptStarted WorkersReady StageStarted AttemptFailed
SpecChanged Suspended Resumed ChildRefused Published Completed Failed Stale TakenOver
"""

from __future__ import annotations

import secrets
from datetime import datetime

from embertide.spec.naming import FIELD_MANAGER
from embertide_operator.kubernetes_api import Object
from embertide_operator.status import PendingEvent, timestamp

_LONGEST_MESSAGE = 1024


def event_object(job: Object, event: PendingEvent, now: datetime) -> Object:
    """The API object of an Event about a job."""
    meta = job["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{secrets.token_hex(8)}",
            "namespace": meta["namespace"],
        },
        "involvedObject": {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message[:_LONGEST_MESSAGE],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
