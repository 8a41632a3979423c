"""Kubernetes Events of a job, with a fixed set of reasons.

Accepted Rejected Waiting Planned AttemptStarted WorkersReady StageStarted AttemptFailed
SpecChanged Suspended Resumed ChildRefused Published Completed Failed
"""

from __future__ import annotations

import secrets
from datetime import datetime

from embertide.spec.naming import FIELD_MANAGER
from embertide_operator.kubernetes_api import Object
from embertide_operator.status import PendingEvent, timestamp

_LONGEST_MESSAGE = 1024


def event(job: Object, note: PendingEvent, now: datetime) -> Object:
    """An Event about a job, as the API takes it."""
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
        "type": note.kind,
        "reason": note.reason,
        "message": note.message[:_LONGEST_MESSAGE],
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
