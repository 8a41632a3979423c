"""Kubernetes Events about a job. Their reasons:

Accepted Rejected Waiting InputsNotReady InputsReady Planned AttemptStarted WorkersReady
StageStarted AttemptFailed SpecChanged Suspended Resumed Published Held RemovalFailed Completed
Pushed PushFailed Failed Stale TakenOver WorkerUnreachable, and what keeps pods from starting:
ChildRefused PodsRefused FailedMount, or the pod's own reason.
"""

from __future__ import annotations

import time
from datetime import datetime

from embertide.spec.naming import FIELD_MANAGER
from embertide_operator.api.routes import Object
from embertide_operator.job.status import PendingEvent, timestamp

_LONGEST_MESSAGE = 1024


def event_object(job: Object, event: PendingEvent, now: datetime) -> Object:
    """The API object of an Event about a job; later ones have names that sort after it.

    Times of Events are in seconds, and what is sorted by them keeps the order of the names.
    """
    meta = job["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{time.time_ns():016x}",
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
