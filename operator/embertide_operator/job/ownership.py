"""To which operator a job belongs: pure functions of the job, its children and heartbeats.

An operator reconciles the jobs of its class, and of these the ones that it has claimed: it writes
its name into ``status.operator`` with the first status of a job, which the API server accepts from
one operator only. Another operator of the same class that watches the same namespace leaves such a
job alone as long as the claimant is alive, and goes on with it afterwards. A job that changes its
class changes its operator.

In every namespace with jobs each operator renews a heartbeat in one ConfigMap: operators that
can meet are those that watch the same namespace, and there both may write ConfigMaps anyway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from embertide.spec.naming import GROUP
from embertide_operator.api.routes import Object
from embertide_operator.job.status import Draft, parse_time

CONFIG_MAP = f"operators.{GROUP}"
"""In every namespace with jobs: heartbeats of the operators that watch it. No job's name has a
dot, so no job's ConfigMap is this one."""
OPERATOR = f"{GROUP}/operator"
"""Annotation of the StatefulSet: the operator that applied it."""


@dataclass(frozen=True)
class Heartbeat:
    """What an operator says of itself in one namespace; it is alive while this changes.

    Attributes:
        operator: its identity, ``namespace/name``.
        operator_class: ``spec.operatorClass`` of its jobs; "" for those without.
        watches: the namespaces that it watches, for people to read.
        renewed: when it was renewed, by the holder's clock; RFC 3339 in UTC.
    """

    operator: str
    operator_class: str
    watches: str
    renewed: str


@dataclass(frozen=True)
class HeartbeatRecord:
    """The heartbeat of one operator, as seen from here. Times are monotonic seconds.

    Attributes:
        heartbeat: None where there is none.
        changed: when it was first asked for, or last seen to change.
        read: when the ConfigMap was last read.
    """

    heartbeat: Heartbeat | None
    changed: float
    read: float

    def is_gone(self, claim_seconds: float) -> bool:
        """Whether the operator has no heartbeat; never while the ConfigMap cannot be read."""
        return self.read - self.changed >= claim_seconds


def class_of(job: Object) -> str:
    """The class of operators that a job asks for; "" for none."""
    return str(job["spec"].get("operatorClass") or "")


def claimant(job: Object, statefulset: Object | None = None) -> str:
    """The operator that has a job: by its status, else by who applied its StatefulSet; "" for none.

    A status that was removed or restored from a backup does not say it any more.
    """
    claimed = (job.get("status") or {}).get("operator") or ""
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    return str(claimed or annotations.get(OPERATOR, ""))


def claim(draft: Draft, identity: str) -> None:
    """Write this operator's name into the status of a job that is its own from now on."""
    if not identity or draft["operator"] == identity:
        return
    if draft["operator"]:
        message = f"{draft['operator']} is gone or has another class; {identity} goes on"
        draft.add_event("TakenOver", message)
    draft["operator"] = identity


def is_free(job: Object, record: HeartbeatRecord, claim_seconds: float) -> bool:
    """Whether a job may be taken over from the operator that has it.

    Args:
        record: of that operator in the job's namespace.
    """
    if record.heartbeat is not None and record.heartbeat.operator_class != class_of(job):
        return True
    return record.is_gone(claim_seconds)


def overlapping(
    heartbeats: Mapping[str, Heartbeat], own: Heartbeat, now: datetime, claim_seconds: float
) -> list[Heartbeat]:
    """Other operators that would take the same jobs of a namespace.

    For a message, so one that has renewed its heartbeat lately by the clocks counts as alive.
    """
    return [
        heartbeat
        for heartbeat in heartbeats.values()
        if heartbeat.operator != own.operator
        and heartbeat.operator_class == own.operator_class
        and now.timestamp() - parse_time(heartbeat.renewed).timestamp() < claim_seconds
    ]


def to_data(heartbeat: Heartbeat) -> dict[str, str]:
    """The key and value of a heartbeat in the ConfigMap."""
    return {data_key(heartbeat.operator): json.dumps(asdict(heartbeat))}


def data_key(operator: str) -> str:
    """The key of an operator: a name may have dots, a namespace has none."""
    return operator.replace("/", ".", 1)


def from_data(data: Mapping[str, str]) -> dict[str, Heartbeat]:
    """The heartbeats of a ConfigMap's data by operator; what is none is left out."""
    found = {}
    for key, text in data.items():
        try:
            heartbeat = Heartbeat(**json.loads(text))
            parse_time(heartbeat.renewed)
            if key == data_key(heartbeat.operator):
                found[heartbeat.operator] = heartbeat
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def new_heartbeat(identity: str, operator_class: str, watches: str, now: datetime) -> Heartbeat:
    """This operator's, now."""
    return Heartbeat(identity, operator_class, watches, now.astimezone(UTC).isoformat())
