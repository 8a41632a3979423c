"""The next status of a job during one reconciliation: conditions, transitions, Events."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

from embertide.spec.status import ConditionType
from embertide_operator.api.routes import Object

LONGEST_MESSAGE = 1024


@dataclass(frozen=True)
class PendingEvent:
    """An Event to create: ``kind`` is Normal or Warning, ``reason`` as ``events.py`` lists it."""

    kind: str
    reason: str
    message: str


def timestamp(moment: datetime) -> str:
    """A time in the format of the Kubernetes API: RFC 3339 in UTC, in seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """The inverse of :func:`timestamp`; takes any ISO 8601 time with a zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class Draft:
    """A job's next status, and the Events about its changes.

    Attributes:
        fields: the status, as it will be written.
        events: the Events to create once it is written.
    """

    def __init__(self, job: Object, now: datetime) -> None:
        self.fields: dict[str, Any] = copy.deepcopy(job.get("status") or {})
        self.events: list[PendingEvent] = []
        self.now = now
        self._generation = job["metadata"].get("generation", 1)
        self.fields["observedGeneration"] = self._generation
        self.fields.setdefault("phase", "Pending")
        self.fields.setdefault("attempt", 0)
        self.fields.setdefault("failures", 0)

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            self.fields.pop(name, None)
        else:
            self.fields[name] = value

    def add_event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Create an Event once this status is written."""
        self.events.append(PendingEvent("Warning" if warning else "Normal", reason, message))

    def seconds_since(self, name: str) -> float:
        """Seconds since a time in the status; 0 where it is not set."""
        text = self[name]
        return self.seconds_since_time(text) if text else 0.0

    def seconds_since_time(self, text: str) -> float:
        """Seconds since a time of the API; negative where it is still to come."""
        return (self.now - parse_time(text)).total_seconds()

    def condition(self, kind: str) -> Object:
        """A condition; {} where it is not set."""
        found: list[Object] = self.fields.get("conditions", [])
        return next((item for item in found if item["type"] == kind), {})

    def is_true(self, kind: str) -> bool:
        """Whether a condition is True."""
        return bool(self.condition(kind).get("status") == "True")

    def set(self, kind: str, value: bool | None, reason: str, message: str = "") -> bool:
        """Set a condition, to Unknown by None; returns whether its status changed.

        ``lastTransitionTime`` changes only with the status, not with reason or message.
        """
        old = self.condition(kind)
        status = "Unknown" if value is None else str(value)
        changed = bool(old.get("status") != status)
        new = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "observedGeneration": self._generation,
            "lastTransitionTime": timestamp(self.now) if changed else old["lastTransitionTime"],
        }
        others = [item for item in self.fields.get("conditions", []) if item["type"] != kind]
        order = {name: i for i, name in enumerate(get_args(ConditionType))}
        self.fields["conditions"] = sorted([*others, new], key=lambda item: order[item["type"]])
        return changed

    def drop(self, kind: str) -> None:
        """Remove a condition that no longer applies."""
        kept = [item for item in self.fields.get("conditions", []) if item["type"] != kind]
        self.fields["conditions"] = kept
